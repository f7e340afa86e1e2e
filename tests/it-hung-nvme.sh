#!/bin/bash
# The file system of --nvme hangs in the kernel: what is in DRAM is served, calls end within the
# deadline, a stop unmounts within its bound, and nothing is lost.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need
mkdir "$MC_TMP/source"
hang_fs_start
for name in one.bin two.bin; do
	head -c $((20 * 1048576 + 99)) /dev/urandom >"$MC_TMP/source/$name"
done
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
model=$mnt/checkpoints/acme/model@r1
start() { mount_start --dram 96MiB --kv-dram 32MiB --nvme "$MC_TMP/dfs/tier,128MiB" --deadline 2 --stop-timeout 6 || fail 'mount'; }
# within SECONDS COMMAND...: it ends; its exit code.
within()
{
	local began=$SECONDS rc=0

	timeout -s KILL 60 "${@:2}" 2>"$MC_TMP/err" || rc=$?
	echo "$((SECONDS - began)) s, $rc: ${*:2}"
	[ $((SECONDS - began)) -le "$1" ] || fail "took $((SECONDS - began)) s: ${*:2}"
	return $rc
}
right() { within 20 cmp "$MC_TMP/source/$1" "$2"; }

start
right one.bin "$model/one.bin" || fail 'one.bin'
head -c 3000000 /dev/urandom >"$MC_TMP/source/small"
within 20 dd if="$MC_TMP/source/small" of="$mnt/kv/before" bs=1M conv=fsync status=none || fail 'before'
await_size() { [ "$(stat -c %s "$mnt/kv/before")" = 3000000 ]; }
await 'before' await_size
: >"$MC_TMP/hang"
fact 'the file system of --nvme hangs: what is in DRAM is read, puts are taken and read'
right one.bin "$model/one.bin" || fail 'one.bin'
right small "$mnt/kv/before" || fail 'before'
within 20 cp "$MC_TMP/source/small" "$mnt/kv/during" || fail 'a put'
right small "$mnt/kv/during" || fail 'during'
fact 'what has to be written there ends within the deadline; status and listings are answered'
within 20 mv "$mnt/kv/before" "$mnt/kv/renamed"
within 20 ls "$mnt/kv" >/dev/null || fail 'ls'
await_log 'NVMe does not answer'
within 20 grep 'NVMe does not answer' "$mnt/.mooncake/status" || fail 'status'
fact 'a stop unmounts within its bound; what was put is there when it answers again'
kill -TERM "$mount_pid"
await 'unmounting' unlisted
# A process whose threads the kernel holds cannot end.
rm "$MC_TMP/hang"
wait "$mount_pid"
mount_pid=
start
right small "$mnt/kv/during" || fail 'during'
right two.bin "$model/two.bin" || fail 'two.bin'
mount_stop || fail "stop: $mount_rc"
