#!/bin/bash
# The NFS server in trouble under mounted readers: connections cut in mid-reply, killed, hung, damaged
# behind its back. Right bytes or EIO within the deadline, then all is well again.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
. "$(dirname "$0")/lib/nfs-server.sh"
mount_need
nfs_start "$MC_TMP/nfs" || exit

direct=$(nfs_url "$MC_TMP/nfs")
clean()
{
	mount_clean
	nfs_stop_all
}
trap clean EXIT
mkdir "$MC_TMP/source"
proxy_start "$MC_TMP/proxy" "$direct"
to_client() { proxy_bytes "$MC_TMP/proxy"; }

for name in one two; do
	head -c $((40 * 1048576 + 99)) /dev/urandom >"$MC_TMP/source/$name.bin"
done
remote=$direct
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
remote=$proxy_url
files=(one.bin two.bin)
start() { mount_start --dram 64MiB --deadline 2 "$@" || fail 'mount'; }

fact 'connections that are cut in mid-reply: right bytes, no error'
start
proxy "$MC_TMP/proxy" cut-each 7654321
trouble right "${files[@]}"
proxy "$MC_TMP/proxy" pass
mount_stop || fail "stop: $mount_rc"
grep -q 'read_errors=0 ' "$MC_TMP/log" || fail 'read errors'

fact 'a killed server: right bytes or EIO within the deadline'
start
began=$SECONDS
readers_start 3 "${files[@]}"
nfs_kill "$MC_TMP/nfs"
readers_end
fact 'the log names the server, the object and the way out'
logged event=fetch-failed tier=remote "url=$remote" object=chunks/ 'is the server up'
logged event=read-failed 'file="acme/model@r1/' tier=remote 'works again when the remote does'
lines=$(grep -c event=fetch-failed "$MC_TMP/log")
[ "$lines" -le $((2 * (SECONDS - began) + 6)) ] || fail "$lines lines about one dead server"
fact 'readers work again once the server is back'
nfs_restart "$MC_TMP/nfs" || fail 'the server does not come back'
trouble recovers "${files[@]}"

fact 'a hung server: right bytes or EIO within the deadline, then right bytes'
readers_start 3 "${files[@]}"
kill -STOP "$(cat "$MC_TMP/nfs/pid")"
readers_end
kill -CONT "$(cat "$MC_TMP/nfs/pid")"
trouble recovers "${files[@]}"
mount_stop || fail "stop: $mount_rc"

fact 'what is resident is served during an outage and after a restart, without a byte from the server'
start --nvme "$MC_TMP/nvme,256MiB"
trouble right one.bin
trouble wait-resident nvme $((40 * 1048576 + 99)) one.bin
mount_stop || fail "stop: $mount_rc"
start --nvme "$MC_TMP/nvme,256MiB"
stat "$mnt/checkpoints/acme/model@r1/one.bin" >/dev/null || fail stat
before=$(to_client)
trouble right one.bin
after=$(to_client)
echo "from the server for a resident file: $((after - before)) bytes"
[ $((after - before)) -le 65536 ] || fail 'resident bytes came from the server'
proxy "$MC_TMP/proxy" hang
trouble right one.bin
proxy "$MC_TMP/proxy" pass
mount_stop || fail "stop: $mount_rc"

fact 'eight processes that read a cold file cost the server its size once'
start --dram 128MiB
stat "$mnt/checkpoints/acme/model@r1/two.bin" >/dev/null || fail stat
before=$(to_client)
for i in 1 2 3 4 5 6 7 8; do
	trouble right two.bin &
	pids[i]=$!
done
for pid in "${pids[@]}"; do
	wait "$pid" || exit 1
done
after=$(to_client)
echo "from the server for two.bin: $((after - before)) of $((40 * 1048576 + 99)) bytes"
[ $((after - before)) -le 42362570 ] || fail 'blocks were fetched more than once'
mount_stop || fail "stop: $mount_rc"
exit 0
