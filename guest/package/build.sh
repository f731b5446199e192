#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Builds pollux-blk-dkms_VERSION_all.deb: the driver's source for DKMS, the switch and the statistics, and what the
# initramfs needs.
#
#   build.sh FOLDER
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
source=$(dirname "$here")
output=$1
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"$/\1/p' "$source/dkms.conf")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

install -D -m 644 -t "$root/usr/src/pollux-blk-$version" "$source"/{Kbuild,Makefile,dkms.conf} "$source"/*.[ch]
install -D -m 755 -t "$root/usr/sbin" "$source"/pollux-blk-{switch,stat}
install -D -m 755 "$here/hook" "$root/usr/share/initramfs-tools/hooks/pollux-blk"
install -D -m 755 "$here/at-boot" "$root/usr/share/initramfs-tools/scripts/local-top/pollux-blk"
install -D -m 644 "$source/README.md" "$root/usr/share/doc/pollux-blk-dkms/README.md"
install -D -m 755 -t "$root/DEBIAN" "$here"/{postinst,prerm,postrm}
sed -i "s/@VERSION@/$version/" "$root/DEBIAN"/{postinst,prerm}
cat >"$root/DEBIAN/control" <<END
Package: pollux-blk-dkms
Version: $version
Architecture: all
Section: kernel
Priority: optional
Maintainer: The Pollux developers <pollux@localhost>
Depends: dkms
Recommends: initramfs-tools
Description: virtio block driver whose queues are polled and interrupt-driven at once
 Nothing changes by its installation: every disk stays with virtio_blk until pollux-blk-switch says otherwise.
END
dpkg-deb --root-owner-group --build "$root" "$output/pollux-blk-dkms_${version}_all.deb"
