# A disk of 256 MiB of another server, on two queues or more. MODULE: pollux_blk, which uses one of them, or virtio_blk,
# which sets one aside for polling.
equal "the driver" "$(basename "$(readlink /sys/block/vda/device/driver)")" "$MODULE"
equal "io_poll" "$(cat /sys/block/vda/queue/io_poll)" 1
plain="--rw=randrw --bs=4k-64k --ioengine=libaio --iodepth=16"
polled="--rw=randrw --bs=4k --ioengine=io_uring --hipri --iodepth=16"
drive vda $plain --size=16m --verify=crc32c --do_verify=1
drive vda $polled --size=16m --verify=crc32c --do_verify=1
fio --eta=never --direct=1 --thread --size=16m --verify=crc32c --do_verify=1 --filename=/dev/vda --output=/tmp/fio \
    --name=plain $plain --name=polled $polled --offset=64m || { cat /tmp/fio; fail "both modes at once"; }

if [ "$MODULE" = pollux_blk ]; then
    equal "queues" "$(queues vda)" 1
    for depth in 1 16; do
        before=$(interrupts_of_all) asked=$(told polled)
        drive vda --rw=randread --bs=4k --size=64m --ioengine=io_uring --hipri --iodepth=$depth --number_ios=4096
        equal "polled requests, $depth at a time" "$(($(told polled) - asked))" 4096
        between "interrupts of polled reads, $depth at a time" "$(($(interrupts_of_all) - before))" 0 40
    done
    # Of plain load, one each at most.
    before=$(interrupts_of_all)
    drive vda --rw=randread --bs=4k --size=64m --ioengine=libaio --iodepth=1 --number_ios=1024
    between "interrupts of plain reads" "$(($(interrupts_of_all) - before))" 500 1100
    cat /sys/kernel/debug/pollux_blk/vda
fi

mkfs.ext4 -q /dev/vda
mount /dev/vda /mnt
tar --create --directory /usr/lib/git-core --file /mnt/tar . 2>/dev/null || true
sha256sum </mnt/tar >/tmp/before
umount /mnt
mount /dev/vda /mnt
equal "the file" "$(sha256sum </mnt/tar)" "$(cat /tmp/before)"
umount /mnt
e2fsck -fn /dev/vda
quiet
