# The device is taken away while its server answers nothing, so that removal waits; then the server is killed, and
# removal ends. In flight are requests of both kinds, and pages of the cache that wait to be written.
device=$(virtio_name vda)
for kind in "io_uring --hipri" libaio; do
    fio --name=load --filename=/dev/vda --allow_file_create=0 --direct=1 --rw=randrw --bs=4k --size=64m \
        --ioengine=$kind --iodepth=16 --time_based --runtime=1h --eta=never --output=/dev/null 2>/dev/null &
done
while :; do dd if=/dev/zero of=/dev/vda bs=1M count=16 seek=128 conv=notrunc,nocreat 2>/dev/null || break; done &
asked=$(told requests)
while [ "$(told requests)" -lt $((asked + 2000 / less)) ]; do :; done
say "under load"
hear
(echo "$device" >/sys/bus/virtio/drivers/pollux_blk/unbind) 2>/dev/null &
removal=$!
while [ "$(awk '{ print $3 }' /proc/$removal/stat)" != D ]; do :; done
say "removal waits"
wait $removal
wait # the load fails, and ends
[ ! -e /sys/block/vda ] || fail "the disk is still there"
say "it is gone"
