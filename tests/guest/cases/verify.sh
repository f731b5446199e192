# What fio writes to the disks DISKS it reads back, from either engine, in blocks small and large.
# MIB: how much of each job's, in the smallest blocks, in blocks of 4 KiB, in blocks of 64 KiB.
#
# fio checks only what it wrote in the same run, and its headers repeat from run to run; hence every run
# has a part of the disk for itself, on which nothing older could pass for new.
for disk in $DISKS; do
    offset=0
    for engine in libaio io_uring; do
        set -- $MIB
        for block in "$(blockdev --getss /dev/$disk)" 4k 64k; do
            drive $disk --ioengine="$engine" --rw=randrw --bs="$block" --iodepth=32 --numjobs=4 \
                --offset="${offset}M" --size="${1}M" --offset_increment="${1}M" \
                --verify=crc32c --verify_fatal=1 --randseed=$((offset + 1))
            offset=$((offset + 4 * $1))
            shift
        done
    done
done

# Does it bite? One damaged block, and the same check must fail.
region="--name=bite --filename=/dev/$disk --direct=1 --offset=${offset}M --size=4M --bs=4k --verify=crc32c"
fio $region --rw=write --do_verify=0 >/dev/null
fio $region --rw=read >/dev/null || fail "fio does not verify what it wrote"
dd if=/dev/urandom of=/dev/$disk bs=4k count=1 seek=$((offset * 256 + 100)) oflag=direct 2>/dev/null
refused "verifying a damaged block" fio $region --rw=read --verify_fatal=1 --output=/tmp/fio
