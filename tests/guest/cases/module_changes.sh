# Under load of both kinds the mode of the cache is changed without a break, and the host resizes the disk, in each of
# `rounds`; in the midst of that the device is taken away and given back. The last size arrives.
device=$(virtio_name vda)
disk=vda
for round in $(seq $rounds); do
    for kind in "io_uring --hipri" libaio; do
        fio --name=load --filename=/dev/$disk --direct=1 --rw=randrw --bs=4k --size=512k --ioengine=$kind --iodepth=16 \
            --time_based --runtime=60 --output=/dev/null 2>/dev/null &
    done
    (while [ -e /sys/block/$disk/cache_type ]; do
        echo "write through" >/sys/block/$disk/cache_type
        echo "write back" >/sys/block/$disk/cache_type
        echo >>/run/changes.$round
    done) 2>/dev/null &
    asked=$(told requests $disk)
    while [ "$(told requests $disk)" -lt $((asked + 2000 / less)) ] || [ ! -e /run/changes.$round ]; do :; done
    say "round $round"
    echo "$device" >/sys/bus/virtio/drivers/pollux_blk/unbind
    [ ! -e /sys/block/$disk ] || fail "the disk is still there"
    wait # the load fails, and ends
    echo "$device" >/sys/bus/virtio/drivers/pollux_blk/bind
    disk=$(basename /sys/bus/virtio/devices/$device/block/*)
    echo "ok: the cache was changed $(wc -l </run/changes.$round) times in round $round"
done
while [ "$(cat /sys/block/$disk/size)" != 4096 ]; do :; done
drive $disk --rw=randrw --bs=4k --size=1m --ioengine=io_uring --hipri --iodepth=16 --verify=crc32c --do_verify=1
quiet
