# With a queue that the driver polls (it has no call fd at all), requests complete without interrupts.
equal "the number of queues" "$(queues vda)" 2
equal "the number of interrupts that queues have" "$(grep -c "$(virtio_name vda)-req" /proc/interrupts)" 1

echo 2 >/sys/block/vda/queue/nomerges # one request for each read or write

# poll RW DEPTH: 4096 polled requests; the calls meanwhile are those of the other queue.
poll() {
    before=$(ios vda) calls=$(all_interrupts vda)
    drive vda --ioengine=io_uring --hipri --bs=4k --iodepth="$2" --size=16M --rw="$1" --do_verify=0 --verify=crc32c
    between "the number of requests ($1)" $(($(ios vda) - before)) 4096 4200
    between "the number of interrupts meanwhile" $(($(all_interrupts vda) - calls)) 0 100
}
poll randwrite 1
poll randread 1
poll randwrite 32
poll randread 32

# The same without polling: now there are interrupts, so the count above means something.
calls=$(all_interrupts vda)
drive vda --ioengine=io_uring --bs=4k --iodepth=1 --size=16M --rw=read --verify=crc32c --verify_fatal=1
between "the number of interrupts without polling" $(($(all_interrupts vda) - calls)) 1000 5000
