# The kernel has allocations fail while the device is bound, one after the other (every fifth on a slow kernel), until
# binding gets through without one that fails. Nothing leaks, nothing is reported.
device=$(virtio_name vda)
bus=/sys/bus/virtio/drivers/pollux_blk
echo N >/sys/kernel/debug/failslab/ignore-gfp-wait
echo 0 >/sys/kernel/debug/failslab/verbose

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
nothing_leaks
quiet
