#!/usr/bin/env bash
# `make run`: serves a disk, drives it through Pollux's own driver for a few seconds, and goes on serving.
#   dist/try.sh SOCKET DISK      with $POLLUX, or target/release/pollux
#
# Verified I/O overwrites the disk. So only a disk in memory, which is empty, is written; of any other it is
# only read. Ctrl-C ends what is going on: first the measurement, then the server.
#
# -m: the server is in a process group of its own, so that a Ctrl-C during the measurement does not reach it.
set -euo pipefail -m

socket=$1 disk=$2
pollux=${POLLUX:-$(dirname "$0")/../target/release/pollux}
hints=$(mktemp)

"$pollux" serve --socket-path "$socket" --disk "$disk" --show-attach >"$hints" &
server=$!
told=
tell() {
    told=yes
    kill -TERM "$server" 2>/dev/null || :
}
trap tell INT TERM HUP
# Whatever fails, the server does not stay behind.
trap 'tell; rm -f "$hints"' EXIT

# Does our server listen on the socket? Not just anybody: what is there is about to be overwritten.
listens() {
    local inode
    inode=$(SOCKET=$socket awk 'BEGIN { path = " " ENVIRON["SOCKET"] }
        $4 == "00010000" && substr($0, length($0) - length(path) + 1) == path { print $7 }' /proc/net/unix)
    [[ -n $inode ]] && readlink "/proc/$server"/fd/* 2>/dev/null | grep -qxF "socket:[$inode]"
}

ended() {
    local status
    while :; do
        told='' status=0
        wait "$server" || status=$?
        # A signal to us has ended the wait, not the server: it was told, and is waited for.
        [[ -n $told ]] || break
    done
    trap 'rm -f "$hints"' EXIT
    exit "$status"
}

until listens; do
    kill -0 "$server" 2>/dev/null || ended
    sleep 0.02
done

case $disk in
memory:*)
    echo "Verified reads and writes for 3 seconds, through Pollux's own driver:"
    load=(--rw randrw --verify crc32c --iodepth 16)
    ;;
*)
    echo "Reads for 3 seconds, through Pollux's own driver (no writes: $disk may hold something):"
    load=(--rw randread --iodepth 16)
    ;;
esac
echo
"$pollux" bench --socket "$socket" "${load[@]}" --runtime 3s
echo
cat "$hints"
echo "Serving until Ctrl-C."
ended
