# A disk of 256 MiB and two queues: data by fio and in a file system, by interrupts and, where POLLS is 1, polled.
equal "queues" "$(queues vda)" "2"
equal "io_poll" "$(cat /sys/block/vda/queue/io_poll)" "$POLLS"

drive vda --rw=randrw --bs=4k-64k --size=32m --ioengine=libaio --iodepth=16 --verify=crc32c --do_verify=1
if [ "$POLLS" = 1 ]; then
    drive vda --rw=randrw --bs=4k --size=32m --ioengine=io_uring --hipri --iodepth=16 --verify=crc32c --do_verify=1
fi

mkfs.ext4 -q /dev/vda
mount /dev/vda /mnt
tar --create --directory /usr/bin --file /mnt/tar . 2>/dev/null || true
sha256sum </mnt/tar >/tmp/before
umount /mnt
e2fsck -fn /dev/vda
mount /dev/vda /mnt
equal "the file" "$(sha256sum </mnt/tar)" "$(cat /tmp/before)"
umount /mnt
