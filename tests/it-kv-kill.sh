#!/bin/bash
# The daemon is killed again and again while clients put, replace, rename, remove and sync objects and
# others read a checkpoint: what was acknowledged is there, whole, nothing else is half there.
# MC_KILLS=n kills n times (6), MC_SEED=n repeats their choices.
# timeout: 3000
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

kill_py() { python3 -B "$mount_lib/kv_kill.py" "$@"; }

mkdir "$MC_TMP/source" "$MC_TMP/state"
for name in one two; do
	head -c $((9 * 1048576 + 777)) /dev/urandom >"$MC_TMP/source/$name.bin"
done
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
seed=${MC_SEED:-$$}
RANDOM=$seed
echo "MC_SEED=$seed"

start() { mount_start --dram 160MiB --kv-dram 96MiB --nvme "$MC_TMP/nvme,1GiB" --kv-ack "$1" --kv-replicas $((RANDOM % 2)) || fail 'mount'; }

acks=(dram nvme dram remote)
for ((round = 0; round < ${MC_KILLS:-6}; round++)); do
	ack=${acks[round % 4]}
	start "$ack"
	mkdir -p "$mnt/kv/kill" || fail 'mkdir'
	kill_py work "$mnt/kv/kill" "$MC_TMP/state" "$mount_pid" $((RANDOM % 900)) $((seed + round)) "$ack" \
		"$MC_TMP/source" "$mnt/checkpoints/acme/model@r1" || fail "round $round"
	wait "$mount_pid" 2>/dev/null
	mount_pid=
	mount_gone
	where=memory
	if ((RANDOM % 2 == 0)); then
		where=disk # as after a reboot
		mount_forget
	fi
	start dram
	fact 'after a SIGKILL what was acknowledged is there, whole, and what was removed is not'
	kill_py check "$mnt/kv/kill" "$MC_TMP/state" $where || fail "round $round: $where, ack $ack"
	mount_stop || fail "stop: $mount_rc"
done
