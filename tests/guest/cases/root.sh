# The root disk is vda, which has DRIVER; vdb has OTHER. What is written to the root file system is there after the next
# boot.
equal "the driver of the root disk" "$(basename "$(readlink /sys/block/vda/device/driver)")" "$DRIVER"
equal "the driver of the other disk" "$(basename "$(readlink /sys/block/vdb/device/driver)")" "$OTHER"
equal "the device of the root file system" "$(awk '$5 == "/" { device = $3 } END { print device }' /proc/self/mountinfo)" "$(cat /sys/block/vda/dev)"
if [ -e /kept ]; then
    equal "what the boot before has left" "$(sha256sum </kept)" "$(cat /sum)"
fi
head -c 8388608 /dev/urandom >/kept
sha256sum </kept >/sum
sync
echo 3 >/proc/sys/vm/drop_caches
equal "what was written" "$(sha256sum </kept)" "$(cat /sum)"
