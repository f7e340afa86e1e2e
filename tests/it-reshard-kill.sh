#!/bin/bash
# A reshard that is killed at any point is resumed by the same command: same id, hardly anything read twice,
# nothing half visible. Over NFS, through a proxy that counts the bytes.
set -euo pipefail
. "$(dirname "$0")/lib/script.sh"
. "$(dirname "$0")/lib/nfs-server.sh"
export XDG_STATE_HOME=$MC_TMP/state

nfs_start "$MC_TMP/nfs" || exit
direct=$(nfs_url "$MC_TMP/nfs")
port=$(sed -nE 's/.*nfsport=([0-9]+).*/\1/p' <<<"$direct")
proxy_dir=$MC_TMP/proxy
mkdir "$proxy_dir"
"$MC_BUILD/tests/tcp-proxy" run "$proxy_dir" "$port" &
proxy_pid=$!
clean()
{
	kill "$proxy_pid" 2>/dev/null
	nfs_stop_all
}
trap clean EXIT
await_from "$proxy_pid" 'a proxy' test -s "$proxy_dir/port"
url=${direct/nfsport=$port/nfsport=$(cat "$proxy_dir/port")}
cat >"$MC_TMP/counter" <<END
#!/bin/sh
verb=\$1; shift
exec "$MC_BUILD/tests/tcp-proxy" "\$verb" "$proxy_dir" "\$@"
END
chmod +x "$MC_TMP/counter"
mounted() { awk '$2 ~ "/mooncakefs-reshard-" { print $2 }' /proc/self/mounts; }
before=$(mounted)
echo 'fact: a reshard that is killed is resumed by the same command, and reads little twice'
python3 -B "$(dirname "$0")/lib/reshard_kill.py" "$MC_BUILD/mooncakefs" "$MC_TMP" "$direct" "$url" "$MC_TMP/counter" "$@"
echo 'fact: the memory of its DRAM tier ends with a killed reshard'
[ "$(mounted)" = "$before" ] || { mounted; exit 1; }
