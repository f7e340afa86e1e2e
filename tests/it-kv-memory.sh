#!/bin/bash
# A client with little memory of its own: what it puts counts as the daemon's memory, so that the client is not
# killed for it.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

limit=$((16 << 20)) size=$((4 << 20)) objects=16
group=

cleanup()
{
	mount_clean
	[ -z "$group" ] || await 'an empty group' rmdir "$group"
}
trap cleanup EXIT

# A group of our own: $group, its limit and where it counts what was killed.
make_group()
{
	local base

	if base=$(awk '$3 == "cgroup" && $4 ~ /(^|,)memory(,|$)/ { print $2; exit }' /proc/self/mounts) && [ -n "$base" ]; then
		knob=memory.limit_in_bytes
		kills=memory.oom_control
	else
		base=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)
		grep -qw memory "$base/cgroup.subtree_control" 2>/dev/null || { echo 'needs a memory cgroup'; exit 77; }
		knob=memory.max
		kills=memory.events
	fi
	mkdir "$base/mooncakefs-test-$$" 2>/dev/null || { echo 'needs a memory cgroup that root may make'; exit 77; }
	group=$base/mooncakefs-test-$$
	echo "$limit" >"$group/$knob"
	[ ! -e "$group/memory.swap.max" ] || echo 0 >"$group/memory.swap.max"
}
# client COMMAND...: in the group
client() { bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"; }
killed() { awk '$1 == "oom_kill" { print $2 }' "$group/$kills"; }

make_group
mkdir "$MC_TMP/want"
for ((i = 0; i < objects; i++)); do head -c $size /dev/urandom >"$MC_TMP/want/$i"; done
client python3 -c "x = bytearray(2 * $limit)" 2>/dev/null && fail 'the limit does not hold'
before=$(killed)
for mode in '' --no-passthrough; do
	mount_start --dram 256MiB --kv-dram 192MiB ${mode:+"$mode"} || fail "mount: $mount_rc"
	mkdir "$mnt/kv/d"
	fact "a client whose memory is a quarter of what it puts and gets is not killed for it${mode:+, through the daemon}"
	for ((i = 0; i < objects; i++)); do
		client dd if="$MC_TMP/want/$i" of="$mnt/kv/d/$i" bs=1M status=none || fail "put $i: $?"
	done
	for ((i = 0; i < objects; i++)); do
		client cmp "$MC_TMP/want/$i" "$mnt/kv/d/$i" || fail "get $i: $?"
	done
	if [ -n "$mode" ]; then
		fact 'through the daemon one object may be several times the memory of its client'
		client dd if=/dev/zero of="$mnt/kv/d/large" bs=1M count=96 status=none || fail "a large put: $?"
		client cmp -n $((96 << 20)) /dev/zero "$mnt/kv/d/large" || fail "a large get: $?"
	fi
	[ "$(killed)" = "$before" ] || fail 'processes were killed for want of memory'
	rm -r "$mnt/kv/d"
	mount_stop || fail "stop: $mount_rc"
done
exit 0
