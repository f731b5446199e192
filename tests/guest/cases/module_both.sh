# Both drivers at once: virtio_blk has three disks, one of them mounted; one of the others goes to pollux_blk and back,
# again and again. The switch refuses what is in use.
driver_of() { basename "$(readlink "/sys/block/$1/device/driver")"; }
switch=/run/pollux-blk-switch

mkfs.ext4 -q /dev/vda
mount /dev/vda /mnt
insmod /run/pollux_blk.ko
for disk in vda vdb vdc; do equal "the driver of $disk once both are loaded" "$(driver_of $disk)" virtio_blk; done
refused "switching a disk that is mounted" sh $switch vda pollux_blk
refused "switching a disk that is not there" sh $switch vdz pollux_blk
sleep 1000 9</dev/vdb &
opener=$!
refused "switching a disk that a program has open" sh $switch vdb pollux_blk
grep -q "/proc/$opener/fd/9" /tmp/refused || fail "the program that has it open is not named"
kill $opener
wait $opener || true
mkfs.ext4 -q -O journal_dev /dev/vdb
mkfs.ext4 -q -J device=/dev/vdb /dev/vdc
mkdir /run/journaled
mount /dev/vdc /run/journaled
refused "switching a disk that holds a journal" sh $switch vdb pollux_blk
grep -q exclusively /tmp/refused || fail "the journal is not seen"
umount /run/journaled
equal "the driver of the mounted disk" "$(driver_of vda)" virtio_blk

(while [ ! -e /run/enough ]; do
    dd if=/dev/urandom of=/mnt/file bs=1M count=4 2>/dev/null
    sha256sum </mnt/file >/run/sum
    sync
    [ "$(sha256sum </mnt/file)" = "$(cat /run/sum)" ] || { touch /run/damaged; break; }
done) &
busy=$!
fill vdb 8
contents=$(checksum vdb 8)
for round in $(seq $((less > 1 ? 2 : 5))); do
    for driver in pollux_blk virtio_blk; do
        sh $switch vdb $driver
        equal "the driver of vdb in round $round" "$(driver_of vdb)" $driver
        equal "its contents" "$(checksum vdb 8)" "$contents"
    done
done
sh $switch "serial=third" pollux_blk
equal "the driver of the disk with that serial" "$(driver_of vdc)" pollux_blk
touch /run/enough
wait $busy
[ ! -e /run/damaged ] || fail "the mounted disk was damaged"
umount /mnt
e2fsck -fn /dev/vda

# A disk that comes later, and whose name virtio_blk believes to be free, is not lost: ours takes it with the next name.
sh $switch vda pollux_blk
equal "the driver of vda" "$(driver_of vda)" pollux_blk
device=$(virtio_name vdb)
echo "$device" >/sys/bus/virtio/drivers/virtio_blk/unbind
echo "$device" >/sys/bus/virtio/drivers_probe
equal "the driver of the disk that virtio_blk has no name for" "$(driver_of vdb)" pollux_blk
sh $switch --all virtio_blk
for disk in vda vdb vdc; do equal "the driver of $disk in the end" "$(driver_of $disk)" virtio_blk; done
rmmod pollux_blk
quiet
