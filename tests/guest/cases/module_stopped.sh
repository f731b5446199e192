# A poller that is stopped in the midst of its requests delays no plain read on the same queue: an interrupt tells of
# each of 1000. With RULE=rfc, callbacks are off while a polled request is in flight, and they are delayed until it goes on.

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
    timeout 60 fio --eta=never --name=plain --filename=/dev/vda --direct=1 --rw=randread --bs=4k --size=64m --ioengine=psync \
        --number_ios=100 --write_lat_log=/tmp/plain --output=/tmp/plain &
    plain=$!
}

end_poller() {
    kill -CONT $workers
    kill -TERM $poller $workers 2>/dev/null || true
    wait $poller || true
}

# 1000 reads beside a stopped poller; `late` of them took 20 ms or more.
measure() {
    late=0 slowest=0
    for round in $(seq 10); do
        stop_poller $round
        start_reads
        wait $plain || fail "plain reads while the poller is stopped"
        end_poller
        late=$((late + $(tr -d , </tmp/plain_clat.1.log | awk '$2 >= 20000000' | wc -l)))
        slowest=$(tr -d , </tmp/plain_clat.1.log | awk -v most=$slowest '$2 > most { most = $2 } END { print most }')
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
    overdue=$(told overdue)
    measure
    echo "the slowest of 1000 plain reads, in ns: $slowest"
    [ "$(told by-worker)" -gt 0 ] || fail "no poller was stopped with requests in flight"
    # Each was told of by an interrupt. The driver's watch, which sees to the poller's requests every few milliseconds,
    # may come upon a read whose interrupt is on its way.
    between "plain reads that no interrupt had told of" $(($(told overdue) - overdue)) 0 50
    # A machine that others use takes the processor away now and then; what waits for a stopped poller waits in every
    # round.
    between "plain reads of 20 ms or more" $late 0 50
fi
cat /sys/kernel/debug/pollux_blk/vda
