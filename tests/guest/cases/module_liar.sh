# The device breaks the rules of the second of its rings. What is in flight on both fails, at once and without a
# removal; so does what comes later; and the device can be taken away.
device=$(virtio_name vda)
equal "queues" "$(queues vda)" 2
for kind in "io_uring --hipri" libaio; do
    fio --name=load --filename=/dev/vda --direct=1 --rw=randread --bs=4k --size=512k --ioengine=$kind --iodepth=8 --numjobs=2 \
        --time_based --runtime=1h --eta=never --output=/dev/null 2>/dev/null &
done
asked=$(told requests)
while [ "$(told requests)" -lt $((asked + 2000 / less)) ]; do :; done
say "under load"
wait # the load fails, and ends
say "the load has ended"
refused "reading afterwards" dd if=/dev/vda of=/dev/null bs=4k count=1 iflag=direct
dmesg | grep "all requests of vda fail" || fail "the kernel's log does not say why"
echo "$device" >/sys/bus/virtio/drivers/pollux_blk/unbind
[ ! -e /sys/block/vda ] || fail "the disk is still there"
