# A poller that never rests takes most completions of plain reads before their interrupt comes, which then finds nothing
# and counts as unhandled. The kernel turns an interrupt off for good of which 99,900 in 100,000 are. Threads of the
# kernel poll fastest.
for round in 1 2 3; do
    all=$(interrupts_of_all) handled=$(told interrupts) plain=$(($(told requests) - $(told polled)))
    insmod /run/kblkbench.ko dev=/dev/vda jobs=2 qd=1 polled=2 ms=2000 2>/dev/null || true
    dmesg | grep kblkbench | tail -n 1
    all=$(($(interrupts_of_all) - all)) handled=$(($(told interrupts) - handled))
    echo "$(($(told requests) - $(told polled) - plain)) plain reads, $all interrupts, of which $handled were handled"
    [ $((handled * 500)) -ge $((all - 500)) ] || fail "of $all interrupts only $handled were handled"
done
cat /sys/kernel/debug/pollux_blk/vda
quiet
