# A device that allows more segments, of a page at most, than its ring has descriptors. A request takes up no more.
most=$(cat /sys/block/vda/queue/max_segments)
echo $((most * 4 + 64)) >/sys/block/vda/queue/max_sectors_kb 2>/dev/null || true
between "segments" "$most" 16 254
dd if=/dev/urandom of=/tmp/data bs=1M count=4 iflag=fullblock 2>/dev/null
dd if=/tmp/data of=/dev/vda bs=4M count=1 iflag=fullblock oflag=direct 2>/dev/null || fail "the write"
equal "the data" "$(dd if=/dev/vda bs=4M count=1 iflag=direct,fullblock 2>/dev/null | sha256sum)" "$(sha256sum </tmp/data)"
quiet
