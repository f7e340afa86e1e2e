#!/bin/bash
# A mount outlives its worker: kills and an upgrade under readers and writers, and the ends of both processes.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

source=$MC_TMP/source
mkdir "$source"
python3 -B "$mount_lib/takeover_load.py" make "$source" || fail 'make'
mount_import "$source" acme/model@r1 || fail 'import'
python3 -B "$mount_lib/view_checks.py" make llama "$MC_TMP/llama" || fail 'make'
mount_import "$MC_TMP/llama" acme/llama@r1 || fail 'import'
start() { mount_start --dram 256MiB --kv-dram 64MiB --nvme "$MC_TMP/nvme,512MiB" "$@" || fail 'mount'; }
load()
{
	timeout 250 python3 -B "$mount_lib/takeover_load.py" "$source" "$mnt/checkpoints/acme/model@r1" "$mnt/kv/t" \
		"$mount_pid" "$MC_TMP/log" "$@" || fail "load $*"
}

start
cat "$mnt"/checkpoints/acme/model/*.bin >/dev/null || fail 'a first pass'
fact 'five workers are killed under 16 readers: no call fails, and every byte is right'
load kills
fact 'another program takes over under 16 readers'
load upgrade
fact 'a put under way at a kill is whole or fails; what was closed is there'
load writers open_put
fact 'what was open in kv/ at a kill is read although its key was replaced, removed or renamed since'
load names_go
fact 'a version that had lost its name before the kill is ESTALE'
load names_gone
fact 'what lived in the worker alone is ESTALE: texts of .mooncake/, layouts being written'
load stale

fact 'status tells of the keeper and its workers'
python3 - "$mnt/.mooncake/status" "$mount_pid" <<'END' || fail 'status'
import json, sys
s = json.load(open(sys.argv[1]))
assert s["mount"]["pid"] == int(sys.argv[2]) != s["mount"]["worker_pid"], s["mount"]
assert s["mount"]["workers_started"] > 7, s["mount"]
assert s["modes"]["takeover"] == {"on": True, "why": ""}, s["modes"]
END
fact 'SIGTERM to the keeper ends both in order'
mount_worker=$(cat "/proc/$mount_pid/task/$mount_pid/children")
exec 7<"$mnt/checkpoints/acme/model/large.bin"
mount_stop || fail "stop: $mount_rc"
mount_gone
exec 7<&-
unlisted || fail 'still mounted'
logged event=unmounted clean=yes

fact 'umount ends both, also after a takeover'
start
kill -KILL "${mount_worker% }"
await_log event=taken-over
umount "$mnt" || fail 'umount'
wait "$mount_pid" || fail 'the keeper fails when it is unmounted'
mount_pid=
exit 0
