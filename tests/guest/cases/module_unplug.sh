# The device is taken away and given back under load of both kinds.
device=$(virtio_name vda)
disk=vda
for round in $(seq $((less > 1 ? 2 : 5))); do
    for kind in "io_uring --hipri" libaio; do
        fio --name=load --filename=/dev/$disk --allow_file_create=0 --direct=1 --rw=randrw --bs=4k --size=64m \
            --ioengine=$kind --iodepth=16 --time_based --runtime=1h --eta=never --output=/dev/null 2>/dev/null &
    done
    asked=$(told requests $disk)
    while [ "$(told requests $disk)" -lt $((asked + 2000 / less)) ]; do :; done
    echo "$device" >/sys/bus/virtio/drivers/pollux_blk/unbind
    [ ! -e /sys/block/$disk ] || fail "the disk is still there"
    wait # the load fails, and ends
    echo "$device" >/sys/bus/virtio/drivers/pollux_blk/bind
    # A ring of io_uring that is on its way out may still hold the old disk, and its name.
    disk=$(basename /sys/bus/virtio/devices/$device/block/*)
    echo "ok: taken away and given back, $round"
done
drive $disk --rw=randrw --bs=4k --size=16m --ioengine=io_uring --hipri --iodepth=16 --verify=crc32c --do_verify=1
quiet
