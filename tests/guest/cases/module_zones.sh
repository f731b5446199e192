# A disk with zones that must be written in order is refused, as it would fail most writes.
[ ! -e /sys/block/vda ] || fail "there is a disk"
dmesg | grep "zoned disks are not supported" || fail "the kernel's log does not say why"
