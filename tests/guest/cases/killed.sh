# The guest whose QEMU gets killed while it writes. The disk has 512 MiB: a file system in the first half,
# blocks with fio's headers in the 32 MiB from 256 MiB on.
mkfs.ext4 -q /dev/vda 256M
mount /dev/vda /mnt
mkdir /mnt/kept
cp -a /bin /lib /mnt/kept
head -c $((8 << 20)) /dev/urandom >/mnt/kept/random
(cd /mnt/kept && find . -type f | sort | xargs sha256sum) >/mnt/sums
sync

part="--ioengine=libaio --offset=256M --size=32M --bs=4k --verify=crc32c --do_verify=0"
drive vda --rw=write $part --iodepth=32 --numjobs=1
say "steady" # the host counts the server's fds and threads
hear

before=$(stat_field vda 5)
fio --name=storm --filename=/dev/vda --direct=1 --rw=randwrite --iodepth=32 --loops=100000 \
    --serialize_overlap=1 $part >/tmp/storm 2>&1 &
while :; do
    cp -r /modules /mnt/churn
    sync
    rm -r /mnt/churn
done &
until [ $(($(stat_field vda 5) - before)) -gt 2000 ]; do :; done
say "writing"
wait
say "the storm ended" # it never does: QEMU is killed before
