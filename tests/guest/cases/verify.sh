# What fio writes it reads back, from either engine, in blocks small and large.
#
# fio checks only what it wrote in the same run, and its headers repeat from run to run; hence every run
# has a part of the disk for itself, on which nothing older could pass for new.
offset=0
for engine in libaio io_uring; do
    for blocks in 512:1 4k:12 64k:24; do
        mib=${blocks#*:}
        before=$(ios vda)
        drive vda --ioengine="$engine" --rw=randrw --bs="${blocks%:*}" --iodepth=32 --numjobs=4 \
            --offset="${offset}M" --size="${mib}M" --offset_increment="${mib}M" \
            --verify=crc32c --verify_fatal=1 --randseed=$((offset + 1))
        offset=$((offset + 4 * mib))
    done
done

# Does it bite? One damaged block, and the same check must fail.
region="--name=bite --filename=/dev/vda --direct=1 --offset=${offset}M --size=4M --bs=4k --verify=crc32c"
fio $region --rw=write --do_verify=0 >/dev/null
fio $region --rw=read >/dev/null || fail "fio does not verify what it wrote"
dd if=/dev/urandom of=/dev/vda bs=4k count=1 seek=$((offset * 256 + 100)) oflag=direct 2>/dev/null
refused "verifying a damaged block" fio $region --rw=read --verify_fatal=1 --output=/tmp/fio
