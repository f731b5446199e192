#!/usr/bin/env bash
# A throwaway Ceph cluster on this machine, for tests. No root, no systemd, no kernel modules: tests/setup.sh unpacks
# Debian's packages, and the daemons run as children of the caller.
#
#   cluster.sh start DIR             make and start a cluster in DIR (must be absent or empty)
#   cluster.sh stop DIR              stop every daemon of DIR (DIR is kept; rm -rf it afterwards)
#   cluster.sh resume DIR            start the daemons of a stopped cluster again
#   cluster.sh kill-osd DIR N        kill -9 OSD N;  cluster.sh start-osd DIR N  starts it again
#   cluster.sh env DIR               shell lines to eval: CEPH_CONF, PATH, LD_LIBRARY_PATH, PYTHONPATH
# Knobs (environment, read by start): OSDS=1 STORE=bluestore|memstore AUTH=none|cephx MGR=0|1
#   OSD_SIZE=4G (sparse) POOL=rbd REPLICAS=1 PGS=8 TIMEOUT=60
#   WATCH_TIMEOUT=30 (s, until a client that is silent counts as dead) CEPH_PREFIX= (where the packages are unpacked)
set -euo pipefail
die() { echo "ceph/cluster.sh: $*" >&2; exit 1; }
cmd=${1:?what to do: start, stop, resume, kill-osd, start-osd or env}; dir=${2:?a folder}
TIMEOUT=${TIMEOUT:-60}

[ "$cmd" = start ] || { dir=$(readlink -f "$dir"); [ -f "$dir/lab.env" ] || die "$dir holds no cluster"; . "$dir/lab.env"; }
P=${CEPH_PREFIX:-}; LIB=$P/usr/lib/$(gcc -print-multiarch 2>/dev/null || echo x86_64-linux-gnu)
if [ -n "$P" ]; then
  export LD_LIBRARY_PATH=$LIB:$LIB/ceph:$P/lib/${LIB##*/}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PYTHONPATH=$P/usr/lib/python3/dist-packages PATH=$P/usr/bin:$PATH
fi
export CEPH_CONF=$dir/ceph.conf
unset CEPH_ARGS

daemon() { # NAME command...: in the background in its own session, with its pid in run/NAME.pid
  local name=$1 fd; shift
  ( # With nothing open that is its caller's: a lock would be held as long as it runs.
    for fd in /proc/self/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-" 2>/dev/null || :; done
    exec setsid "$@" </dev/null >>"$dir/log/$name.out" 2>&1
  ) &
  echo $! >"$dir/run/$name.pid"
}
pid_of() { # NAME: its pid, only while it is the same program and the same cluster
  local pid; pid=$(cat "$dir/run/$1.pid" 2>/dev/null) || return 1
  { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qF -- "-c $dir/ceph.conf" && echo "$pid"
}
gone() { # PID: it and all its threads have ended; until then it may hold its locks. An unreaped zombie counts as ended.
  local t; [ -d "/proc/$1" ] || return 0
  t=("/proc/$1/task/"*); [ ${#t[@]} -le 1 ] && grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null
}
start_mon() { daemon mon.a ceph-mon -f -i a -c "$dir/ceph.conf"; }
start_osd() { daemon "osd.$1" ceph-osd -f -i "$1" -c "$dir/ceph.conf"; }
start_mgr() { daemon mgr.x ceph-mgr -f -i x -c "$dir/ceph.conf"; }
ask() { timeout "$TIMEOUT" ceph -c "$dir/ceph.conf" --connect-timeout "$TIMEOUT" "$@" 2>>"$dir/log/ask.err"; }
free_port() { # a port on which nothing listens now
  local p; while :; do p=$((20000 + RANDOM % 10000)); (: <"/dev/tcp/127.0.0.1/$p") 2>/dev/null || { echo $p; return; }; done
}
end() { # NAME SECONDS: TERM, then KILL
  local pid i; pid=$(pid_of "$1") || { rm -f "$dir/run/$1.pid"; return 0; }
  kill -TERM "$pid" 2>/dev/null || :
  for ((i = 0; i < $2 * 20; i++)); do ! gone "$pid" || break; sleep 0.05; done
  if ! gone "$pid"; then echo "ceph/cluster.sh: $1 did not end, killed" >&2; kill -KILL "$pid" || :; fi
  rm -f "$dir/run/$1.pid"
}

start() {
  local OSDS=${OSDS:-1} STORE=${STORE:-bluestore} AUTH=${AUTH:-none} MGR=${MGR:-0} POOL=${POOL:-rbd}
  local fsid port n uuid wait_for
  for n in ceph-mon ceph-osd ceph rbd monmaptool; do command -v $n >/dev/null || die "$n is missing"; done
  [ ! -e "$dir" ] || [ -z "$(ls -A "$dir")" ] || die "$dir is not empty"
  mkdir -p "$dir"; dir=$(readlink -f "$dir"); export CEPH_CONF=$dir/ceph.conf
  [ ${#dir} -le 80 ] || die "the path of $dir is too long for the admin sockets"
  mkdir -p "$dir"/{run,log,mon.a,mgr.x}; chmod 700 "$dir"
  fsid=$(cat /proc/sys/kernel/random/uuid); port=$(free_port)
  printf 'OSDS=%s\nMGR=%s\nCEPH_PREFIX=%q\n' "$OSDS" "$MGR" "$P" >"$dir/lab.env"
  cat >"$dir/ceph.conf" <<CONF
[global]
fsid = $fsid
mon host = v2:127.0.0.1:$port
public addr = 127.0.0.1
ms bind msgr1 = false
auth cluster required = $AUTH
auth service required = $AUTH
auth client required = $AUTH
keyring = $dir/keyring
run dir = $dir/run
admin socket = $dir/run/\$name.\$pid.asok
log file = $dir/log/\$name.log
crash dir = $dir/log
plugin dir = $LIB/ceph
erasure code dir = $LIB/ceph/erasure-code
log to stderr = false
err to stderr = true
mon cluster log file = $dir/log/cluster.log
osd pool default size = ${REPLICAS:-1}
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon allow pool delete = true
[client]
admin socket =
log file = $dir/log/client.\$pid.log
# several signs of life within the watch timeout, as with the defaults of both
objecter tick interval = $(((${WATCH_TIMEOUT:-30} + 5) / 6))
[mon]
mon data = $dir/mon.a
mon data avail warn = 0
mon data avail crit = 0
mon warn on pool no redundancy = false
auth allow insecure global id reclaim = false
# one voter: no need to wait long
mon lease = 2
paxos propose interval = 0.05
mon max pg per osd = 1000
rocksdb cache size = 16777216
[osd]
osd data = $dir/osd.\$id
osd objectstore = $STORE
osd class dir = $LIB/rados-classes
osd crush initial weight = 1
osd max object name len = 256
osd memory target = 939524096
osd op num shards = 2
osd op num threads per shard = 1
osd client watch timeout = ${WATCH_TIMEOUT:-30}
osd fast shutdown = $([ "$STORE" = memstore ] && echo false || echo true)
osd pg max concurrent snap trims = 1
# else an object becomes a list of all that was written to it, ever longer and slower
memstore page set = true
memstore device bytes = $(numfmt --from=iec "${OSD_SIZE:-4G}")
bluestore block create = true
bluestore block size = $(numfmt --from=iec "${OSD_SIZE:-4G}")
bluestore cache autotune = false
bluestore cache size = 67108864
bdev enable discard = false
# close of a device joins its polling thread; the default of 250 ms makes mkfs and mount take seconds
bdev aio poll ms = 10
bluestore fsck on mkfs = false
[mgr]
mgr data = $dir/mgr.x
mgr module path = $P/usr/share/ceph/mgr
mgr initial modules = 
CONF
  # Keys are made even where none is asked for: the monitor's --mkfs wants a keyring.
  ceph-authtool -C "$dir/keyring" -n mon. --gen-key --cap mon 'allow *' >>"$dir/log/setup.out" 2>&1
  ceph-authtool "$dir/keyring" -n client.admin --gen-key --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' >>"$dir/log/setup.out" 2>&1
  [ "$MGR" = 0 ] || ceph-authtool "$dir/keyring" -n mgr.x --gen-key --cap mon 'allow profile mgr' --cap osd 'allow *' >>"$dir/log/setup.out" 2>&1
  for ((n = 0; n < OSDS; n++)); do
    ceph-authtool "$dir/keyring" -n "osd.$n" --gen-key --cap mon 'allow profile osd' --cap osd 'allow *' --cap mgr 'allow profile osd' >>"$dir/log/setup.out" 2>&1
  done
  chmod 600 "$dir/keyring"
  monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$port]" --set-min-mon-release pacific "$dir/monmap" >>"$dir/log/setup.out" 2>&1
  ceph-mon --mkfs -i a -c "$dir/ceph.conf" --monmap "$dir/monmap" --keyring "$dir/keyring" >>"$dir/log/setup.out" 2>&1 || die "the monitor's mkfs failed, see $dir/log"
  start_mon
  # The OSDs are formatted while the monitor comes up.
  wait_for=()
  for ((n = 0; n < OSDS; n++)); do
    cat /proc/sys/kernel/random/uuid >"$dir/run/osd.$n.uuid"; mkdir "$dir/osd.$n"
    ceph-osd --mkfs --no-mon-config -i "$n" -c "$dir/ceph.conf" --monmap "$dir/monmap" --osd-uuid "$(cat "$dir/run/osd.$n.uuid")" >>"$dir/log/setup.out" 2>&1 & wait_for+=($!)
  done
  for ((n = 0; n < OSDS; n++)); do
    ask osd new "$(cat "$dir/run/osd.$n.uuid")" "$n" >/dev/null || die "osd new $n failed, see $dir/log"
  done
  for n in "${wait_for[@]}"; do wait "$n" || die "an OSD's mkfs failed, see $dir/log"; done
  for ((n = 0; n < OSDS; n++)); do start_osd "$n"; done
  [ "$MGR" = 0 ] || start_mgr
  ask osd pool create "$POOL" "${PGS:-8}" "${PGS:-8}" >/dev/null || die "no pool, see $dir/log"
  # The short tick: a client that asked before the OSD was up looks again only every 5 s by default.
  timeout "$TIMEOUT" rbd -c "$dir/ceph.conf" --objecter-tick-interval=0.1 pool init "$POOL" || die "the pool did not become usable in $TIMEOUT s, see $dir/log"
}

case $cmd in
start) trap 'rc=$?; [ $rc = 0 ] || { for n in $(jobs -p); do kill -KILL "$n" 2>/dev/null || :; done; for n in "$dir"/run/*.pid; do [ ! -e "$n" ] || end "$(basename "$n" .pid)" 1; done; }; exit $rc' EXIT
  start ;;
stop) [ ! -e "$dir/run/mgr.x.pid" ] || end mgr.x 2
  for n in "$dir"/run/osd.*.pid; do [ ! -e "$n" ] || end "$(basename "$n" .pid)" 20; done
  end mon.a 20; rm -f "$dir"/run/*.asok ;;
resume) start_mon; for ((n = 0; n < OSDS; n++)); do start_osd "$n"; done; [ "$MGR" = 0 ] || start_mgr ;;
kill-osd) n=$(pid_of "osd.${3:?which OSD}") || die "osd.$3 is not running"
  kill -KILL "$n"; until gone "$n"; do sleep 0.02; done ;;
start-osd) ! pid_of "osd.${3:?which OSD}" >/dev/null || die "osd.$3 runs already"; start_osd "$3" ;;
env) echo "export CEPH_CONF=$dir/ceph.conf"
  [ -z "$P" ] || echo "export PATH=$P/usr/bin:\$PATH LD_LIBRARY_PATH=$LD_LIBRARY_PATH PYTHONPATH=$PYTHONPATH" ;;
*) die "what is $cmd?" ;;
esac
