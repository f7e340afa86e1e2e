#!/bin/bash
# Two daemons with local tiers of their own on one NFS remote (a directory, where there is no server):
# what one puts, replaces or removes the other one sees, and never a mixture.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
. "$(dirname "$0")/lib/nfs-server.sh"
mount_need
nfs_start "$MC_TMP/nfs"
case $? in
0) remote=$(nfs_url "$MC_TMP/nfs") ;;
77) ;;
*) fail 'the NFS server' ;;
esac

one=$mnt two=$MC_TMP/mnt2 pids=()
mkdir "$two"
clean()
{
	for mnt in "$one" "$two"; do mount_clean; done
	[ ${#pids[@]} = 0 ] || kill -KILL "${pids[@]}" 2>/dev/null
	nfs_stop_all
}
trap clean EXIT

# node N: mount_start for the mount point $mnt, with NVMe of its own.
node()
{
	mount_start --dram 160MiB --kv-dram 96MiB --nvme "$MC_TMP/nvme$1,1GiB" --kv-replicas 1 || fail "node $1"
	pids+=("$mount_pid")
	mount_pid=
}
node 1
mkdir "$mnt/kv/d" || fail 'mkdir'
mnt=$two
node 2

nodes() { timeout 200 python3 -B "$mount_lib/kv_remote_checks.py" "$1" "$one/kv/d" "$two/kv/d" || fail "nodes: $1"; }
fact 'what one node put the other one reads, directories included'
nodes found
fact 'a key that both put is left as one whole version'
nodes both &
both=$!
fact 'what one replaces or removes the other one sees; open readers see no mixture'
nodes changes
wait $both || exit 1

for mount_pid in "${pids[@]}"; do
	mount_stop || fail "stop: $mount_rc"
done
pids=()
