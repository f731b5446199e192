# Secure erase, of a device that allows ranges of 64 KiB: what was asked for is erased, and nothing beside it.
dd if=/dev/urandom of=/dev/vda bs=1M count=1 iflag=fullblock oflag=direct 2>/dev/null
part() { dd if=/dev/vda bs=64k iflag=direct skip="$1" count="$2" 2>/dev/null | sha256sum | cut -d' ' -f1; }
before=$(part 0 1) after=$(part 5 11)
command blkdiscard --secure --offset 64k --length 256k /dev/vda
equal "what was erased" "$(part 1 4)" "$(head -c 256k /dev/zero | sha256sum | cut -d' ' -f1)"
equal "what is before it" "$(part 0 1)" "$before"
equal "what is behind it" "$(part 5 11)" "$after"
drive vda --rw=randrw --bs=4k --size=512k --ioengine=io_uring --hipri --iodepth=8 --verify=crc32c --do_verify=1
quiet
