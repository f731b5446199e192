# Two disks under verified I/O while their daemon is replaced again and again. Each pass has blocks of its own, so
# that nothing old could pass for new.
storm() {
    pass=0
    until [ -e /tmp/enough ]; do
        drive "$1" --ioengine=libaio --rw=randrw --bs=4k --iodepth=32 --numjobs=2 --size=4M \
            --offset=$((pass % 8 * 8))M --offset_increment=4M --verify=crc32c --verify_fatal=1 --randseed=$((pass + 1))
        pass=$((pass + 1))
        say "$1 went on"
    done
    touch "/tmp/$1.ended"
}

for disk in vda vdb; do storm $disk & done
hear
touch /tmp/enough
wait
for disk in vda vdb; do [ -e /tmp/$disk.ended ] || fail "the storm on $disk ended early"; done
