# The machine sleeps, under load of both kinds, and wakes up; nothing is lost. The host wakes it.
# HOW: what is written to /sys/power/state.
fio --direct=1 --thread --rw=randrw --verify=crc32c --verify_fatal=1 --filename=/dev/vda --output=/tmp/fio \
    --size=16M --loops=2 --name=plain --ioengine=libaio --iodepth=16 --bs=4k \
    --name=polled --ioengine=io_uring --hipri --iodepth=16 --bs=4k --offset=32M &
load=$!
while [ "$(ios vda)" -lt 500 ]; do :; done
say "falling asleep"
echo "$HOW" >/sys/power/state
say "awake"
wait $load || {
    tail -n 40 /tmp/fio
    fail "the load over a sleep"
}
drive vda --ioengine=io_uring --hipri --rw=randrw --bs=4k --size=8m --iodepth=16 --verify=crc32c --verify_fatal=1

# A machine of QEMU's that has slept cannot be powered off any more, but its reset ends it here.
echo "guest: status 0"
reboot -f
