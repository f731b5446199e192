# pollux_blk on a stock kernel: vda has one queue, vdb two, vdc four and no EVENT_IDX and no indirect descriptors. What
# is polled takes no interrupt; both modes at once verify on one queue; a disk that is taken away under load comes back.
mount -t debugfs debug /sys/kernel/debug
mount -t tracefs trace /sys/kernel/tracing 2>/dev/null || true

# told DISK WHAT: one of the driver's counters, over all queues.
told() { tr ' ' '\n' <"/sys/kernel/debug/pollux_blk/$1" | awk -F= -v n="$2" '$1 == n { sum += $2 } END { print sum + 0 }'; }

for disk in vda vdb vdc; do
    equal "the driver of $disk" "$(basename "$(readlink "/sys/block/$disk/device/driver")")" pollux_blk
    equal "io_poll of $disk" "$(cat /sys/block/$disk/queue/io_poll)" 1
    echo 2 >/sys/block/$disk/queue/nomerges
    before=$(all_interrupts $disk) polled=$(told $disk polled)
    drive $disk --ioengine=io_uring --hipri --rw=randread --bs=4k --iodepth=4 --size=16M --number_ios=2048
    equal "the number of polled requests of $disk" $(($(told $disk polled) - polled)) 2048
    between "the number of interrupts meanwhile" $(($(all_interrupts $disk) - before)) 0 40
    before=$(all_interrupts $disk)
    drive $disk --ioengine=libaio --rw=randread --bs=4k --iodepth=1 --size=16M --number_ios=512
    between "the number of interrupts of 512 plain reads of $disk" $(($(all_interrupts $disk) - before)) 256 600
    fio --direct=1 --thread --rw=randrw --size=8M --verify=crc32c --verify_fatal=1 --filename=/dev/$disk --output=/tmp/fio \
        --name=plain --ioengine=libaio --iodepth=16 --bs=4k-64k \
        --name=polled --ioengine=io_uring --hipri --iodepth=16 --bs=4k-64k --offset=32M || {
        tail -n 40 /tmp/fio
        fail "both modes at once on $disk"
    }
    echo "ok: both modes at once on $disk"
    # More than the ring holds where descriptors are not indirect, and nothing in it but polled requests. Then writes
    # that
    # are to be stable: they end with a flush.
    drive $disk --ioengine=io_uring --hipri --rw=randrw --bs=128k --size=16M --iodepth=16 --verify=crc32c --verify_fatal=1
    drive $disk --ioengine=io_uring --hipri --rw=randwrite --bs=4k --size=1M --iodepth=4 --sync=dsync
    drive $disk --ioengine=io_uring --hipri --rw=write --bs=4k --size=1M --iodepth=4 --sync=dsync
done
[ "$(told vda polls-found)" -gt 0 ] || fail "no poll has found anything"

# What the tracepoints tell is what the counters count.
events=/sys/kernel/tracing/events/pollux_blk
kicks=$(told vda kicks)
echo 1 >/sys/module/pollux_blk/parameters/time_locks
for event in kick interrupt submit poll callbacks lock; do echo 1 >$events/pollux_blk_$event/enable; done
drive vda --ioengine=libaio --rw=randread --bs=4k --iodepth=1 --size=16M --number_ios=64
# Not each event: that rewrites code which other processors run, and QEMU's emulation has once not survived it.
echo 0 >/sys/kernel/tracing/tracing_on
echo 0 >/sys/module/pollux_blk/parameters/time_locks
equal "the number of kicks that were traced" "$(grep -c pollux_blk_kick: /sys/kernel/tracing/trace)" $(($(told vda kicks) - kicks))
for event in interrupt submit callbacks lock; do
    [ "$(grep -c pollux_blk_$event: /sys/kernel/tracing/trace)" -gt 0 ] || fail "no $event was traced"
done
[ "$(told vda lock-hold-ns)" -gt 0 ] || fail "no lock was timed"
sh /bin/pollux-blk-stat vda 1 || fail "pollux-blk-stat"

device=$(virtio_name vdb) disk=vdb
for round in 1 2 3; do
    for kind in "io_uring --hipri" libaio; do
        fio --name=load --filename=/dev/$disk --allow_file_create=0 --direct=1 --rw=randrw --bs=4k --size=32m \
            --ioengine=$kind --iodepth=16 --time_based --runtime=1h --eta=never --output=/dev/null 2>/dev/null &
    done
    asked=$(told $disk requests)
    while [ "$(told $disk requests)" -lt $((asked + 500)) ]; do :; done
    echo "$device" >/sys/bus/virtio/drivers/pollux_blk/unbind
    [ ! -e /sys/block/$disk ] || fail "the disk is still there"
    wait # the load fails, and ends
    echo "$device" >/sys/bus/virtio/drivers/pollux_blk/bind
    # A ring of io_uring that is on its way out may still hold the old disk, and its name.
    disk=$(basename /sys/bus/virtio/devices/$device/block/*)
    echo "ok: taken away and given back, $round"
done
drive $disk --ioengine=io_uring --hipri --rw=randrw --bs=4k --size=8m --iodepth=16 --verify=crc32c --verify_fatal=1
