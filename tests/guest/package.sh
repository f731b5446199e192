#!/bin/bash
# Installs the package of our own driver on a Debian of its own, as dpkg, DKMS and initramfs-tools do it, and makes an
# initramfs there: this machine seen through an overlay, of which nothing is left, with a stock kernel's modules. As
# root.
#
#   package.sh DEBS KERNEL CHOSEN OUTPUT
#
# DEBS: a folder of packages to be unpacked first. KERNEL: lib/modules/VERSION, and its headers in build. CHOSEN: the
# lines of /etc/pollux-blk.conf, with commas. OUTPUT: the initramfs.
set -euo pipefail

if [ "${1:-}" != inside ]; then exec unshare --mount "$0" inside "$@"; fi
shift
debs=$(realpath "$1") kernel=$(realpath "$2") chosen=$3 output=$(realpath -m "$4")
here=$(cd "$(dirname "$0")" && pwd)
version=$(basename "$kernel"/lib/modules/*)
work=$(mktemp -d)
mount -t tmpfs -o size=2G tmpfs "$work"
trap 'umount -R "$work/root" 2>/dev/null; umount "$work"; rmdir "$work"' EXIT
mkdir "$work"/{up,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/up,workdir=$work/work" "$work/root"
mount -t proc proc "$work/root/proc"
mount --rbind /dev "$work/root/dev"
inside() { chroot "$work/root" env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

mkdir "$work/root/mnt/packages"
cp "$debs"/*.deb "$work/root/mnt/packages/"
# Unpacked only: what their scripts would set up belongs to a machine that boots. Their configuration then waits for
# them.
inside sh -c 'dpkg --force-all --unpack /mnt/packages/*.deb' >/dev/null
find "$work/root/etc" -name '*.dpkg-new' | while read -r file; do mv "$file" "${file%.dpkg-new}"; done
mkdir -p "$work/root/usr/lib/modules" "$work/root/boot"
cp -r "$kernel/lib/modules/$version" "$work/root/usr/lib/modules/"
ln -sfn "$(readlink -f "$kernel/build")" "$work/root/usr/lib/modules/$version/build"
cp "$kernel/build/.config" "$work/root/boot/config-$version"
inside depmod "$version"

"$here/../../guest/package/build.sh" "$work/root/mnt/packages" >/dev/null
inside sh -c 'dpkg --force-depends -i /mnt/packages/pollux-blk-dkms_*.deb'
inside dkms status pollux-blk
inside modinfo -k "$version" pollux_blk | grep -q '^filename:.*/updates/dkms/' || { echo "the module is not installed" >&2; exit 1; }
tr ',' '\n' <<<"$chosen" >"$work/root/etc/pollux-blk.conf"
inside mkinitramfs -c gzip -o /mnt/initrd "$version"
cp "$work/root/mnt/initrd" "$output"

# It goes without a trace but what was said for the next boot.
inside dpkg --force-depends -r pollux-blk-dkms
! inside modinfo -k "$version" pollux_blk 2>/dev/null || { echo "the module is still there" >&2; exit 1; }
[ ! -e "$work/root/usr/sbin/pollux-blk-switch" ] || { echo "the switch is still there" >&2; exit 1; }
