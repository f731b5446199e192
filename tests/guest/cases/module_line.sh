# A poller that never rests takes most completions of plain reads before their interrupt comes, which then finds nothing. The
# kernel turns an interrupt off for good of which 99,900 in 100,000 were like that. Threads of the kernel poll fastest.
plain() { echo $(($(told requests) - $(told polled))); }

before=$(plain) interrupts=$(interrupts_of_all)
until [ $(($(plain) - before)) -ge 300000 ]; do
    insmod /run/kblkbench.ko dev=/dev/vda jobs=2 qd=1 polled=2 ms=2000 2>/dev/null || true
done
dmesg | grep kblkbench | tail -n 1
echo "$(($(plain) - before)) plain reads, $(($(interrupts_of_all) - interrupts)) interrupts"
cat /sys/kernel/debug/pollux_blk/vda
# It still works.
drive vda --rw=randread --bs=4k --size=64m --ioengine=psync --number_ios=1000
quiet
