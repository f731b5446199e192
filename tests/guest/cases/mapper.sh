# Device-mapper over the legs of a disk that our own stack has written: it finds each byte where it belongs, and
# what it writes, the host looks for through our stack.
# TABLE: what to map. CONTENTS: the checksum of all of it. MIB: its size.
export DM_DISABLE_UDEV=1
echo "$TABLE" | dmsetup create stack
equal "the contents, through device-mapper" "$(checksum mapper/stack)" "$CONTENTS"
fill mapper/stack "$MIB"
say "wrote $(checksum mapper/stack)"
dmsetup table stack | sed 's/^/guest: table /'
dmsetup remove stack
