# Discarded and zeroed ranges read as zeroes, and nothing beside them changes. vda is a file, vdb memory.
# Of each disk's 128 MiB: 0..8 stays, 8..104 is discarded, 104..112 zeroed, 112..120 zeroed by fallocate in
# two ways, 120..128 stays.
for disk in vda vdb; do
    between "discard_max_bytes of $disk" "$(cat /sys/block/$disk/queue/discard_max_bytes)" 4096 $((1 << 40))
    between "write_zeroes_max_bytes of $disk" "$(cat /sys/block/$disk/queue/write_zeroes_max_bytes)" 4096 $((1 << 40))
    fill $disk 128
done
sync
first=$(checksum vda 8) last=$(checksum vda 8 120)
first_b=$(checksum vdb 8) last_b=$(checksum vdb 8 120)

say "written" # the host looks how much the servers hold
hear
for disk in vda vdb; do
    discards=$(stat_field $disk 12)
    blkdiscard -o 8M -l 96M /dev/$disk
    between "the number of discards of $disk" $(($(stat_field $disk 12) - discards)) 1 10000
done
say "discarded"
hear

for disk in vda vdb; do
    writes=$(stat_field $disk 5)
    blkdiscard -z -o 104M -l 8M /dev/$disk
    fallocate -z -o 112M -l 4M /dev/$disk
    fallocate -p -o 116M -l 4M /dev/$disk
    # Were zeroes written as data, these would be many requests of at most 1 MiB or so each.
    between "the number of requests to zero 16 MiB of $disk" $(($(stat_field $disk 5) - writes)) 3 8
    equal "the discarded part of $disk" "$(checksum $disk 96 8)" "$(zeroes 96)"
    equal "the zeroed part of $disk" "$(checksum $disk 16 104)" "$(zeroes 16)"
done
equal "what lies before on vda" "$(checksum vda 8)" "$first"
equal "what lies behind on vda" "$(checksum vda 8 120)" "$last"
equal "what lies before on vdb" "$(checksum vdb 8)" "$first_b"
equal "what lies behind on vdb" "$(checksum vdb 8 120)" "$last_b"

# One block of 512 bytes among others.
dd if=/dev/urandom of=/tmp/three bs=512 count=3 2>/dev/null
dd if=/tmp/three of=/dev/vdb bs=512 count=3 oflag=direct 2>/dev/null
blkdiscard -z -o 512 -l 512 /dev/vdb
dd if=/dev/zero of=/tmp/three bs=512 count=1 seek=1 conv=notrunc 2>/dev/null
dd if=/dev/vdb of=/tmp/got bs=512 count=3 iflag=direct 2>/dev/null
cmp /tmp/three /tmp/got || fail "zeroing one block touched its neighbours"
