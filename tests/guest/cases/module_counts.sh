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
cat /sys/kernel/debug/pollux_blk/vda
quiet
