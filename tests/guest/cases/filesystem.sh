# A file system keeps a tree of files: made, filled, checked, mounted again.
tree=/tmp/tree
mkdir -p $tree/small
cp -a /bin /lib /modules $tree
head -c $((24 << 20)) /dev/urandom >$tree/random
for i in $(seq 300); do echo "file $i" >"$tree/small/$i"; done
sums() { (cd "$1" && find . -type f | sort | xargs sha256sum); }
sums $tree >/tmp/wanted
between "the number of files" "$(wc -l </tmp/wanted)" 310 1000

echo "write back" >/sys/block/vda/cache_type # some servers begin without a cache, hence without flushes
mkfs.ext4 -q /dev/vda
mount /dev/vda /mnt
cp -a $tree /mnt/tree
umount /mnt
between "the number of flushes" "$(stat_field vda 16)" 1 100000
e2fsck -f -n /dev/vda || fail "the file system is damaged"

mount /dev/vda /mnt # with nothing of it in the page cache
sums /mnt/tree >/tmp/got
cmp /tmp/wanted /tmp/got || fail "files changed"
echo "ok: all files are what they were"

# Removed files give their space back, and the file system is still whole.
rm -r /mnt/tree
discards=$(stat_field vda 12)
fstrim -v /mnt
between "the number of discards" $(($(stat_field vda 12) - discards)) 1 100000
umount /mnt
e2fsck -f -n /dev/vda || fail "the file system is damaged after fstrim"
