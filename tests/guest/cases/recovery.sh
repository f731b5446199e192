# The servers of both disks are killed, again and again, and others take their place. fio verifies what it
# writes to vda, every round with headers of its own; vdb takes the records of SEED from JOBS writers with
# PLACES each.
round=0
(
    while [ ! -e /tmp/enough ]; do
        round=$((round + 1))
        drive vda --ioengine=libaio --rw=randrw --bs=4k --iodepth=32 --numjobs=2 --size=2M \
            --offset_increment=2M --verify=crc32c --verify_fatal=1 --verify_backlog=64 --randseed=$round
    done
) &
verifying=$!
records vdb "$SEED" "$JOBS" "$PLACES" &
writing=$!
say "steady"
hear
touch /tmp/enough
wait $verifying || fail "fio found what it did not write"
kill $writing
wait $writing || say "the writers have ended"
