# A device with more queues than there are processors, of which there are CPUS: each has one, for both kinds.
equal "processors" "$(grep -c ^processor /proc/cpuinfo)" "$CPUS"
# Not those that the block layer shows: it leaves out the ones that no processor uses.
equal "queues" "$(grep -c '^queue=' /sys/kernel/debug/pollux_blk/vda)" "$CPUS"
fio --eta=never --direct=1 --thread --rw=randrw --size=16m --verify=crc32c --do_verify=1 --filename=/dev/vda --output=/tmp/fio \
    --name=plain --ioengine=libaio --iodepth=16 --bs=4k-64k \
    --name=polled --ioengine=io_uring --hipri --iodepth=16 --bs=4k --offset=64m || { cat /tmp/fio; fail "both modes at once"; }
before=$(interrupts_of_all)
drive vda --rw=randread --bs=4k --size=64m --ioengine=io_uring --hipri --iodepth=16 --numjobs=2 --number_ios=4096
between "interrupts of polled reads" "$(($(interrupts_of_all) - before))" 0 80
quiet
