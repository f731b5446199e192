# Reads, and then waits until the kernel has taken the disk of a dead server away. Nothing may be in flight meanwhile:
# virtio_blk waits for ever for a request that the dead server had, and neither the disk nor that reader ever goes.
dd if=/dev/vda of=/dev/null bs=4k count=64 iflag=direct 2>/dev/null || fail "the disk cannot be read"
say idle
while [ -e /sys/block/vda ]; do :; done
say "the disk is gone"
refused "a read" dd if=/dev/vda of=/dev/null bs=4k count=1 iflag=direct
