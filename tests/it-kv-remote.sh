#!/bin/bash
# kv/ over a remote, NFS and a directory: copies, eviction, ranges, names, a server that is away, bad bytes.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
. "$(dirname "$0")/lib/nfs-server.sh"
mount_need

check_kv() { timeout 200 python3 -B "$mount_lib/kv_remote_checks.py" "$1" "$mnt/kv/d" "${@:2}" || fail "kv check $*"; }
start() { mount_start --dram 160MiB --kv-dram 96MiB --kv-replicas 1 --deadline 3 "$@" || fail 'mount'; }

# story ROOT: on $remote, whose files lie below ROOT.
story()
{
	fact 'put, copied, evicted, read again'
	start
	mkdir "$mnt/kv/d" || fail 'mkdir'
	check_kv put
	check_kv get
	fact 'rename, replace and unlink reach the remote'
	check_kv change "$1"
	fact 'what was put is found after a stop, by its name alone'
	mount_stop || fail "stop: $mount_rc"
	start
	check_kv ranges
	fact 'a flipped byte on the remote: EIO where it is read, right bytes beside it, the log names the key'
	check_kv flip "$1"
	check_kv damaged
	logged event=remote-bad-object tier=remote "url=$remote" 'key="d/s' 'put the object again'
	mount_stop || fail "stop: $mount_rc"
}

fact 'over a directory'
story "$MC_TMP/remote"

fact 'with a copy on NVMe a damaged one on the remote does not matter'
remote=dir:$MC_TMP/remote2
mkdir "$MC_TMP/remote2"
start --nvme "$MC_TMP/nvme,1GiB"
mkdir "$mnt/kv/d" || fail 'mkdir'
check_kv put
check_kv flip "$MC_TMP/remote2"
check_kv other_copy
mount_stop || fail "stop: $mount_rc"
unlogged remote-bad-object

nfs_start "$MC_TMP/nfs"
case $? in
0) ;;
77) exit 0 ;;
*) fail 'the NFS server' ;;
esac
clean()
{
	mount_clean
	nfs_stop_all
}
trap clean EXIT
proxy_start "$MC_TMP/proxy" "$(nfs_url "$MC_TMP/nfs")"
remote=$proxy_url
to_client() { proxy_bytes "$MC_TMP/proxy"; }

fact 'over NFS'
story "$MC_TMP/nfs/export"

fact 'a range read costs the server the blocks that it touches'
start
stat "$mnt/kv/d/s12582913" >/dev/null || fail 'stat'
before=$(to_client)
check_kv ranges
after=$(to_client)
echo "from the server for two reads of 4 KiB in 12 MiB: $((after - before)) bytes"
[ $((after - before)) -le $((2 * 1048576 + 65536)) ] || fail 'more than the blocks touched'

fact 'a server that is away: what is here is read, what is put waits, all is well once it is back'
timeout 60 python3 -B -c "
import sys; sys.path.insert(0, '$mount_lib')
from kv_remote_checks import *
put('$mnt/kv/d/here', body('here', MIB)); copied('$mnt/kv/d/here')
put('$mnt/kv/d/s4194311', body('s4194311', 4194311)); copied('$mnt/kv/d/s4194311')" || fail 'puts'
nfs_stop "$MC_TMP/nfs"
check_kv outage
nfs_restart "$MC_TMP/nfs" || fail 'the server does not come back'
check_kv after_outage
mount_stop || fail "stop: $mount_rc"
