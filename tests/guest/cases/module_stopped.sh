# A poller that is stopped in the midst of its requests delays no plain read on the same queue: 1000 of them, each in less than
# 20 ms. With RULE=rfc, callbacks are off while a polled request is in flight, and they are delayed until it goes on.

# stop_poller ROUND: starts a poller and stops it with requests in flight. fio's load is in a process of its own.
stop_poller() {
    fio --eta=never --name=poller --filename=/dev/vda --direct=1 --rw=randread --bs=256k --size=64m --ioengine=io_uring --hipri \
        --iodepth=16 --time_based --runtime=60 --output=/tmp/poller &
    poller=$!
    asked=$(told polled)
    while [ "$(told polled)" -lt $((asked + 100 + $1 * 37)) ]; do :; done
    workers=$(ps -eo pid,ppid,comm | awk -v parent=$poller '$2 == parent && $3 == "fio" { print $1 }')
    kill -STOP $workers
    say "the poller is stopped"
}

start_reads() {
    timeout 20 fio --eta=never --name=plain --filename=/dev/vda --direct=1 --rw=randread --bs=4k --size=64m --ioengine=psync \
        --number_ios=100 --output-format=json --output=/tmp/plain &
    plain=$!
}

end_poller() {
    kill -CONT $workers
    kill -TERM $poller $workers 2>/dev/null || true
    wait $poller || true
}

# note: the slowest read so far, in ns.
note() {
    ns=$(awk '/"clat_ns"/ { inside = 1 } inside && /"max"/ { gsub(/[^0-9]/, "", $3); print $3; exit }' /tmp/plain)
    [ "$ns" -le "$slowest" ] || slowest=$ns
}

# 1000 reads beside a stopped poller.
measure() {
    slowest=0
    for round in $(seq 10); do
        stop_poller $round
        start_reads
        wait $plain || fail "plain reads while the poller is stopped"
        end_poller
        note
    done
}

# 1000 reads with nothing beside them.
measure_alone() {
    slowest=0
    for round in $(seq 10); do
        start_reads
        wait $plain || fail "plain reads"
        note
    done
}

# Rounds until the reads of one are not done within three seconds.
catch_delay() {
    caught=0
    for round in $(seq 10); do
        stop_poller $round
        start_reads
        for _ in $(seq 30); do
            [ -d /proc/$plain ] || break
            sleep 0.1
        done
        if [ -d /proc/$plain ]; then caught=1; fi
        kill -CONT $workers
        wait $plain || true
        end_poller
        [ $caught = 0 ] || break
    done
}

if [ "$RULE" = rfc ]; then
    echo 1 >/sys/module/pollux_blk/parameters/quiet_while_polled
    catch_delay
    equal "whether plain reads hung" $caught 1
else
    # A machine that others use delays reads as well.
    measure_alone
    limit=$((slowest > 5000000 ? 4 * slowest : 20000000))
    echo "the slowest of 1000 plain reads with no poller, in ns: $slowest"
    measure
    [ "$(told by-worker)" -gt 0 ] || fail "no poller was stopped with requests in flight"
    between "the slowest of 1000 plain reads, in ns" "$slowest" 1 $limit
fi
cat /sys/kernel/debug/pollux_blk/vda
