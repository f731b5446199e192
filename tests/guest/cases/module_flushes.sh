# A flush of the guest's is one of the device's: the test asks the device how many there were of each kind.

# counted KIND COMMAND…: the test looks before and after it.
counted() {
    kind=$1
    shift
    say "before $kind"
    hear
    "$@"
    say "after $kind"
    hear
}

# stable OPTION…: writes 64 times, and each is to be stable.
stable() { drive vda --rw=write --bs=4k --size=256k --iodepth=1 --sync=dsync "$@"; }

# What the cache holds as it is switched off would never be flushed later.
no_cache() { echo "write through" >/sys/block/vda/cache_type; }

counted plain stable --ioengine=libaio
counted polled stable --ioengine=io_uring --hipri
[ "$(told polled)" -gt 0 ] || fail "nothing was polled"
counted switched no_cache
quiet
