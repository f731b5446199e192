# Loses its server in the middle of reads. virtio_blk waits for ever for one that is in flight; the rest of the guest
# goes on.
while dd if=/dev/vda of=/dev/null bs=4k count=64 iflag=direct 2>/dev/null; do :; done &
say reading
hear
dd if=/dev/zero of=/tmp/file bs=1M count=16 2>/dev/null || fail "files cannot be written"
say "it goes on"
