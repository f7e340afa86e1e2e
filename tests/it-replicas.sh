#!/bin/bash
# Two real NFS servers that hold copies of each other's data, in trouble under mounted readers: one
# killed, hung, cut, slow, damaged; both gone; and what one missed is brought to it.
# timeout: 240
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
. "$(dirname "$0")/lib/nfs-server.sh"
mount_need

declare -A url
clean()
{
	mount_clean
	nfs_stop_all
}
trap clean EXIT
for s in a b; do
	nfs_start "$MC_TMP/$s" || exit
	proxy_start "$MC_TMP/proxy-$s" "$(nfs_url "$MC_TMP/$s")"
	url[$s]=$proxy_url#name=$s
done
both=${url[a]}$'\n'${url[b]}
server() { proxy "$MC_TMP/proxy-$1" "${@:2}"; }

chunks() { (cd "$MC_TMP/$1/export" && find chunks -type f | sort); }
# Until both servers have the same chunks, byte for byte.
await_same()
{
	await 'the same copies on both' diff -rq "$MC_TMP/a/export/chunks" "$MC_TMP/b/export/chunks"
}
no_markers() { [ -z "$(find "$MC_TMP/a/export" "$MC_TMP/b/export" -path '*/missed/*' -type f)" ]; }
start() { mount_start --dram 64MiB --kv-dram 0 --deadline 4 "$@" || fail 'mount'; }
stop() { mount_stop || fail "stop: $mount_rc"; }

files=(one.bin two.bin)
mkdir "$MC_TMP/source"
for name in "${files[@]}"; do
	head -c $((24 * 1048576 + 99)) /dev/urandom >"$MC_TMP/source/$name"
done

fact 'an import puts every chunk on both servers'
remote=$both
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
[ "$(chunks a | wc -l)" -ge 8 ] || fail 'chunks'
await_same

# during ORDER...: readers at work, the order given in their middle; no read may be wrong or hang, and
# unless $may_fail is set none may fail.
may_fail=
during()
{
	readers_start 1 "${files[@]}"
	"$@"
	readers_end
	[ -n "$may_fail" ] || grep -q ' 0 EIO' "$MC_TMP/readers" || fail 'reads failed'
}

fact 'one of two servers is killed under readers: right bytes, no error'
start
during nfs_kill "$MC_TMP/a"
await_log event=remote-fenced
fact 'with one server away everything is listed and read'
ls "$mnt/checkpoints/acme" >/dev/null || fail ls
trouble right "${files[@]}"
fact 'status says which server is away'
members()
{
	python3 -c 'import json, sys
s = json.load(open(sys.argv[1]))
away = [m["url"] for m in s["remotes"][0]["members"] if not m["reachable"]]
print(len(s["remotes"][0]["members"]), len(away), sum(u in d for u in away for d in s["degraded"]))' "$mnt/.mooncake/status"
}
[ "$(members)" = '2 1 1' ] || fail "status: $(members)"
fact 'the server is back: it is used again'
nfs_restart "$MC_TMP/a" || fail restart
await_log event=remote-back

fact 'one of two servers hangs under readers: right bytes, no error'
during server b hang
server b pass
fact 'one of two servers is cut in mid-reply again and again: right bytes, no error'
during server b cut-each 3456789
server b pass
fact 'one of two servers gives 1 % of its rate: right bytes, no error'
during server a rate 3000000
server a pass
stop

fact 'both servers are gone: EIO within the deadline for what is not resident, then right bytes'
start
hang_both()
{
	server a hang
	server b hang
}
may_fail=1
during hang_both
may_fail=
server a pass
server b pass
trouble recovers "${files[@]}"
stop

# mended SLOW: cold reads, with one server slow so that the other is asked first, until both hold the same.
mended()
{
	local i

	server "$1" rate 40000000
	for ((i = 0; i < 20; i++)); do
		start
		trouble right "${files[@]}"
		stop
		diff -r "$MC_TMP/a/export/chunks" "$MC_TMP/b/export/chunks" >/dev/null 2>&1 && break
	done
	server "$1" pass
	await_same
}

fact 'bad copies on one server are served from the other and mended'
# Not in a first block, which a fresh mount asks of the first home, be it slow or not.
for c in $(cd "$MC_TMP/a/export" && find chunks -type f -size +4M); do
	printf 'XYZ' | dd of="$MC_TMP/a/export/$c" bs=1 seek=2500000 conv=notrunc status=none
done
mended b
fact 'missing copies on one server are served from the other and brought back'
nfs_stop "$MC_TMP/b" # which would go on serving what it has open
(cd "$MC_TMP/b/export" && find chunks -type f -size +4M | head -n 3 | xargs rm)
nfs_restart "$MC_TMP/b" || fail restart
mended a

fact 'an import with one server away goes to the other; what was missed is brought when it is back'
nfs_kill "$MC_TMP/b"
head -c $((9 * 1048576)) /dev/urandom >"$MC_TMP/source/three.bin"
mount_import "$MC_TMP/source" acme/model@r2 || fail 'import with one server'
[ -e "$MC_TMP/a/export/checkpoints/acme/model/r2/manifest.json" ] || fail 'no manifest'
[ ! -e "$MC_TMP/b/export/checkpoints/acme/model/r2" ] || fail 'b was not away'
nfs_restart "$MC_TMP/b" || fail restart
fact 'what a server missed is not read from it: the link names the newest revision'
mount_flags
for i in 1 2 3 4; do
	"$mooncakefs" ls -l acme/model "${remote_flags[@]}" | grep 'r2.*latest' >/dev/null || fail 'an old pointer'
done
start
await_same
await 'no markers' no_markers
cmp "$MC_TMP/a/export/checkpoints/acme/model/latest" "$MC_TMP/b/export/checkpoints/acme/model/latest" ||
	fail 'latest'
stop
fact 'a rebalance after a third remote was added, killed and begun again: each chunk has two copies'
mkdir "$MC_TMP/c"
remote=$both$'\n'dir:$MC_TMP/c#name=c
mount_flags
"$mooncakefs" rebalance "${remote_flags[@]}" --bwlimit 2MiB --jobs 1 2>/dev/null &
pid=$!
moving() { [ -n "$(find "$MC_TMP/c/chunks" -type f 2>/dev/null)" ]; }
await_from $pid 'a chunk on the third' moving
kill -KILL $pid
wait $pid 2>/dev/null
"$mooncakefs" rebalance "${remote_flags[@]}" || fail rebalance
copies=$(find "$MC_TMP/a/export/chunks" "$MC_TMP/b/export/chunks" "$MC_TMP/c/chunks" -type f -printf '%f\n' |
	sort | uniq -c | awk '{print $1}' | sort -u)
[ "$copies" = 2 ] || fail "copies: $copies"
[ -e "$MC_TMP/c/checkpoints/acme/model/r2/manifest.json" ] || fail 'the manifest'
"$mooncakefs" verify acme/model@r2 "${remote_flags[@]}" || fail verify
fact 'a rebalance empties a remote that is to leave'
remote=$both$'\n'dir:$MC_TMP/c#name=c,weight=0
mount_flags
"$mooncakefs" rebalance "${remote_flags[@]}" --json | grep '"failed":0' || fail 'rebalance without c'
[ -z "$(find "$MC_TMP/c" -type f)" ] || fail 'c is not empty'
await_same

fact 'each server alone holds the whole revision'
for s in a b; do
	"$mooncakefs" verify acme/model@r2 --remote "${url[$s]}" || fail "verify $s"
done
exit 0
