# The driver binds, with as many queues as the device has, and every queue carries requests.
# QUEUES: of vda, vdb, … in turn. The guest has 4 CPUs.
set -- $QUEUES
for disk in vda vdb vdc; do
    wanted=$1
    shift
    equal "the driver of $disk" "$(basename "$(readlink "/sys/block/$disk/device/driver")")" "${driver:-virtio_blk}"
    equal "the number of queues of $disk" "$(queues "$disk")" "$wanted"
    equal "the size of $disk" "$(blockdev --getsize64 "/dev/$disk")" $((64 << 20))

    # One job on each CPU, hence requests on every queue.
    echo 2 >"/sys/block/$disk/queue/nomerges" # one request for each read
    for queue in $(seq 0 $((wanted - 1))); do interrupts "$disk" "$queue"; done >/tmp/calls
    before=$(ios "$disk")
    drive "$disk" --ioengine=libaio --rw=randread --bs=4k --iodepth=8 --size=4M --offset_increment=16M \
        --numjobs=4 --cpus_allowed=0-3 --cpus_allowed_policy=split
    completed=$(($(ios "$disk") - before))
    between "the number of requests completed" "$completed" 4096 4200

    # A call tells of at least one completion.
    queue=0
    while read -r calls; do
        calls=$(($(interrupts "$disk" $queue) - calls))
        between "the number of calls of queue $queue" "$calls" 1 "$completed"
        queue=$((queue + 1))
    done </tmp/calls
    # A few more calls come when a device starts.
    between "the number of all calls" "$(all_interrupts "$disk")" "$wanted" $(($(ios "$disk") + 16))
done
