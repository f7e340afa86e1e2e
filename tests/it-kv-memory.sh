#!/bin/bash
# A client with little memory of its own: what it puts counts as the daemon's memory, so that the client is not
# killed for it. Clients without a limit of their own write past the daemon.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

limit=$((16 << 20)) size=$((4 << 20)) objects=16
group=

cleanup()
{
	mount_clean
	[ -z "$group" ] || await 'an empty group' rmdir "$group/inner" "$group" "$group.free"
}
trap cleanup EXIT

# Groups of our own: $group, its limit and where it counts what was killed; one below it and one beside it, which
# have none.
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
	mkdir "$group/inner" "$group.free"
}
# within GROUP COMMAND...
within() { bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$@"; }
# client COMMAND...: in the group, or the one below
below=
client() { within "$group$below" "$@"; }
# kv_check NAME ARG...: one of kv_checks.py, as the words before it
kv_check() { echo python3 -B "$mount_lib/kv_checks.py" "$1" "$mnt/kv/d" "${@:2}"; }
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
	for below in '' /inner; do
		fact "one object may be several times the memory of its client, limited by its group${below:+ or one above}${mode:+, through the daemon}"
		client dd if=/dev/zero of="$mnt/kv/d/large" bs=1M count=96 status=none || fail "a large put: $?"
		client cmp -n $((96 << 20)) /dev/zero "$mnt/kv/d/large" || fail "a large get: $?"
	done
	below=
	if [ -z "$mode" ]; then
		fact 'a client with a limit of its own is served through the daemon, others past it; status counts'
		before_copied=$(kv_figure puts_copied_limit)
		client $(kv_check io cached) || fail 'the mode of a limited client'
		[ "$(kv_figure puts_copied_limit)" = $((before_copied + 1)) ] || fail "counted: $(kv_figure puts_copied_limit)"
		$(kv_check io passthrough) || fail 'the mode of a client in the group of the daemon'
		within "$group.free" $(kv_check io passthrough) || fail 'the mode of a client in another group'
		[ "$(kv_figure puts_copied_limit)" = $((before_copied + 1)) ] || fail "counted: $(kv_figure puts_copied_limit)"
		[ "$(kv_figure puts_copied_unknown)" = 0 ] || fail "unknown: $(kv_figure puts_copied_unknown)"

		fact 'a limited client that joins a put of another one is served through the daemon'
		exec 7>"$mnt/kv/d/joined"
		head -c 1M /dev/zero >&7
		client dd if=/dev/zero of="$mnt/kv/d/joined" bs=1M count=47 oflag=append conv=notrunc status=none ||
			fail "joining: $?"
		head -c 1M /dev/zero >&7
		exec 7>&-
		[ "$(stat -c %s "$mnt/kv/d/joined")" = $((48 << 20)) ] || fail 'the size of what was joined'
		cmp -n $((48 << 20)) /dev/zero "$mnt/kv/d/joined" || fail 'the bytes of what was joined'

		fact 'so is one whose daemon is killed in the midst'
		client $(kv_check io_killed $mount_worker) || fail "a put over a kill: $?"
	fi
	[ "$(killed)" = "$before" ] || fail 'processes were killed for want of memory'
	rm -r "$mnt/kv/d"
	mount_stop || fail "stop: $mount_rc"
done
exit 0
