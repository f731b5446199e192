# A poller that is stopped in the midst of its requests delays no plain read on the same queue: 1000 of them.
# With RULE=rfc, callbacks are off while a polled request is in flight, and they are delayed until it goes on.
if [ "$RULE" = rfc ]; then echo 1 >/sys/module/pollux_blk/parameters/quiet_while_polled; fi
slowest=0 caught=0
for round in $(seq 10); do
    fio --eta=never --name=poller --filename=/dev/vda --direct=1 --rw=randread --bs=256k --size=64m --ioengine=io_uring --hipri \
        --iodepth=16 --time_based --runtime=60 --output=/tmp/poller &
    poller=$!
    asked=$(told polled)
    while [ "$(told polled)" -lt $((asked + 100 + round * 37)) ]; do :; done
    # fio's load is in a process of its own.
    workers=$(ps -eo pid,ppid,comm | awk -v parent=$poller '$2 == parent && $3 == "fio" { print $1 }')
    kill -STOP $workers
    say "the poller is stopped"
    timeout 20 fio --eta=never --name=plain --filename=/dev/vda --direct=1 --rw=randread --bs=4k --size=64m --ioengine=psync \
        --number_ios=100 --output-format=json --output=/tmp/plain &
    plain=$!
    if [ "$RULE" = rfc ]; then
        busy=0
        for _ in $(seq 30); do
            [ -d /proc/$plain ] || break
            busy=$((busy + 1))
            sleep 0.1
        done
        if [ "$busy" = 30 ]; then caught=$((caught + 1)); fi
    fi
    [ "$RULE" = rfc ] || wait $plain || fail "plain reads while the poller is stopped"
    kill -CONT $workers
    [ "$RULE" != rfc ] || wait $plain || true
    kill -TERM $poller $workers 2>/dev/null || true
    wait $poller || true
    if [ "$RULE" = rfc ]; then [ "$caught" = 0 ] || break; continue; fi
    ns=$(awk '/"clat_ns"/ { inside = 1 } inside && /"max"/ { gsub(/[^0-9]/, "", $3); print $3; exit }' /tmp/plain)
    [ "$ns" -le "$slowest" ] || slowest=$ns
done
if [ "$RULE" = rfc ]; then
    between "rounds in which plain reads hung" "$caught" 1 10
else
    [ "$(told by-worker)" -gt 0 ] || fail "no poller was stopped with requests in flight"
    between "the slowest of 1000 plain reads, in ns" "$slowest" 1 20000000
fi
cat /sys/kernel/debug/pollux_blk/vda
