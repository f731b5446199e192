#!/bin/bash
# Builds the base initrd of one kernel: the programs and modules a guest needs, and nothing that says
# what the guest does. That (/init, /test.sh) each test appends as a small archive of its own, so a
# changed script never asks for a new initrd.
#
#   build-initrd.sh MODULES-DIR STATIC-FIO OUTPUT
set -euo pipefail

modules_dir=$1 fio=$2 output=$3

# In the order in which they are to be loaded; what is built into a kernel is left out for it.
modules=(virtio_pci virtio_blk crc32c_generic ext4 dm_mod)

programs=(
    /usr/sbin/{mkfs.ext4,e2fsck,tune2fs,debugfs,resize2fs,blkdiscard,blockdev,fstrim}
    /usr/bin/{fallocate,perl}
)

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,dev,proc,sys,mnt,tmp,run,modules,etc}
: >"$root/etc/mtab"

# find_program PATH: PATH, or the same below /, for machines whose /usr is not merged.
find_program() {
    if [ -e "$1" ]; then echo "$1"; else echo "${1#/usr}"; fi
}

# add_libraries PROGRAM: what the dynamic linker would load for it, under the same paths.
add_libraries() {
    local library
    ldd "$1" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root/$(dirname "$library")"
        cp -nL "$library" "$root/$library"
    done
}

busybox=$(find_program /usr/bin/busybox)
cp -L "$busybox" "$root/bin/busybox"
"$busybox" --list | grep -vx busybox | while read -r applet; do ln -sf busybox "$root/bin/$applet"; done

# After busybox, whose applets of the same names they replace.
for program in "${programs[@]}"; do
    program=$(find_program "$program")
    rm -f "$root/bin/$(basename "$program")"
    cp -L "$program" "$root/bin/"
    add_libraries "$program"
done
cp "$fio" "$root/bin/fio"

# The modules, decompressed, and /modules/order: one name a line, each after those it needs.
version=$(basename "$modules_dir"/*)
base=$(dirname "$(dirname "$modules_dir")")
depmod -b "$base" "$version"
for module in "${modules[@]}"; do
    modprobe -d "$base" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r path; do
    name=$(basename "$path")
    name=${name%%.ko*}
    case $path in
    *.xz) xz -dc "$path" >"$root/modules/$name.ko" ;;
    *.zst) zstd -qdc "$path" >"$root/modules/$name.ko" ;;
    *) cp "$path" "$root/modules/$name.ko" ;;
    esac
    echo "$name" >>"$root/modules/order"
done

(cd "$root" && find . -print0 | cpio --null --quiet -o -H newc) | gzip -6 >"$output.part"
mv "$output.part" "$output"
