#!/bin/bash
# Builds a User-Mode Linux kernel, which runs as a process at native speed and speaks vhost-user, and its modules.
#
#   build.sh SOURCE-TARBALL OUTPUT [FRAGMENT…]
#
# FRAGMENT is a configuration on top of the common one in `config`.
#
# OUTPUT gets `linux`, `virtio_blk.ko`, and in `build/` what other modules are built with. Three minutes on two
# processors.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
tarball=$1 output=$2
shift 2
work=$(dirname "$tarball")/uml-build
mkdir -p "$work"/{source,kernel} "$output"

tar --extract --file "$tarball" --directory "$work/source" --strip-components 1
patch --quiet --strip 1 --directory "$work/source" < <(cat "$here"/*.patch)
kernel=(make -s -C "$work/source" ARCH=um "O=$work/kernel")
"${kernel[@]}" tinyconfig >/dev/null
(cd "$work/kernel" && "$work/source/scripts/kconfig/merge_config.sh" -m .config "$here/config" "$@" >/dev/null)
"${kernel[@]}" olddefconfig
# What merge_config could not set is left out silently; the tests need these.
for option in $(cat "$here/config" "$@" | sed -n 's/^\(CONFIG_[A-Z0-9_]*\)=y$/\1/p'); do
    grep -q "^$option=y" "$work/kernel/.config" || { echo "the kernel lacks $option" >&2; exit 1; }
done
"${kernel[@]}" -j"$(nproc)" linux modules

strip -o "$output/linux" "$work/kernel/linux"
cp "$work/kernel/drivers/block/virtio_blk.ko" "$output/"

# Of the sources, modules need the headers and the build's own scripts.
rm -rf "$output/build"
mkdir -p "$output/build"
(cd "$work" && tar --create source/{Makefile,Kbuild,include,scripts} source/arch/{um,x86/um} \
    source/arch/x86/{include,Makefile*} kernel/{.config,Makefile,Module.symvers,include,scripts} \
    kernel/arch/{um,x86}/include) | tar --extract --directory "$output/build"
