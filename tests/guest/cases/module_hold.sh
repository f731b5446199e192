# The server holds calls back while it expects more to complete, the driver keeps callbacks off while it is awake. If
# each waited for the other, the last requests of a load would never end: of any depth, in bursts, alone and beside a
# poller.
depths="1 2 3 4 5 8 17 64"
[ "$less" = 1 ] || depths="1 17"
for polled in 0 1; do
    if [ $polled = 1 ]; then
        fio --eta=never --name=poller --filename=/dev/vda --direct=1 --rw=randread --bs=4k --size=64m --ioengine=io_uring --hipri \
            --iodepth=3 --thinktime=100 --time_based --runtime=3600 --output=/tmp/poller &
        poller=$!
    fi
    for depth in $depths; do
        drive vda --rw=randread --bs=4k --size=64m --ioengine=libaio --iodepth=$depth --number_ios=$((depth * 30 / less + 1))
        drive vda --rw=randwrite --bs=4k --size=64m --ioengine=libaio --iodepth=$depth --iodepth_batch=$depth \
            --iodepth_batch_complete_min=$depth --number_ios=$((depth * 30 / less + 1))
    done
    drive vda --rw=randread --bs=4k --size=64m --ioengine=psync --numjobs=3 --number_ios=$((500 / less))
done
kill -TERM $poller
wait $poller || true
[ "$(told interrupts)" -gt 0 ] || fail "nothing was interrupt-driven"
quiet
