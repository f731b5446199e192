#!/bin/bash
# Installs and fetches the real peers that the tests run Pollux against.
#
#   tests/setup.sh              everything; a second run finds it all there and takes a second
#   tests/setup.sh full         that, and what only `make test-full` needs: a kernel that checks itself, and sparse
#   tests/setup.sh build        only what building Pollux takes beside Rust: a C linker
#   POLLUX_PEERS_DIR=DIR        where the peers go (default: target/peers)
#
# On a fresh Debian 12, as root or through sudo. It installs Debian packages (QEMU 7.2, fio, …) and
# puts under the peers' directory, without installing them:
#
#   linux61/{vmlinuz,initrd}    Debian's 6.1 cloud kernel, and what a guest needs besides it
#   linux612/{vmlinuz,initrd}   the 6.12 one, from backports
#   qemu10/bin/*                QEMU 10, from backports, beside the installed 7.2
#   fio/fio                     a static fio: Debian's own pulls in the Ceph libraries
#   ceph/usr/*                  Ceph's monitor, OSD and tools, and QEMU's driver of its images
#   prometheus/*                Prometheus and its promtool, whose package would start a service
#   uml/linux, uml/*.ko         User-Mode Linux, built from the kernel source of trixie-backports (three minutes)
#   uml-debug/*                 the same with KASAN, lockdep, fault injection and others
#   packaging/*.deb             DKMS and initramfs-tools, which a test installs our driver's package with
#   */pollux_blk.ko             our own driver in guest/ for each of these kernels
#
# Each item leaves a stamp when it is complete; delete the directory to fetch anew. Nothing is asked of
# the network once all stamps are there.
set -euo pipefail
# Called by `make -j`: its jobs are not for the makes that build peers.
unset MAKEFLAGS MFLAGS

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=$(realpath -m "${POLLUX_PEERS_DIR:-$here/../target/peers}")

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# --- Debian packages of this machine ---------------------------------------------------------------

build_packages=(build-essential)
test_packages=(
    "${build_packages[@]}"
    qemu-system-x86 qemu-utils                       # the guest's machine; qemu-storage-daemon
    fio strace e2fsprogs util-linux                  # drives, watches, checks
    cryptsetup-bin                                   # makes an image of a format that is not raw
    systemd                                          # passes sockets, reads the units of dist/
    tmux                                             # a terminal for `pollux top`
    linux-perf valgrind                              # counts system calls and instructions
    busybox-static cpio kmod xz-utils zstd dmsetup   # the initrd, and what a guest maps disks with
    pkg-config dpkg-dev libaio-dev                   # the static fio
    flex bison bc libelf-dev                         # User-Mode Linux
    librbd1                                          # images in a Ceph cluster
)

# install_packages PACKAGE…: those that are missing.
install_packages() {
    local missing=() package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    if [ ${#missing[@]} = 0 ]; then
        say "Debian packages: all there"
        return 0
    fi
    say "installing Debian packages: ${missing[*]}"
    as_root timeout 300 apt-get -qq update
    as_root env DEBIAN_FRONTEND=noninteractive timeout 1200 \
        apt-get -qq -y --no-install-recommends install "${missing[@]}"
}

# --- apt with lists of its own, so that backports never show up in the machine's --------------------

private_apt=(
    -o "Dir::State::Lists=$peers/apt/lists"
    -o "Dir::Cache=$peers/apt/cache"
    -o "Dir::Etc::SourceList=$peers/apt/sources.list"
    -o "Dir::Etc::SourceParts=/dev/null"
    -o "Dir::Etc::Preferences=/dev/null"
    -o "Dir::Etc::PreferencesParts=/dev/null"
    -o "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"
    -o "Acquire::Retries=3"
    -o "Acquire::http::Timeout=30"
    -o "APT::Sandbox::User=$(id -un)"
    -o "Debug::NoLocking=1" # nothing of the system is written
)

# Prepares the private lists of SUITE…, once a run, and only if something has to be fetched.
lists_ready=
refresh_lists() {
    [ "$lists_ready" != "$*" ] || return 0
    local mirror suite key=/usr/share/keyrings/debian-archive-keyring.gpg
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        awk '$2 == "bookworm" || $2 == "stable" || $2 == "oldstable" { print $1; exit }')
    [ -n "$mirror" ] || die "apt knows no mirror of Debian 12: add bookworm to its sources"
    mkdir -p "$peers/apt/lists/partial" "$peers/apt/cache/archives/partial"
    for suite in "$@"; do
        echo "deb [signed-by=$key] $mirror $suite main"
    done >"$peers/apt/sources.list"
    echo "deb-src [signed-by=$key] $mirror bookworm main" >>"$peers/apt/sources.list"
    say "reading the package lists of $*"
    timeout 300 apt-get -qq "${private_apt[@]}" update
    lists_ready=$*
}
bookworm=(bookworm bookworm-backports)

# has_stamp ITEM FILE…: ITEM was completed, and its files are still there.
has_stamp() {
    local item=$1 file
    [ -e "$peers/stamps/$item" ] || return 1
    shift
    for file in "$@"; do [ -e "$peers/$file" ] || return 1; done
    say "$item: there"
}

stamp() { touch "$peers/stamps/$1"; }

# scratch ITEM: an empty folder for ITEM, printed.
scratch() {
    rm -rf "$peers/scratch/$1"
    mkdir -p "$peers/scratch/$1"
    echo "$peers/scratch/$1"
}

# --- kernels ---------------------------------------------------------------------------------------

# fetch_kernel ITEM SUITE: unpacks SUITE's cloud kernel into ITEM/{vmlinuz,lib/modules/VERSION}.
fetch_kernel() {
    local item=$1 suite=$2 package into
    has_stamp "$item" "$item/vmlinuz" "$item/lib/modules" && return
    refresh_lists "${bookworm[@]}"
    package=$(apt-cache "${private_apt[@]}" depends "linux-image-cloud-amd64/$suite" |
        awk '$1 == "Depends:" { print $2 }')
    [ -n "$package" ] || die "$suite has no cloud kernel"
    say "$item: fetching $package"
    into=$(scratch "$item")
    (cd "$into" && timeout 600 apt-get -qq "${private_apt[@]}" download "$package")
    dpkg -x "$into"/*.deb "$into/root"
    rm -rf "${peers:?}/$item"
    mkdir -p "$peers/$item/lib"
    mv "$into"/root/boot/vmlinuz-* "$peers/$item/vmlinuz"
    # Newer packages keep their modules below /usr.
    mv "$(find "$into/root" -path '*lib/modules' -prune)" "$peers/$item/lib/"
    rm -rf "$into"
    stamp "$item"
}

# --- QEMU 10, beside the installed one -------------------------------------------------------------

fetch_qemu10() {
    local item=qemu10 into deb program
    has_stamp "$item" "$item/bin/qemu-system-x86_64" "$item/bin/qemu-storage-daemon" && return
    refresh_lists "${bookworm[@]}"
    say "$item: fetching from bookworm-backports, with the libraries this machine lacks"
    into=$(scratch "$item")
    mkdir -p "$into/archives/partial"
    timeout 600 apt-get -qq -y "${private_apt[@]}" -o "Dir::Cache::Archives=$into/archives" \
        --no-install-recommends -t bookworm-backports --download-only \
        install qemu-system-x86 qemu-utils
    rm -rf "${peers:?}/$item"
    mkdir -p "$peers/$item/root" "$peers/$item/bin"
    for deb in "$into"/archives/*.deb; do dpkg -x "$deb" "$peers/$item/root"; done
    rm -rf "$into"
    for program in qemu-system-x86_64 qemu-storage-daemon qemu-img; do
        write_wrapper "$peers/$item/bin/$program" "$program"
    done
    stamp "$item"
}

# write_wrapper FILE PROGRAM: a script that runs the unpacked PROGRAM with its own libraries and data.
write_wrapper() {
    local data=''
    # The firmware: QEMU's own files, SeaBIOS, and the option ROMs (which Debian packages apart).
    [ "$2" != qemu-system-x86_64 ] || data='-L "$root/share/qemu" -L "$root/share/seabios" '
    cat >"$1" <<END
#!/bin/sh
# Written by tests/setup.sh: $2 from bookworm-backports, unpacked but not installed.
root=\$(cd "\$(dirname "\$0")/../root/usr" && pwd)
libraries=\$root/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH="\$libraries:\$libraries/pulseaudio\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
export QEMU_MODULE_DIR="\$libraries/qemu"
exec "\$root/bin/$2" $data"\$@"
END
    chmod +x "$1"
}

# --- fio, static -----------------------------------------------------------------------------------

build_fio() {
    local item=fio into
    has_stamp "$item" fio/fio && return
    refresh_lists "${bookworm[@]}"
    say "$item: building a static one from Debian's source (half a minute)"
    into=$(scratch "$item")
    (
        cd "$into"
        timeout 300 apt-get -qq "${private_apt[@]}" source --download-only fio
        dpkg-source -x ./*.dsc source >log 2>&1
        cd source
        # Only what a guest uses: libaio, io_uring (which fio calls without a library), sync.
        timeout 300 ./configure --build-static --disable-native --disable-numa --disable-rdma \
            --disable-rados --disable-rbd --disable-gfapi --disable-http --disable-pmem \
            --disable-libnfs --disable-xnvme >>../log 2>&1
        timeout 900 make -s -j"$(nproc)" fio >>../log 2>&1
    ) || die "fio does not build; see $into/log"
    mkdir -p "$peers/fio"
    strip -o "$peers/fio/fio" "$into/source/fio"
    rm -rf "$into"
    stamp "$item"
}

# --- User-Mode Linux -------------------------------------------------------------------------------

# build_uml ITEM [FRAGMENT]: its queues of several processors need a kernel newer than bookworm's backports have.
# FRAGMENT is a configuration on top of the common one. Built again whenever the recipe changed.
build_uml() {
    local item=$1 fragment=${2:-} into package key
    key=$(cat "$here"/guest/uml/{build.sh,config,*.patch} ${fragment:+"$fragment"} | sha256sum)
    if [ "$key" = "$(cat "$peers/stamps/$item" 2>/dev/null)" ] && [ -e "$peers/$item/linux" ]; then
        say "$item: there"
        return
    fi
    refresh_lists trixie-backports
    package=$(apt-cache "${private_apt[@]}" search --names-only '^linux-source-[0-9.]+$' | awk '{print $1}' | sort -V | tail -1)
    [ -n "$package" ] || die "trixie-backports has no kernel source"
    say "$item: building $package (minutes on two processors)"
    into=$(scratch "$item")
    (cd "$into" && timeout 900 apt-get -qq "${private_apt[@]}" download "$package")
    dpkg -x "$into"/*.deb "$into/root"
    "$here/guest/uml/build.sh" "$into/root/usr/src/$package.tar.xz" "$into/uml" ${fragment:+"$fragment"} >"$into/log" 2>&1 ||
        die "User-Mode Linux does not build; see $into/log"
    rm -rf "${peers:?}/$item"
    mv "$into/uml" "$peers/$item"
    rm -rf "$into"
    echo "$key" >"$peers/stamps/$item"
}

# --- the headers of the guests' kernels --------------------------------------------------------------

# fetch_headers ITEM: of the kernel in ITEM, into ITEM/build.
fetch_headers() {
    local item=$1 version into packages package
    version=$(basename "$peers/$item/lib/modules"/*)
    has_stamp "$item-headers" "$item/build/Makefile" "$item/headers" && return
    refresh_lists "${bookworm[@]}"
    say "$item-headers: fetching those of $version"
    into=$(scratch "$item-headers")
    packages=$(apt-cache "${private_apt[@]}" depends "linux-headers-$version" |
        awk '$2 ~ /^linux-(headers|kbuild)-/ { print $2 }')
    (cd "$into" && timeout 600 apt-get -qq "${private_apt[@]}" download "linux-headers-$version" $packages)
    rm -rf "${peers:?}/$item/headers"
    mkdir -p "$peers/$item/headers"
    for package in "$into"/*.deb; do dpkg -x "$package" "$peers/$item/headers"; done
    # They name the folder that they are not installed in.
    sed -i "s|include /usr/src|include $peers/$item/headers/usr/src|" \
        "$peers/$item/headers/usr/src/linux-headers-$version/Makefile"
    ln -sfn "headers/usr/src/linux-headers-$version" "$peers/$item/build"
    rm -rf "$into"
    stamp "$item-headers"
}

# --- modules: our own driver of the guest, and a load generator --------------------------------------

driver=("$here"/../guest/{Kbuild,*.[ch]})
generator=("$here"/guest/uml/{Kbuild,kblkbench.c})

# build_module NAME SOURCES ITEM ARGUMENT…: for the kernel in ITEM, which make finds by ARGUMENT…, of the files in the
# array SOURCES, with the parameters that tests want. Again whenever either changed.
build_module() {
    local name=$1 item=$3 into key
    local -n sources=$2
    shift 3
    key=$(cat "${sources[@]}" "$peers/stamps/$item" | sha256sum)
    if [ "$key" = "$(cat "$peers/stamps/$item-$name" 2>/dev/null)" ] && [ -e "$peers/$item/$name.ko" ]; then
        say "$item: $name: there"
        return
    fi
    say "$item: building $name"
    into=$(scratch "$item-$name")
    cp "${sources[@]}" "$into/"
    # Without what only a kernel's own debugger wants (the tools for it are not here).
    make -s "$@" "M=$into" TEST=1 W=1 CONFIG_DEBUG_INFO_BTF_MODULES= modules >"$into/log" 2>&1 ||
        die "the module does not build; see $into/log"
    ! grep -E 'warning:' "$into/log" || die "the module does not build without warnings"
    mv "$into/$name.ko" "$peers/$item/"
    rm -rf "$into"
    echo "$key" >"$peers/stamps/$item-$name"
}

# --- Prometheus, unpacked: the package would start a service ----------------------------------------

fetch_prometheus() {
    local item=prometheus into
    has_stamp "$item" "$item/promtool" "$item/prometheus" && return
    refresh_lists "${bookworm[@]}"
    say "$item: fetching"
    into=$(scratch "$item")
    (cd "$into" && timeout 600 apt-get -qq "${private_apt[@]}" download prometheus/bookworm)
    dpkg -x "$into"/*.deb "$into/root"
    rm -rf "${peers:?}/$item"
    mkdir -p "$peers/$item"
    mv "$into"/root/usr/bin/{promtool,prometheus} "$peers/$item/"
    rm -rf "$into"
    stamp "$item"
}

# --- packages that are only unpacked, for a Debian of its own ---------------------------------------

# fetch_packaging: what installs our driver's package and makes an initramfs with it. Here they would replace the init
# system's.
fetch_packaging() {
    local item=packaging into
    has_stamp "$item" "$item" && return
    refresh_lists "${bookworm[@]}"
    say "$item: fetching"
    into=$(scratch "$item")
    (cd "$into" && timeout 600 apt-get -qq "${private_apt[@]}" download dkms/bookworm initramfs-tools/bookworm \
        initramfs-tools-core/bookworm klibc-utils/bookworm libklibc/bookworm udev/bookworm)
    rm -rf "${peers:?}/$item"
    mkdir "$peers/$item"
    mv "$into"/*.deb "$peers/$item/"
    rm -rf "$into"
    stamp "$item"
}

# --- Ceph, unpacked: the packages would make users, folders and services ----------------------------

# What only services, other kinds of daemons and the preparation of whole devices use.
ceph_not='sudo|lvm2|dmeventd|nvme-cli|smartmontools|parted|hdparm|gdisk|dmidecode|xfsprogs|logrotate|uuid-runtime|cryptsetup-bin|python3-ceph|python3-rgw|librgw2'

fetch_ceph() {
    local item=ceph into deb
    has_stamp "$item" ceph/usr/bin/ceph-mon ceph/usr/bin/ceph-osd ceph/usr/bin/rbd && return
    refresh_lists "${bookworm[@]}"
    say "$item: fetching from bookworm, with the libraries this machine lacks"
    into=$(scratch "$item")
    mkdir -p "$into/archives/partial"
    timeout 600 apt-get -qq -y "${private_apt[@]}" -o "Dir::Cache::Archives=$into/archives" \
        --no-install-recommends -t bookworm --download-only \
        install ceph-mon ceph-osd ceph-common qemu-block-extra
    rm -rf "${peers:?}/$item"
    mkdir -p "$peers/$item"
    for deb in "$into"/archives/*.deb; do
        [[ $(basename "$deb") =~ ^($ceph_not)_ ]] || dpkg -x "$deb" "$peers/$item"
    done
    rm -rf "$into"
    stamp "$item"
}

# --- initrds ---------------------------------------------------------------------------------------

# build_initrd ITEM: ITEM/initrd for ITEM/vmlinuz, again whenever the recipe or a part of it changed.
build_initrd() {
    local item=$1 recipe=$here/guest/build-initrd.sh key
    key=$(cat "$recipe" "$peers/fio/fio" "$peers/$item/vmlinuz" | sha256sum)
    if [ -s "$peers/$item/initrd" ] && [ "$key" = "$(cat "$peers/stamps/$item-initrd" 2>/dev/null)" ]; then
        say "$item-initrd: there"
        return
    fi
    "$recipe" "$peers/$item/lib/modules" "$peers/fio/fio" "$peers/$item/initrd"
    echo "$key" >"$peers/stamps/$item-initrd"
    say "$item-initrd: $(du -h "$peers/$item/initrd" | cut -f1)"
}

# --- all of it -------------------------------------------------------------------------------------

# verify PROGRAM VERSION: PROGRAM runs and is of VERSION.
verify() {
    local answer
    answer=$(timeout 60 "$1" --version 2>&1 | head -n 1) || die "$1 does not run: $answer"
    case $answer in
    *"version $2"*) say "runs: $answer" ;;
    *) die "$1 is not version $2: $answer" ;;
    esac
}

case ${1:-all} in
all | full) ;;
build)
    install_packages "${build_packages[@]}"
    exit
    ;;
*) die "usage: tests/setup.sh [build | full]" ;;
esac
[ "$(uname -m)" = x86_64 ] || die "the guests are x86-64 ones; this machine is $(uname -m)"
mkdir -p "$peers/stamps"
install_packages "${test_packages[@]}"
fetch_kernel linux61 bookworm
fetch_kernel linux612 bookworm-backports
fetch_qemu10
fetch_prometheus
fetch_packaging
fetch_ceph
build_fio
build_uml uml
for_uml=(-C "$peers/uml/build/source" ARCH=um "O=$peers/uml/build/kernel")
build_module pollux_blk driver uml "${for_uml[@]}"
build_module kblkbench generator uml "${for_uml[@]}"
if [ "${1:-all}" = full ]; then
    install_packages sparse
    build_uml uml-debug "$here/guest/uml/config-debug"
    build_module pollux_blk driver uml-debug -C "$peers/uml-debug/build/source" ARCH=um "O=$peers/uml-debug/build/kernel"
fi
fetch_headers linux61
fetch_headers linux612
build_module pollux_blk driver linux61 -C "$peers/linux61/build"
build_module pollux_blk driver linux612 -C "$peers/linux612/build"
build_initrd linux61
build_initrd linux612
verify qemu-system-x86_64 7.
verify qemu-storage-daemon 7.
verify "$peers/qemu10/bin/qemu-system-x86_64" 10.
verify "$peers/qemu10/bin/qemu-storage-daemon" 10.
verify "$peers/prometheus/promtool" 2.
rm -rf "$peers/scratch"
say "everything is there"
