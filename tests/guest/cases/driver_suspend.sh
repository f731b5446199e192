# The machine sleeps, under load of both kinds, and wakes up; nothing is lost. The host wakes it.
# HOW: what is written to /sys/power/state. vdb is a disk of QEMU's own, whose cache is on after each reset.
equal "cache_type of vdb" "$(cat /sys/block/vdb/cache_type)" "write back"
echo "write through" >/sys/block/vdb/cache_type
equal "cache_type of vdb once it is switched" "$(cat /sys/block/vdb/cache_type)" "write through"
fio --direct=1 --thread --rw=randrw --verify=crc32c --verify_fatal=1 --filename=/dev/vda --output=/tmp/fio \
    --size=16M --loops=2 --name=plain --ioengine=libaio --iodepth=16 --bs=4k \
    --name=polled --ioengine=io_uring --hipri --iodepth=16 --bs=4k --offset=32M &
load=$!
while [ "$(ios vda)" -lt 500 ]; do :; done
say "falling asleep"
echo "$HOW" >/sys/power/state
say "awake"
# Nobody flushes it any more.
equal "cache_type of vdb after the sleep" "$(cat /sys/block/vdb/cache_type)" "write through"
wait $load || {
    tail -n 40 /tmp/fio
    fail "the load over a sleep"
}
drive vda --ioengine=io_uring --hipri --rw=randrw --bs=4k --size=8m --iodepth=16 --verify=crc32c --verify_fatal=1

# A machine of QEMU's that has slept cannot be powered off any more, but its reset ends it here.
echo "guest: status 0"
reboot -f
