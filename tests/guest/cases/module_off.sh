# The machine goes off under load of both kinds: it ends, and the driver does not take that for a fault of the device.
for kind in "io_uring --hipri" libaio; do
    fio --name=load --filename=/dev/vda --direct=1 --rw=randread --bs=4k --size=64m --ioengine=$kind --iodepth=16 \
        --time_based --runtime=600 --output=/dev/null 2>/dev/null &
done
asked=$(told polled)
while [ "$(told polled)" -lt $((asked + 2000 / less)) ]; do :; done
plain=$(($(told requests) - $(told polled)))
while [ $(($(told requests) - $(told polled))) -lt $((plain + 200 / less)) ]; do :; done
quiet
