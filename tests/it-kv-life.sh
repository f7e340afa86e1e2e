#!/bin/bash
# kv/ from mount to stop: no room, closed just before an unmount, open at a stop, after SIGKILL.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

kv_check() { timeout 100 python3 -B "$mount_lib/kv_checks.py" "$1" "$mnt/kv/$2" "${@:3}" || fail "kv check $*"; }

mount_start --dram 128MiB --kv-dram 64MiB --deadline 3 --nvme "$MC_TMP/nvme,1GiB" || fail 'mount'
mkdir "$mnt/kv/full" || fail 'mkdir'
kv_check full full
kv_check full_excl full
kv_check full_write full
mount_stop || fail "stop: $mount_rc"
mount_start --dram 128MiB --kv-dram 64MiB --no-passthrough || fail 'mount'
mkdir "$mnt/kv/full" || fail 'mkdir'
kv_check full_write full
mount_stop || fail "stop: $mount_rc"

# A put that waits for room does not hold up a stop.
mount_start --dram 128MiB --kv-dram 64MiB --deadline 60 --stop-timeout 9 --nvme "$MC_TMP/nvme,1GiB" || fail 'mount'
timeout 100 python3 -B "$mount_lib/kv_checks.py" full_at_stop "$mnt/kv/full" "$mount_pid" || fail 'kv check full_at_stop'
wait "$mount_pid"
mount_rc=$?
[ $mount_rc = 0 ] || fail "stop with a put that waits: $mount_rc"
mount_pid=

# What was closed is there after an unmount that follows at once, by whatever way it ends.
mount_start --dram 128MiB --nvme "$MC_TMP/nvme,1GiB" || fail 'mount'
mkdir "$mnt/kv/life" || fail 'mkdir'
for i in 1 2 3; do
	head -c 1000000 /dev/urandom >"$MC_TMP/want.$i"
	cp "$MC_TMP/want.$i" "$mnt/kv/life/$i"
	if [ $i = 1 ]; then
		umount "$mnt" || fail 'umount'
		wait "$mount_pid" || fail 'the end after umount'
		mount_pid=
	elif [ $i = 2 ]; then
		mount_stop || fail "stop: $mount_rc"
	else
		cat "$mnt/kv/life/3" >/dev/null || fail 'published' # RELEASE has come
		mount_kill # DRAM keeps it for the next daemon of this boot
	fi
	mount_start --dram 128MiB --nvme "$MC_TMP/nvme,1GiB" || fail 'mount again'
	for ((j = 1; j <= i; j++)); do
		cmp "$MC_TMP/want.$j" "$mnt/kv/life/$j" || fail "object $j after end $i"
	done
done

# What is open for writing at a stop or a SIGKILL is not published; the version before it stays.
for mode in '' --no-passthrough; do
	if [ -n "$mode" ]; then
		mount_stop || fail "stop: $mount_rc"
		mount_start $mode --dram 128MiB --nvme "$MC_TMP/nvme,1GiB" || fail 'mount'
	fi
	echo old >"$mnt/kv/life/open"
	exec 7>"$mnt/kv/life/open" 8>"$mnt/kv/life/new"
	echo half >&7
	echo half >&8
	mount_stop || fail "stop with open files: $mount_rc"
	exec 7>&- 8>&-
	mount_start $mode --dram 128MiB --nvme "$MC_TMP/nvme,1GiB" || fail 'mount'
	[ "$(cat "$mnt/kv/life/open")" = old ] || fail "the old version after a stop $mode"
	[ ! -e "$mnt/kv/life/new" ] || fail "half an object after a stop $mode"
	exec 7>"$mnt/kv/life/open" 8>"$mnt/kv/life/new"
	echo half >&7
	echo half >&8
	mount_kill
	exec 7>&- 8>&-
	mount_start $mode --dram 128MiB --nvme "$MC_TMP/nvme,1GiB" || fail 'mount'
	[ "$(cat "$mnt/kv/life/open")" = old ] || fail "the old version after SIGKILL $mode"
	[ ! -e "$mnt/kv/life/new" ] || fail "half an object after SIGKILL $mode"
done
mount_stop || fail "stop: $mount_rc"
