# The kernel has faults injected under load: allocations that must not sleep fail, and requests fail above the driver.
# Nothing leaks, nothing is reported.
echo 0 >/sys/kernel/debug/failslab/verbose
echo 0 >/sys/kernel/debug/fail_make_request/verbose

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
echo 100000 >/sys/kernel/debug/fail_make_request/times
for kind in "io_uring --hipri" libaio; do
    fio --eta=never --name=failing --filename=/dev/vda --direct=1 --thread --rw=randrw --bs=4k --size=4m --ioengine=$kind --iodepth=16 \
        --continue_on_error=all --output=/tmp/fio || true
done
echo 0 >/sys/kernel/debug/fail_make_request/probability
[ "$(cat /sys/kernel/debug/fail_make_request/times)" -lt 100000 ] || fail "no request has failed"
drive vda --rw=randrw --bs=4k --size=4m --ioengine=io_uring --hipri --iodepth=16 --verify=crc32c --do_verify=1
tracing=/sys/kernel/tracing/events/pollux_blk
mount -t tracefs trace /sys/kernel/tracing
ls $tracing
nothing_leaks
quiet
