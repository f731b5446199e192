# Disks that fail tell the guest so, and go on with what they can still do. The script drives:
#   vda  a file of 32 MiB that has room for 4 MiB
#   vdb  memory; every flush but the first fails
#   vdc  memory; of the second write only 512 bytes are stored
#   vdd  a file whose file system fails when the host says so
put() { dd if=/tmp/noise of="/dev/$1" bs="$2" count="$3" seek="${4:-0}" oflag=direct 2>/tmp/put; }
put_and_flush() { dd if=/tmp/noise of="/dev/$1" bs=4k count=1 conv=fsync 2>/tmp/put; }
dd if=/dev/urandom of=/tmp/noise bs=1M count=8 2>/dev/null

put vda 64k 16 || fail "there is room for a mebibyte"
refused "to write more than there is room for" put vda 64k 128 16
head -c $((1 << 20)) /tmp/noise | sha256sum | cut -d' ' -f1 >/tmp/wanted
equal "what was written before" "$(checksum vda 1)" "$(cat /tmp/wanted)"
blkdiscard -o 1M -l 30M /dev/vda
put vda 64k 16 16 || fail "there is room again"
equal "what was written after" "$(checksum vda 1 1)" "$(cat /tmp/wanted)"

put_and_flush vdb || fail "the first flush fails"
refused "the second flush" put_and_flush vdb
refused "the third flush" put_and_flush vdb
put vdb 4k 1 || fail "a write without a flush fails"

put vdc 4k 1 || fail "the first write fails"
refused "the torn write" put vdc 4k 1 1
dd if=/tmp/noise of=/tmp/wanted bs=512 count=1 2>/dev/null
dd if=/dev/vdc of=/tmp/got bs=512 count=1 skip=8 iflag=direct 2>/dev/null
cmp /tmp/wanted /tmp/got || fail "not even its first 512 bytes are there"
put vdc 4k 1 1 || fail "it fails when it is repeated"

put_and_flush vdd || fail "a flush fails before anything is wrong"
say "steady"
hear
refused "the flush of a file system that failed" put_and_flush vdd
refused "the next flush" put_and_flush vdd
refused "a write to it" put vdd 4k 1
