# Disks that QEMU serves itself: vda with packed rings, vdb with what a BIOS asks for (its geometry) and blocks of 512
# bytes on 4096.
bits=$(cat /sys/block/vda/device/features) # one digit a bit, bit 0 first
equal "RING_PACKED of vda" "$(printf '%s' "$bits" | cut -c35)" 1
for depth in 1 32; do
    fio --direct=1 --thread --rw=randrw --size=8M --verify=crc32c --verify_fatal=1 --filename=/dev/vda --output=/tmp/fio \
        --name=plain --ioengine=libaio --iodepth=$depth --bs=4k-64k \
        --name=polled --ioengine=io_uring --hipri --iodepth=$depth --bs=4k-64k --offset=32M || {
        tail -n 40 /tmp/fio
        fail "both modes at once, packed, $depth in flight"
    }
    echo "ok: both modes at once, packed, $depth in flight"
done
before=$(all_interrupts vda)
drive vda --ioengine=io_uring --hipri --rw=randread --bs=4k --iodepth=4 --size=16M --number_ios=2048
between "the number of interrupts of polled reads" $(($(all_interrupts vda) - before)) 0 40

equal "the serial of vdb" "$(cat /sys/block/vdb/serial)" "qemu-serves"
equal "the logical blocks of vdb" "$(cat /sys/block/vdb/queue/logical_block_size)" 512
equal "the physical blocks of vdb" "$(cat /sys/block/vdb/queue/physical_block_size)" 4096
equal "the smallest request that pays" "$(cat /sys/block/vdb/queue/minimum_io_size)" 4096
equal "the best request" "$(cat /sys/block/vdb/queue/optimal_io_size)" 65536
equal "the geometry of vdb" "$(fdisk -l /dev/vdb | sed -n 's/.* \([0-9]*\) heads, \([0-9]*\) sectors.*/\1 \2/p' | head -n 1)" "$GEOMETRY"
