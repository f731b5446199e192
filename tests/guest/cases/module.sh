# pollux_blk on a disk of 256 MiB with one queue, which is polled and interrupt-driven at once.
# less: how many times less a slow kernel does.
mount -t debugfs debug /sys/kernel/debug

# told WHAT [DISK]: one of the driver's counters, over all queues.
told() { tr ' ' '\n' <"/sys/kernel/debug/pollux_blk/${2:-vda}" | awk -F= -v n="$1" '$1 == n { sum += $2 } END { print sum + 0 }'; }

# interrupts_of_all: of every virtio device, which share one line here.
interrupts_of_all() { awk '/virtio/ { for (i = 2; $i ~ /^[0-9]+$/; i++) sum += $i } END { print sum + 0 }' /proc/interrupts; }

# nothing_leaks: the module has lost no memory.
nothing_leaks() {
    # What is lost is found by a second look.
    for _ in 1 2; do echo scan >/sys/kernel/debug/kmemleak; done
    if grep -q pollux /sys/kernel/debug/kmemleak; then
        cat /sys/kernel/debug/kmemleak
        fail "memory has leaked"
    fi
    echo "ok: nothing has leaked"
}

# quiet: the kernel has complained of nothing.
quiet() {
    if dmesg | grep -E 'WARNING|BUG|KASAN|INFO: |Oops|blk_update_request|nobody cared|suspicious|possible' >/tmp/complaints; then
        dmesg | tail -n 60
        fail "the kernel complains: $(head -n 1 /tmp/complaints)"
    fi
    # One that found a fault at boot might look for no others.
    if [ -e /proc/lockdep_stats ] && ! grep -q 'debug_locks: *1$' /proc/lockdep_stats; then
        fail "the kernel has given up looking at locks"
    fi
    echo "ok: the kernel complains of nothing"
}

