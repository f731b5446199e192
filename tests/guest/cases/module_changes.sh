# Under load of both kinds the mode of the cache is changed again and again, and the host resizes the disk, in each of
# `rounds`; in the midst of that the device is taken away and given back. The last size arrives.
device=$(virtio_name vda)
disk=vda

# change FILE: a line in FILE for each change, between which the load goes on: a change has to wait for all requests,
# and changes without a break leave hardly any time to them.
change() {
    while [ -e /sys/block/$disk/cache_type ]; do
        echo "write through" >/sys/block/$disk/cache_type
        echo "write back" >/sys/block/$disk/cache_type
        echo >>"$1"
        target=$(($(told requests $disk) + 200 / less))
        while [ -e /sys/block/$disk/cache_type ] && [ "$(told requests $disk)" -lt $target ]; do :; done
    done
}

for round in $(seq $rounds); do
    for kind in "io_uring --hipri" libaio; do
        fio --name=load --filename=/dev/$disk --allow_file_create=0 --direct=1 --rw=randrw --bs=4k --size=512k \
            --ioengine=$kind --iodepth=16 --time_based --runtime=1h --eta=never --output=/dev/null 2>/dev/null &
    done
    changes=/run/changes.$round
    : >$changes
    change $changes 2>/dev/null &
    while [ "$(wc -l <$changes)" -lt $((less > 1 ? 1 : 10)) ]; do :; done
    say "round $round"
    echo "$device" >/sys/bus/virtio/drivers/pollux_blk/unbind
    [ ! -e /sys/block/$disk ] || fail "the disk is still there"
    wait # the load fails, and ends
    echo "$device" >/sys/bus/virtio/drivers/pollux_blk/bind
    disk=$(basename /sys/bus/virtio/devices/$device/block/*)
    echo "ok: the cache was changed $(wc -l <$changes) times in round $round"
done
while [ "$(cat /sys/block/$disk/size)" != 4096 ]; do :; done
drive $disk --rw=randrw --bs=4k --size=1m --ioengine=io_uring --hipri --iodepth=16 --verify=crc32c --do_verify=1
quiet
