#!/bin/bash
# The daemon under a service manager: readiness, watchdog, reload, state, stop. Python plays the manager.
set -euo pipefail

[ "$(id -u)" = 0 ] && [ -c /dev/fuse ] || { echo 'needs root and /dev/fuse'; exit 77; }
mnt=$MC_TMP/mnt
export XDG_STATE_HOME=$MC_TMP/state
cleanup()
{
	while grep -qF " $mnt fuse.mooncakefs " /proc/self/mounts; do
		umount -l "$mnt" || break
	done
}
trap cleanup EXIT
mkdir -p "$MC_TMP/remote" "$MC_TMP/src" "$mnt"
echo hello >"$MC_TMP/src/file"
head -c 100000000 /dev/urandom >"$MC_TMP/src/big"
"$MC_BUILD/mooncakefs" import "$MC_TMP/src" o/m@v1 --remote "dir:$MC_TMP/remote" >/dev/null
echo "{\"remote\": \"dir:$MC_TMP/remote#name=first\", \"dram\": \"160MiB\", \"kv-dram\": \"64MiB\", \"nvme\": \"$MC_TMP/nvme,128MiB\"}" >"$MC_TMP/config.json"
python3 -B "$(dirname "$0")/lib/service_checks.py" "$MC_BUILD/mooncakefs" "$mnt" "$MC_TMP/config.json" \
	ready watchdog hang reload reload_sizes reload_kept reload_remotes reload_mistake log_json dump stop abstract flag_stays
