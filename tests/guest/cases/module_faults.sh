# The kernel has faults injected, and looks for faults in itself: allocations fail while the device is bound, one after
# the other; those that must not sleep fail under load; requests fail above the driver. Nothing leaks, nothing is
# reported.
device=$(virtio_name vda)
bus=/sys/bus/virtio/drivers/pollux_blk
echo N >/sys/kernel/debug/failslab/ignore-gfp-wait
echo 0 >/sys/kernel/debug/failslab/verbose
echo 0 >/sys/kernel/debug/fail_make_request/verbose

# One allocation after the other (every fifth on a slow kernel), until binding gets through without one that fails.
failed=0
for nth in $(seq 1 $((less > 1 ? 5 : 1)) 400); do
    echo "$device" >$bus/unbind
    # The task's own counter: reading 0 means that the fault has happened.
    left=$(sh -c 'echo "$1" >/proc/self/fail-nth; echo "$2" >"$3/bind" 2>/dev/null; read -r left </proc/self/fail-nth; echo 0 >/proc/self/fail-nth; echo "$left"' sh "$nth" "$device" $bus 2>/dev/null) || left=0
    if [ -e /sys/block/vda ]; then
        [ "${left:-0}" = 0 ] || break
    else
        failed=$((failed + 1))
        echo "$device" >$bus/bind
    fi
done
between "allocations without which there is no disk" $failed 3 399
[ -e /sys/block/vda ] || fail "the disk is not there"

# Allocations on the hot path.
echo Y >/sys/kernel/debug/failslab/ignore-gfp-wait
echo 10 >/sys/kernel/debug/failslab/probability
echo 3000 >/sys/kernel/debug/failslab/times
fio --eta=never --direct=1 --thread --rw=randrw --size=4m --verify=crc32c --do_verify=1 --filename=/dev/vda --output=/tmp/fio \
    --name=plain --ioengine=libaio --iodepth=16 --bs=4k-64k \
    --name=polled --ioengine=io_uring --hipri --iodepth=16 --bs=4k-64k --offset=64m || { cat /tmp/fio; fail "without memory"; }
command blkdiscard --offset 128M --length 64M /dev/vda
echo 0 >/sys/kernel/debug/failslab/probability
[ "$(cat /sys/kernel/debug/failslab/times)" -lt 3000 ] || fail "no allocation has failed"

# Requests.
echo 1 >/sys/block/vda/make-it-fail
echo 5 >/sys/kernel/debug/fail_make_request/probability
echo -1 >/sys/kernel/debug/fail_make_request/times
for kind in "io_uring --hipri" libaio; do
    fio --eta=never --name=failing --filename=/dev/vda --direct=1 --thread --rw=randrw --bs=4k --size=4m --ioengine=$kind --iodepth=16 \
        --continue_on_error=all --output=/tmp/fio || true
done
echo 0 >/sys/kernel/debug/fail_make_request/probability
drive vda --rw=randrw --bs=4k --size=4m --ioengine=io_uring --hipri --iodepth=16 --verify=crc32c --do_verify=1
tracing=/sys/kernel/tracing/events/pollux_blk
mount -t tracefs trace /sys/kernel/tracing
ls $tracing

# What is lost is found by a second look.
for _ in 1 2; do echo scan >/sys/kernel/debug/kmemleak; done
if grep -q pollux /sys/kernel/debug/kmemleak; then
    cat /sys/kernel/debug/kmemleak
    fail "memory has leaked"
fi
echo "ok: nothing has leaked"
quiet
