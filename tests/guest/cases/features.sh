# Disks whose features the frontend leaves out work all the same.
# FEATURES: for vda, vdb, … INDIRECT:EVENT_IDX, each 0 or 1, as negotiated.
set -- $FEATURES
for disk in vda vdb vdc; do
    bits=$(cat "/sys/block/$disk/device/features") # one digit a bit, bit 0 first
    equal "INDIRECT_DESC of $disk" "$(printf '%s' "$bits" | cut -c29)" "${1%:*}"
    equal "EVENT_IDX of $disk" "$(printf '%s' "$bits" | cut -c30)" "${1#*:}"
    equal "VERSION_1 of $disk" "$(printf '%s' "$bits" | cut -c33)" 1
    shift
    # More requests than a small ring holds, then requests of as many segments as it takes.
    drive $disk --ioengine=libaio --rw=randrw --bs=4k --iodepth=32 --numjobs=2 --size=8M --offset_increment=8M \
        --verify=crc32c --verify_fatal=1
    drive $disk --ioengine=io_uring --rw=randwrite --bs=1M --iodepth=4 --size=32M --offset=16M \
        --verify=crc32c --verify_fatal=1
    between "the number of calls" "$(all_interrupts $disk)" 1 $(($(ios $disk) + 16))
done
