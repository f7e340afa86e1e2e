#!/bin/bash
# Two nodes and two NFS servers in network namespaces. The network splits: each node reaches a server of
# its own, and both put the same keys and publish revisions of the same model. Then it heals.
set -uo pipefail
if [ -z "${MC_SPLIT:-}" ]; then
	unshare -n true 2>/dev/null || { echo 'needs network namespaces'; exit 77; }
	MC_SPLIT=1 exec unshare -n "$0"
fi
. "$(dirname "$0")/lib/mount.sh"
. "$(dirname "$0")/lib/nfs-server.sh"
mount_need
program=$mooncakefs one=$MC_TMP/one two=$MC_TMP/two nodes=() daemons=() remotes=()
nfs_address=0.0.0.0
clean()
{
	for mnt in "$one" "$two"; do mount_clean; done
	[ ${#daemons[@]} = 0 ] || kill -KILL "${daemons[@]}" 2>/dev/null
	nfs_stop_all
	[ ${#nodes[@]} = 0 ] || kill "${nodes[@]}" 2>/dev/null
}
trap clean EXIT

# A node is a network namespace with a link of its own to each server, at 10.9.NODE.SERVER.
ip link set lo up || { echo 'needs iproute2'; exit 77; }
mkdir "$one" "$two"
apart() { [ "$(readlink "$1")" != "$(readlink /proc/self/ns/net)" ]; }
for n in 1 2; do
	unshare -n sleep infinity &
	nodes[n]=$!
	await 'a network namespace' apart "/proc/${nodes[n]}/ns/net"
	cat >"$MC_TMP/node$n" <<-END
	#!/bin/sh
	export XDG_STATE_HOME=$MC_TMP/state$n
	exec nsenter --net=/proc/${nodes[n]}/ns/net "\$@"
	END
	cat >"$MC_TMP/mooncakefs$n" <<-END
	#!/bin/sh
	exec "$MC_TMP/node$n" "$program" "\$@"
	END
	chmod +x "$MC_TMP/node$n" "$MC_TMP/mooncakefs$n"
	for s in 1 2; do
		ip link add "s$n$s" type veth peer name "to$s" netns "${nodes[n]}" &&
			ip address add "10.9.$n$s.1/24" dev "s$n$s" && ip link set "s$n$s" up &&
			"$MC_TMP/node$n" ip address add "10.9.$n$s.2/24" dev "to$s" &&
			"$MC_TMP/node$n" ip link set "to$s" up || { echo 'needs veth'; exit 77; }
	done
done
for s in 1 2; do
	nfs_start "$MC_TMP/s$s" || exit
	for n in 1 2; do
		url=$(nfs_url "$MC_TMP/s$s")
		remotes[n]=${remotes[n]:+${remotes[n]}$'\n'}${url/127.0.0.1/10.9.$n$s.1}#name=s$s
	done
done

# on N: what follows is node N's.
on()
{
	remote=${remotes[$1]} mooncakefs=$MC_TMP/mooncakefs$1
	[ "$1" = 1 ] && mnt=$one || mnt=$two
}
kv() { timeout 200 python3 -B "$mount_lib/kv_remote_checks.py" "$@" || fail "kv: $*"; }
source_of() { head -c $((3 * 1048576 + 5)) /dev/urandom >"$MC_TMP/$1/a.bin"; echo "$1" >"$MC_TMP/$1/name"; }
# node_log N TEXT: waits for it.
node_log()
{
	local log=$MC_TMP/log

	[ "$1" = 2 ] || log=$MC_TMP/log1
	await_from "${daemons[$1]}" "in the log of node $1: $2" grep -qF -- "$2" "$log"
}

for n in 1 2; do
	mkdir "$MC_TMP/r$((n + 1))" "$MC_TMP/r4-$n"
	source_of "r$((n + 1))"
	source_of "r4-$n"
done
on 1
mount_import "$MC_TMP/r2" acme/model@r1 || fail 'import'
for n in 1 2; do
	on $n
	mount_start --dram 160MiB --kv-dram 96MiB --kv-replicas 2 --kv-ack remote --deadline 4 || fail "node $n"
	daemons[n]=$mount_pid
	mount_pid=
	[ $n = 2 ] || mv "$MC_TMP/log" "$MC_TMP/log1"
done
mkdir "$one/kv/d" "$two/kv/d" || fail 'mkdir'

fact 'a partition between two nodes that write: each goes on with the server that it reaches'
ip link set s12 down && ip link set s21 down || fail 'ip link'
kv side "$one/kv/d" 1 &
pid=$!
kv side "$two/kv/d" 2
wait $pid || exit 1
for n in 1 2; do
	on $n
	mount_import "$MC_TMP/r$((n + 1))" acme/model@r$((n + 1)) || fail "import on node $n"
	mount_import "$MC_TMP/r4-$n" acme/model@r4 || fail "import of r4 on node $n"
	node_log $n event=remote-fenced
	cmp "$MC_TMP/r2/a.bin" "$mnt/checkpoints/acme/model@r1/a.bin" || fail "r1 on node $n"
done
for s in 1 2; do
	[ ! -e "$MC_TMP/s$s/export/checkpoints/acme/model/r$((4 - s))" ] || fail "server $s has the other side's revision"
done

fact 'the network is whole again: each server holds the same, one whole version of what both sides wrote'
ip link set s12 up && ip link set s21 up || fail 'ip link'
for n in 1 2; do
	node_log $n event=remote-back
done
same()
{
	diff -rq --exclude=tmp --exclude=missed "$MC_TMP/s1/export" "$MC_TMP/s2/export" &&
		[ -z "$(find "$MC_TMP"/s?/export/missed -type f 2>/dev/null)" ]
}
await 'the same on both servers' same
kv sides "$one/kv/d" "$two/kv/d"
fact 'revisions of both sides are whole, of one name that both gave one of the two, and the link is the same'
r4=$(cat "$one/checkpoints/acme/model@r4/name") || fail 'r4'
for n in 1 2; do
	on $n
	mount_flags
	for r in r2 r3 r4; do
		"$mooncakefs" verify "acme/model@$r" "${remote_flags[@]}" || fail "verify $r"
	done
	for r in r2 r3; do
		cmp "$MC_TMP/$r/a.bin" "$mnt/checkpoints/acme/model@$r/a.bin" || fail "$r on node $n"
	done
	[ "$(cat "$mnt/checkpoints/acme/model@r4/name")" = "$r4" ] || fail "r4 on node $n"
	cmp "$MC_TMP/$r4/a.bin" "$mnt/checkpoints/acme/model@r4/a.bin" || fail "r4 on node $n"
done
same_link() { [ "$(readlink "$one/checkpoints/acme/model")" = "$(readlink "$two/checkpoints/acme/model")" ]; }
await 'the same link on both nodes' same_link
for mount_pid in "${daemons[@]}"; do
	mount_stop || fail "stop: $mount_rc"
done
daemons=()
