#!/usr/bin/env bash
# `make install`: the program and all that a system keeps beside it. It enables and starts nothing.
#   dist/install.sh DESTDIR PREFIX SYSCONFDIR      with $POLLUX, or target/release/pollux
#
# What an administrator writes, SYSCONFDIR/pollux/NAME.toml, is never touched.
set -euo pipefail
# Others than root read all of it.
umask 022

dist=$(cd "$(dirname "$0")" && pwd)
pollux=${POLLUX:-$dist/../target/release/pollux}
root=$1 prefix=$2 sysconf=$3

if [[ $prefix != /* || $sysconf != /* ]]; then
    echo "install: PREFIX and SYSCONFDIR must begin with /, as units name them; DESTDIR may be another root" >&2
    exit 1
fi
if [[ ! -x $pollux ]]; then
    echo "install: $pollux is not there; run \`make build\` first, as the user that has Rust" >&2
    exit 1
fi

# put MODE FILE AT: FILE, with the places that it names put right, becomes AT.
put() {
    local mode=$1 file=$2 at=$root$3
    mkdir -p "$(dirname "$at")"
    sed -e "s|/usr/bin/pollux|$prefix/bin/pollux|g" -e "s|/usr/libexec/|$prefix/libexec/|g" \
        -e "s|/etc/pollux|$sysconf/pollux|g" "$file" >"$at.new"
    chmod "$mode" "$at.new"
    mv "$at.new" "$at"
    echo "$at"
}

# A running daemon keeps the program that it was started with.
mkdir -p "$root$prefix/bin"
install -m 755 "$pollux" "$root$prefix/bin/pollux.new"
mv "$root$prefix/bin/pollux.new" "$root$prefix/bin/pollux"
echo "$root$prefix/bin/pollux"

man=$root$prefix/share/man/man1
mkdir -p "$man" "$root$sysconf/pollux"
"$pollux" generate man "$man"
echo "$man/pollux*.1"
completions() {
    mkdir -p "$(dirname "$root$prefix/$2")"
    "$pollux" generate completions "$1" >"$root$prefix/$2"
    echo "$root$prefix/$2"
}
completions bash share/bash-completion/completions/pollux
completions zsh share/zsh/site-functions/_pollux
completions fish share/fish/vendor_completions.d/pollux.fish

put 644 "$dist/pollux@.service" "$prefix/lib/systemd/system/pollux@.service"
put 644 "$dist/pollux@.socket" "$prefix/lib/systemd/system/pollux@.socket"
put 644 "$dist/pollux.sysusers" "$prefix/lib/sysusers.d/pollux.conf"
put 644 "$dist/pollux.toml" "$prefix/share/doc/pollux/example.toml"
# The book, each page at its place: they link to each other.
tree=$dist/../docs/tree book=$prefix/share/doc/pollux
find -L "$tree" -type f -not -path '*/bench/src/*' -not -name Cargo.toml -printf '%P\n' | while read -r page; do
    put 644 "$tree/$page" "$book/$page" >/dev/null
done
echo "$root$book/"
put 644 "$dist/grafana-pollux.json" "$prefix/share/pollux/grafana-pollux.json"
put 755 "$dist/pollux-vhost-user-blk" "$prefix/libexec/pollux-vhost-user-blk"
# Here QEMU's management software looks whatever the prefix is.
put 644 "$dist/50-pollux.json" "$sysconf/qemu/vhost-user/50-pollux.json"
