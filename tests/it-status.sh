#!/bin/bash
# .mooncake/ in a real mount: what it says, and that it says so while the remote is dead.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
. "$(dirname "$0")/lib/nfs-server.sh"
mount_need
nfs_start "$MC_TMP/nfs" || exit

status_check() { timeout 100 python3 -B "$mount_lib/status_checks.py" "$1" "$mnt" "${@:2}" || fail "status $*"; }

clean()
{
	mount_clean
	! mountpoint -q "$MC_TMP/small" || umount "$MC_TMP/small"
	nfs_stop_all
}
trap clean EXIT
mkdir "$MC_TMP/source"
remote=$(nfs_url "$MC_TMP/nfs")
proxy_start "$MC_TMP/proxy" "$remote"
python3 - "$MC_TMP/source" <<'END' || fail 'source'
import sys
with open(f"{sys.argv[1]}/two.bin", "wb") as f:
    f.write(bytes(range(256)) * 8192)
with open(f"{sys.argv[1]}/cold.bin", "wb") as f:
    for i in range(64):
        f.write((b"%015d\n" % i) * 65536)
END
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
remote=$proxy_url
echo '{"depth": 4}' >"$MC_TMP/config.json"
version=$("$mooncakefs" version | sed -nE '1s/^mooncakefs ([^ ]+).*/\1/p')

mount_start --dram 256MiB --kv-dram 192MiB --nvme "$MC_TMP/nvme,1GiB" --config "$MC_TMP/config.json" ||
	fail 'mount'
fact 'files of .mooncake are there, read-only and bounded'
status_check files
fact 'status names build, modes, tiers and remote'
status_check status "$version" "$remote"
fact 'what is read and put shows in status and metrics'
status_check counts
fact 'metrics keep to the format and have no paths in labels'
status_check metrics
fact 'config shows each value in effect and where it is from'
status_check config 'depth=4=configuration file' 'dram=256MiB=command line' 'deadline=30=default' \
	"nvme=$MC_TMP/nvme,1GiB=command line" 'kv-dram=192MiB=command line' 'no-passthrough=false=default'
fact 'events are the last lines of the log'
status_check events "mounted mountpoint $mnt"
fact 'everything answers while 64 readers wait for a dead remote'
status_check outage "$MC_BUILD/tests/tcp-proxy" set "$MC_TMP/proxy"
mount_stop || fail "stop: $mount_rc"

fact 'an NVMe tier that is larger than its disk is told at the mount and in status, with both numbers'
mkdir "$MC_TMP/small"
mount -t tmpfs -o size=256m tmpfs "$MC_TMP/small" || fail 'tmpfs'
remote=dir:$MC_TMP/remote
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
mount_start --dram 192MiB --kv-dram 64MiB --nvme "$MC_TMP/small/nvme,1GiB" || fail 'mount'
logged event=nvme-larger-than-disk nvme_bytes=1073741824 disk_bytes=268435456
status_check short_disk "$MC_TMP/small" 1073741824
mount_stop || fail "stop: $mount_rc"
