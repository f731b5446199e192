# Queues of every size, each filled to the brim.
# SIZES: of the queue of vda, vdb, … in turn.
set -- $SIZES
for disk in vda vdb vdc vdd; do
    equal "the number of tags of $disk" "$(cat "/sys/block/$disk/mq/0/nr_tags")" "$1"
    drive $disk --ioengine=libaio --rw=randwrite --bs=4k --iodepth=$((2 * $1)) --size=16M \
        --verify=crc32c --verify_fatal=1
    drive $disk --ioengine=libaio --rw=randwrite --bs=256k --iodepth=$(($1 / 8)) --size=16M --offset=16M \
        --verify=crc32c --verify_fatal=1
    between "the number of calls" "$(all_interrupts $disk)" 1 $(($(ios $disk) + 16))
    shift
done
