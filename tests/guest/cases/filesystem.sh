# A file system on each of the disks DISKS keeps a tree of files: made, filled, checked, mounted again.
tree=/tmp/tree
mkdir -p $tree/small
cp -a /bin /lib /modules $tree
head -c $((24 << 20)) /dev/urandom >$tree/random
for i in $(seq 300); do echo "file $i" >"$tree/small/$i"; done
sums() { (cd "$1" && find . -type f | sort | xargs sha256sum); }
sums $tree >/tmp/wanted
between "the number of files" "$(wc -l </tmp/wanted)" 310 1000

for disk in $DISKS; do
    echo "write back" >/sys/block/$disk/cache_type # some servers begin without a cache, hence without flushes
    flushes=$(stat_field $disk 16)
    mkfs.ext4 -q /dev/$disk
    mount /dev/$disk /mnt
    cp -a $tree /mnt/tree
    umount /mnt
    between "the number of flushes of $disk" $(($(stat_field $disk 16) - flushes)) 1 100000
    e2fsck -f -n /dev/$disk || fail "the file system on $disk is damaged"

    mount /dev/$disk /mnt # with nothing of it in the page cache
    sums /mnt/tree >/tmp/got
    cmp /tmp/wanted /tmp/got || fail "files on $disk changed"
    umount /mnt
    echo "ok: all files on $disk are what they were"
done
say "full" # the host looks how much the servers hold
hear

# Removed files give their space back, and the file system is still whole.
for disk in $DISKS; do
    mount /dev/$disk /mnt
    rm -r /mnt/tree
    sync
    discards=$(stat_field $disk 12)
    fstrim -v /mnt
    between "the number of discards of $disk" $(($(stat_field $disk 12) - discards)) 1 100000
    umount /mnt
    e2fsck -f -n /dev/$disk || fail "the file system on $disk is damaged after fstrim"
done
say "trimmed"
hear
