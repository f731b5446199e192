# What every guest script starts with. It runs in busybox's sh, so: no bashisms.
set -eu

# busybox's sh prefers its own applets to what is on the PATH, and some of them can do too little.
for tool in blkdiscard blockdev fallocate fstrim; do
    eval "$tool() { /bin/$tool \"\$@\"; }"
done

# fail WORD…: ends the script; the host shows the console.
fail() {
    echo "FAIL: $*"
    exit 1
}

# say WORD…: a line on the console the host can wait for.
say() { echo "guest: $*"; }

# hear: waits for a line from the host (which the console echoes).
hear() { read -r _ </dev/console; }

# equal WHAT GOT WANTED
equal() {
    [ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"
    echo "ok: $1 is $2"
}

# between WHAT GOT LOWEST HIGHEST
between() {
    { [ "$2" -ge "$3" ] && [ "$2" -le "$4" ]; } || fail "$1 is $2, not within $3..$4"
    echo "ok: $1 is $2, within $3..$4"
}

# refused WHAT COMMAND…: the command must not succeed.
refused() {
    what=$1
    shift
    if "$@" 2>/tmp/refused; then fail "$what succeeded"; fi
    echo "ok: $what is refused: $(tail -n 1 /tmp/refused)"
}

# stat_field DISK N: the Nth number of /sys/block/DISK/stat (1 reads, 5 writes, 12 discards, 16 flushes).
stat_field() { awk -v n="$2" '{ print $n }' "/sys/block/$1/stat"; }

# virtio_name DISK: what /proc/interrupts calls its device, e.g. virtio0.
virtio_name() { basename "$(readlink -f "/sys/block/$1/device")"; }

# interrupts DISK QUEUE: how often the queue's interrupt has fired, over all CPUs.
interrupts() {
    awk -v name="$(virtio_name "$1")-req.$2" '
        $NF == name { for (i = 2; $i ~ /^[0-9]+$/; i++) sum += $i; found = 1 }
        END { if (found) print sum; else print "none" }' /proc/interrupts
}

# queues DISK: the number of its hardware queues.
queues() { ls "/sys/block/$1/mq" | wc -l; }

# all_interrupts DISK: the same over all its queues.
all_interrupts() {
    awk -v name="$(virtio_name "$1")-req" '
        index($NF, name) == 1 { for (i = 2; $i ~ /^[0-9]+$/; i++) sum += $i }
        END { print sum + 0 }' /proc/interrupts
}

# ios DISK: reads, writes, discards and flushes completed.
ios() { awk '{ print $1 + $5 + $12 + $16 }' "/sys/block/$1/stat"; }

# checksum DISK [MIB [SKIP-MIB]]: sha256 of (a part of) a disk, read past the page cache.
checksum() {
    dd if="/dev/$1" bs=1M iflag=direct ${2:+count="$2"} ${3:+skip="$3"} 2>/dev/null | sha256sum | cut -d' ' -f1
}

# zeroes MIB: what checksum says of so many zero bytes.
zeroes() { head -c $(($1 << 20)) /dev/zero | sha256sum | cut -d' ' -f1; }

# fill DISK MIB [SKIP-MIB]: writes random bytes to a part of a disk, and has them stored.
fill() {
    dd if=/dev/urandom of="/dev/$1" bs=1M iflag=fullblock oflag=direct conv=fsync count="$2" seek="${3:-0}" 2>/dev/null
}

# drive DISK OPTION…: one run of fio with direct I/O; any error fails the test.
drive() {
    disk=$1
    shift
    fio --name="$disk" --filename="/dev/$disk" --direct=1 --thread --group_reporting --output=/tmp/fio "$@" || {
        tail -n 40 /tmp/fio
        fail "fio on $disk: $*"
    }
    echo "ok: fio on $disk: $*"
}
