#!/bin/bash
# The NFS server stops answering: metadata goes on, readers get EIO in time, the stop is bounded.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
. "$(dirname "$0")/lib/nfs-server.sh"
mount_need
# A stop that gives up leaves threads behind that wait for the server.
export TSAN_OPTIONS=${TSAN_OPTIONS:-}:report_thread_leaks=0
nfs_start "$MC_TMP/nfs" || exit

proxy_dir=$MC_TMP/proxy
mkdir "$proxy_dir"
remote=$(nfs_url "$MC_TMP/nfs")
port=$(sed -nE 's/.*nfsport=([0-9]+).*/\1/p' <<<"$remote")
"$MC_BUILD/tests/tcp-proxy" run "$proxy_dir" "$port" &
proxy_pid=$!
clean()
{
	mount_clean
	kill "$proxy_pid" 2>/dev/null
	nfs_stop_all
}
trap clean EXIT
until [ -s "$proxy_dir/port" ]; do
	kill -0 "$proxy_pid" || fail 'the proxy'
	read -rt 0.05 <> <(:) || :
done

mount_make_source "$MC_TMP/source" || exit 1
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
remote=${remote/nfsport=$port/nfsport=$(cat "$proxy_dir/port")}
mount_start --dram 64MiB --deadline 4 --stop-timeout 9 || fail 'mount'
check outage "$MC_BUILD/tests/tcp-proxy" set "$proxy_dir"
check killed "$MC_BUILD/tests/tcp-proxy" set "$proxy_dir"

# Still hanging: a stop with a reader under way.
(head -c 4096 "$mnt/checkpoints/acme/model@r1/two.bin" >/dev/null 2>&1) &
start=$SECONDS
mount_stop
[ $((SECONDS - start)) -le 11 ] || fail "the stop took $((SECONDS - start)) s"
grep -qF " $mnt fuse.mooncakefs " /proc/self/mounts && fail 'still mounted'
exit 0
