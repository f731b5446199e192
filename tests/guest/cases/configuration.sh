# The guest sees what the server was told: vda is read-only and has a SERIAL, vdb has blocks of 4096 bytes.
# CONTENTS: the sha256 of vda. CACHE: the mode in which a cache begins.
equal "the serial number" "$(cat /sys/block/vda/serial)" "$SERIAL"
equal "whether vda is read-only" "$(blockdev --getro /dev/vda)" 1
equal "the contents of vda" "$(checksum vda)" "$CONTENTS"
refused "writing to vda" dd if=/dev/zero of=/dev/vda bs=4k count=1 oflag=direct
refused "discarding on vda" blkdiscard -o 0 -l 1M /dev/vda
equal "the contents of vda" "$(checksum vda)" "$CONTENTS"

equal "whether vdb is read-only" "$(blockdev --getro /dev/vdb)" 0
equal "the block size of vdb" "$(blockdev --getss /dev/vdb)" 4096
equal "the size of vdb" "$(blockdev --getsize64 /dev/vdb)" $((64 << 20))
# By fio: busybox's dd writes without O_DIRECT where it is refused with it.
refused "writing half a block" fio --name=half --filename=/dev/vdb --direct=1 --rw=write --bs=512 --size=512
drive vdb --ioengine=libaio --rw=randrw --bs=4k --iodepth=32 --size=8M --verify=crc32c --verify_fatal=1

# The driver writes to the configuration space to switch the cache, then reads back what came of it.
equal "the cache of vdb" "$(cat /sys/block/vdb/cache_type)" "$CACHE"
echo "write through" >/sys/block/vdb/cache_type
equal "the cache of vdb" "$(cat /sys/block/vdb/cache_type)" "write through"
flushes=$(stat_field vdb 16)
dd if=/dev/zero of=/dev/vdb bs=4k count=1 conv=fsync 2>/dev/null
equal "the number of flushes in write-through mode" $(($(stat_field vdb 16) - flushes)) 0
echo "write back" >/sys/block/vdb/cache_type
equal "the cache of vdb" "$(cat /sys/block/vdb/cache_type)" "write back"
dd if=/dev/zero of=/dev/vdb bs=4k count=1 conv=fsync 2>/dev/null
between "the number of flushes in write-back mode" $(($(stat_field vdb 16) - flushes)) 1 10
