equal "queues" "$(queues vda)" "1"
equal "io_poll" "$(cat /sys/block/vda/queue/io_poll)" "1"
equal "the serial" "$(cat /sys/block/vda/serial)" "pollux-guest"
equal "cache_type" "$(cat /sys/block/vda/cache_type)" "write back"
# What the cache holds as it is switched off would never be flushed later.
flushes=$(stat_field vda 16)
echo "write through" >/sys/block/vda/cache_type
between "flushes as the cache is switched off" $(($(stat_field vda 16) - flushes)) 1 10
echo "write back" >/sys/block/vda/cache_type
equal "cache_type" "$(cat /sys/block/vda/cache_type)" "write back"

# Both modes at once on the one queue, each verifying its own half.
fio --eta=never --direct=1 --thread --rw=randrw --size=$((32 / less))m --verify=crc32c --do_verify=1 --filename=/dev/vda --output=/tmp/fio \
    --name=plain --ioengine=libaio --iodepth=16 --bs=4k-64k \
    --name=polled --ioengine=io_uring --hipri --iodepth=16 --bs=4k --offset=64m || { cat /tmp/fio; fail "both modes at once"; }
[ "$(told polled)" -gt 0 ] || fail "nothing was polled"
[ "$(told requests)" -gt "$(told polled)" ] || fail "all was polled"
cat /sys/kernel/debug/pollux_blk/vda

mkfs.ext4 -q /dev/vda
mount -o discard /dev/vda /mnt

[ "$less" = 1 ] && folder=/usr/bin || folder=/usr/lib/git-core
tar --create --directory $folder --file /mnt/tar . 2>/dev/null || true
sha256sum </mnt/tar >/tmp/before
umount /mnt
e2fsck -fn /dev/vda
mount /dev/vda /mnt
equal "the file" "$(sha256sum </mnt/tar)" "$(cat /tmp/before)"
command fstrim /mnt
umount /mnt
e2fsck -fn /dev/vda

fill vda 4
command blkdiscard --zeroout --offset 0 --length 4M /dev/vda
equal "what was zeroed" "$(checksum vda 4)" "$(zeroes 4)"
fill vda 4
command blkdiscard --offset 0 --length 4M /dev/vda
[ "$(stat_field vda 12)" -gt 0 ] || fail "nothing was discarded"
quiet
