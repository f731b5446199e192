# Polled load takes no interrupt; plain load does.
before=$(interrupts_of_all) asked=$(told requests)
drive vda --rw=randread --bs=4k --size=64m --ioengine=io_uring --hipri --iodepth=1 --number_ios=$((8192 / less))
equal "requests" "$(($(told requests) - asked))" $((8192 / less))
between "interrupts of polled reads" "$(($(interrupts_of_all) - before))" 0 40

before=$(interrupts_of_all)
drive vda --rw=randread --bs=4k --size=64m --ioengine=io_uring --hipri --iodepth=32 --number_ios=$((16384 / less))
between "interrupts of polled reads, 32 at a time" "$(($(interrupts_of_all) - before))" 0 80

before=$(interrupts_of_all)
drive vda --rw=randread --bs=4k --size=64m --ioengine=libaio --iodepth=1 --number_ios=$((2048 / less))
between "interrupts of plain reads" "$(($(interrupts_of_all) - before))" $((1000 / less)) $((2300 / less))
# Nobody else wants the lock of a queue with one request at a time, but for the driver's watch: what is waited for is
# other holders, not the clock.
echo 1 >/sys/module/pollux_blk/parameters/time_locks
drive vda --rw=randread --bs=4k --size=64m --ioengine=io_uring --hipri --iodepth=1 --number_ios=$((8192 / less))
echo 0 >/sys/module/pollux_blk/parameters/time_locks
between "locks that were timed" "$(told locks-timed)" $((8192 / less)) $((32768 / less))
between "locks that were waited for" "$(told locks-contended)" 0 $((1024 / less))
cat /sys/kernel/debug/pollux_blk/vda
quiet
