# device-mapper over three of our disks polls end to end, and takes no interrupt for it.
export DM_DISABLE_UDEV=1
sectors=$((256 << 11))
# table KIND
table() {
    case $1 in
    linear) for n in 0 1 2; do echo "$((n * sectors)) $sectors linear /dev/vd$(echo abc | cut -c$((n + 1))) 0"; done ;;
    striped) echo "0 $((3 * sectors)) striped 3 128 /dev/vda 0 /dev/vdb 0 /dev/vdc 0" ;;
    esac
}
for kind in linear striped; do
    table $kind | dmsetup create stack
    equal "io_poll of $kind" "$(cat "/sys/block/dm-0/queue/io_poll")" 1
    before=$(interrupts_of_all)
    drive mapper/stack --rw=randread --bs=4k --ioengine=io_uring --hipri --iodepth=16 --number_ios=$((8192 / less))
    between "interrupts of polled reads, $kind" "$(($(interrupts_of_all) - before))" 0 80
    for disk in vda vdb vdc; do
        [ "$(told polled $disk)" -gt $((2000 / less)) ] || fail "$disk was not polled"
    done
    drive mapper/stack --rw=randrw --bs=4k-256k --size=600m --io_size=$((48 / less))m --ioengine=io_uring --hipri --iodepth=16 --verify=crc32c \
        --do_verify=1
    dmsetup remove stack
done
quiet
