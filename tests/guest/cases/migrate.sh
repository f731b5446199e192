# The guest that migrates: it goes on writing, reading and verifying until it is told that it was enough.
#
# Reads keep the device writing to its memory, which is what may be lost on the way: at any moment many of
# them have ended and are not yet verified. Each round of writes has a seed of its own, so that nothing older
# passes for new.
drive vda --rw=write --bs=64k --offset=32M --size=32M --verify=crc32c --do_verify=0

(hear && touch /tmp/over) &

until_over() {
    round=0
    while [ ! -e /tmp/over ]; do
        round=$((round + 1))
        fio --filename=/dev/vda --direct=1 --thread --ioengine=libaio --iodepth=32 --verify=crc32c --verify_fatal=1 \
            --randseed="$round" --output="/tmp/$1" --name="$@" || {
            tail -n 40 "/tmp/$1"
            fail "the $1, in round $round"
        }
        say "$1: round $round"
    done
}

until_over reader --rw=randread --bs=64k --offset=32M --size=32M --loops=8 &
reader=$!
until_over writer --rw=randwrite --bs=4k --size=8M --do_verify=1 &
writer=$!
wait "$writer"
wait "$reader"
