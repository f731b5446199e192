# Discarded and zeroed ranges of the disks DISKS read as zeroes, and nothing beside them changes.
# Of the first 32 MiB of each: 0..2 stays, 2..26 is discarded, 26..28 zeroed, 28..30 zeroed by fallocate in
# two ways, 30..32 stays.
for disk in $DISKS; do
    between "discard_max_bytes of $disk" "$(cat /sys/block/$disk/queue/discard_max_bytes)" 4096 $((1 << 40))
    between "write_zeroes_max_bytes of $disk" "$(cat /sys/block/$disk/queue/write_zeroes_max_bytes)" 4096 $((1 << 40))
    fill $disk 32
    checksum $disk 2 >/tmp/first.$disk
    checksum $disk 2 30 >/tmp/last.$disk
done

say "written" # the host looks how much the servers hold
hear
for disk in $DISKS; do
    discards=$(stat_field $disk 12)
    blkdiscard -o 2M -l 24M /dev/$disk
    between "the number of discards of $disk" $(($(stat_field $disk 12) - discards)) 1 10000
done
say "discarded"
hear

zeroes_24=$(zeroes 24) zeroes_4=$(zeroes 4) # once: to compute them takes longer than all the rest
for disk in $DISKS; do
    echo "write through" >/sys/block/$disk/cache_type # no flushes, which would count as writes
    writes=$(stat_field $disk 5)
    blkdiscard -z -o 26M -l 2M /dev/$disk
    fallocate -z -o 28M -l 1M /dev/$disk
    fallocate -p -o 29M -l 1M /dev/$disk
    # One each; written as data, these zeroes would be more requests.
    equal "the number of requests to zero three ranges of $disk" $(($(stat_field $disk 5) - writes)) 3
    equal "the discarded part of $disk" "$(checksum $disk 24 2)" "$zeroes_24"
    equal "the zeroed part of $disk" "$(checksum $disk 4 26)" "$zeroes_4"
    equal "what lies before on $disk" "$(checksum $disk 2)" "$(cat /tmp/first.$disk)"
    equal "what lies behind on $disk" "$(checksum $disk 2 30)" "$(cat /tmp/last.$disk)"

    # One block among others.
    block=$(blockdev --getss /dev/$disk)
    dd if=/dev/urandom of=/tmp/three bs=$block count=3 2>/dev/null
    dd if=/tmp/three of=/dev/$disk bs=$block count=3 oflag=direct 2>/dev/null
    blkdiscard -z -o $block -l $block /dev/$disk
    dd if=/dev/zero of=/tmp/three bs=$block count=1 seek=1 conv=notrunc 2>/dev/null
    dd if=/dev/$disk of=/tmp/got bs=$block count=3 iflag=direct 2>/dev/null
    cmp /tmp/three /tmp/got || fail "zeroing one block of $disk touched its neighbours"
done
