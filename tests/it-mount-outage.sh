#!/bin/bash
# The NFS server stops answering: metadata goes on, readers get EIO in time, the stop is bounded.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
. "$(dirname "$0")/lib/nfs-server.sh"
mount_need
# A stop that gives up leaves threads behind that wait for the server.
export TSAN_OPTIONS=${TSAN_OPTIONS:-}:report_thread_leaks=0
nfs_start "$MC_TMP/nfs" || exit

clean()
{
	mount_clean
	nfs_stop_all
}
trap clean EXIT
remote=$(nfs_url "$MC_TMP/nfs")
proxy_start "$MC_TMP/proxy" "$remote"

mount_make_source "$MC_TMP/source" || exit 1
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
remote=$proxy_url
mount_start --dram 64MiB --deadline 4 || fail 'mount'
check outage "$MC_BUILD/tests/tcp-proxy" set "$MC_TMP/proxy"
mount_stop || fail "stop: $mount_rc"

# Who waits for the remote would wait for two minutes.
mount_start --dram 64MiB --deadline 120 --stop-timeout 4 || fail 'mount'
stat "$mnt/checkpoints/acme/model@r1" >/dev/null || fail stat
check killed "$MC_BUILD/tests/tcp-proxy" set "$MC_TMP/proxy"

# Still hanging: a stop with a reader under way.
(head -c 4096 "$mnt/checkpoints/acme/model@r1/two.bin" >/dev/null 2>&1) &
start=$SECONDS
mount_stop
[ $((SECONDS - start)) -le 100 ] || fail "the stop took $((SECONDS - start)) s"
grep -qF " $mnt fuse.mooncakefs " /proc/self/mounts && fail 'still mounted'
exit 0
