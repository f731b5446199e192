# vda grows twice under running I/O, from 64 to 128 and then to 192 MiB; the kernel sees it without a reconnection.
becomes() {
    for _ in $(seq 600); do
        [ "$(cat /sys/block/vda/size)" = $(($1 << 11)) ] && return
        sleep 0.1
    done
    equal "the size of vda" "$(cat /sys/block/vda/size)" $(($1 << 11))
}
equal "the size of vda" "$(cat /sys/block/vda/size)" $((64 << 11))
(
    while [ ! -e /tmp/enough ]; do
        fio --name=load --filename=/dev/vda --direct=1 --thread --ioengine=libaio --rw=randrw --bs=4k --iodepth=8 \
            --size=64M --number_ios=1000 --output=/tmp/load
    done
) &
load=$!
while [ "$(ios vda)" -lt 100 ]; do sleep 0.1; done
say "under load"
for mib in 128 192; do
    becomes $mib
    kill -0 $load || fail "the load met an error before the disk grew"
    # By fio, which finds out how large the device is.
    drive vda --ioengine=libaio --rw=write --bs=256k --iodepth=4 --offset=$((mib - 64))M --verify=crc32c --verify_fatal=1
    equal "the size of vda" "$(blockdev --getsize64 /dev/vda)" $((mib << 20))
    say "grown to $mib"
done
touch /tmp/enough
wait $load || fail "the load met an error"
