# A device that completes a polled request while it is still being submitted: nobody else is told of that, and its task
# never polls. It ends nevertheless. With one tag, callbacks are on while it is in the ring.
cat >/tmp/submit.py <<'THE_END'
import ctypes, mmap, os, signal, struct

kernel = ctypes.CDLL(None)
told = ctypes.create_string_buffer(struct.pack("<III", 0, 0, 1), 120)  # IORING_SETUP_IOPOLL
ring = kernel.syscall(425, 1, told)  # io_uring_setup
_, tail, _, _, _, _, array = struct.unpack_from("<7I", told, 40)
rings = mmap.mmap(ring, array + 4)
requests = mmap.mmap(ring, 64, offset=0x10000000)
page = mmap.mmap(-1, 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
disk = os.open("/dev/vda", os.O_RDONLY | os.O_DIRECT)
struct.pack_into("<BBHiQQI", requests, 0, 22, 0, 0, disk, 0, address, 4096)  # IORING_OP_READ
struct.pack_into("<I", rings, array, 0)
struct.pack_into("<I", rings, tail, 1)
assert kernel.syscall(426, ring, 1, 0, 0, None, 0) == 1  # io_uring_enter
signal.pause()
THE_END

echo 8000 >/sys/module/pollux_blk/parameters/slow_us
while_submitted=0
# So many rounds, and more until the device was fast enough in one.
least=$((less > 1 ? 2 : 10))
for round in $(seq 100); do
    [ $round -le $least ] || [ $while_submitted = 0 ] || break
    # One that is polled for leaves callbacks off.
    drive vda --rw=randread --bs=4k --size=64m --ioengine=io_uring --hipri --iodepth=1 --number_ios=8
    asked=$(told polled) parked=$(told parked) interrupts=$(told interrupts)
    python3 /tmp/submit.py &
    task=$!
    while [ "$(told polled)" = "$asked" ]; do :; done
    for _ in $(seq 300); do
        left=$(awk '{ print $1 + $2 }' /sys/block/vda/inflight)
        [ "$left" != 0 ] || break
        sleep 0.1
    done
    equal "requests in flight that nobody polls for, round $round" "$left" 0
    [ "$(told parked)" = "$parked" ] || [ "$(told interrupts)" != "$interrupts" ] || while_submitted=$((while_submitted + 1))
    kill $task
    wait $task || true
done
[ $while_submitted -gt 0 ] || fail "the device has completed none of them while it was submitted"
quiet
