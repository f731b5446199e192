# Two reboots in one QEMU, the second with writes in flight; what was written is there each time.
# The first block of the disk holds which boot comes next and the checksum of the 32 MiB from 1 MiB on.
state() { dd if=/dev/vda bs=512 count=1 iflag=direct 2>/dev/null | tr -d '\0'; }
next() {
    printf '%s' "$*" | dd of=/dev/vda bs=512 count=1 conv=sync,fsync 2>/dev/null
    echo "ok: wrote state '$*'"
}

set -- $(state)
case ${1:-first} in
first)
    fill vda 32 1
    next second "$(checksum vda 32 1)"
    reboot -f
    ;;
second)
    equal "the data after a reboot" "$(checksum vda 32 1)" "$2"
    next third "$2"
    # Whole blocks with fio's headers, then rewritten until the machine is reset beneath them.
    part="--ioengine=libaio --offset=64M --size=32M --bs=4k --verify=crc32c --do_verify=0"
    drive vda --rw=write $part
    before=$(stat_field vda 5)
    fio --name=storm --filename=/dev/vda --direct=1 --rw=randwrite --iodepth=32 --loops=100000 \
        --serialize_overlap=1 $part >/tmp/storm 2>&1 &
    until [ $(($(stat_field vda 5) - before)) -gt 1000 ]; do :; done
    reboot -f
    ;;
third)
    equal "the data after a reset under load" "$(checksum vda 32 1)" "$2"
    drive vda --rw=read --ioengine=libaio --offset=64M --size=32M --bs=4k --verify=crc32c --verify_fatal=1
    drive vda --rw=randrw --ioengine=libaio --offset=64M --size=8M --bs=4k --iodepth=32 --verify=crc32c --verify_fatal=1
    say "was booted three times"
    ;;
*) fail "the state is '$*'" ;;
esac
# Only the last boot comes here: `reboot -f` does not return.
[ "${1:-first}" = third ] || fail "the machine did not reboot"
