# The guest that gets the disk of killed.sh next, from the same server process.
e2fsck -p /dev/vda || [ $? = 1 ] || fail "the journal cannot be replayed"
e2fsck -f -n /dev/vda || fail "the file system is damaged"
mount /dev/vda /mnt
between "the number of files kept" "$(wc -l </mnt/sums)" 10 1000
(cd /mnt/kept && sha256sum -c /mnt/sums) >/tmp/sums || fail "files changed: $(grep -v OK /tmp/sums)"
echo "ok: all files are what they were"

# Every block is a whole one, of before or of the storm.
part="--ioengine=libaio --offset=256M --size=32M --bs=4k --verify=crc32c"
drive vda --rw=read $part --verify_fatal=1
drive vda --rw=randrw $part --iodepth=32 --verify_fatal=1
say "steady"
hear
umount /mnt
