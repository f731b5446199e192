# Reads until the disk is gone: a read then fails or comes back empty. It never hangs, in flight or not.
say reading
while [ "$(dd if=/dev/vda bs=4k count=64 iflag=direct 2>/dev/null | wc -c)" = 262144 ]; do :; done
say "the disk is gone"
