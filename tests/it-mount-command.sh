#!/bin/bash
# The mount command from the outside: background and its errors, a second mount, a busy one, SIGTERM.
set -euo pipefail
. "$(dirname "$0")/lib/script.sh"

program=$MC_BUILD/mooncakefs
export XDG_STATE_HOME=$MC_TMP/state
mnt=$MC_TMP/mnt
remote=(--remote "dir:$MC_TMP/remote" --dram 64MiB)
mounted() { grep -qF " $mnt fuse.mooncakefs " /proc/self/mounts; }
cleanup()
{
	mounted && "$program" umount --lazy "$mnt"
	[ -z "${reader:-}" ] || kill "$reader" 2>/dev/null
	return 0
}

[ "$(id -u)" = 0 ] && [ -c /dev/fuse ] || { echo 'needs root and /dev/fuse'; exit 77; }
trap cleanup EXIT
mkdir -p "$MC_TMP/remote" "$MC_TMP/src" "$mnt"
echo hello >"$MC_TMP/src/file"
"$program" import "$MC_TMP/src" o/m@v1 --remote "dir:$MC_TMP/remote"

# Ready means ready, and nothing of the caller is kept open: the pipe ends although the daemon lives.
out=$("$program" mount "$mnt" "${remote[@]}" --json 2>&1) || fail "mount: $out"
[ "$out" = "{\"event\":\"mounted\",\"mountpoint\":\"$mnt\"}" ] || fail "mount prints: $out"
[ "$(cat "$mnt/checkpoints/o/m/file")" = hello ] || fail 'the file'
rc=0
"$program" mount "$mnt" "${remote[@]}" 2>"$MC_TMP/err" || rc=$?
[ $rc = 1 ] && grep -q 'already' "$MC_TMP/err" || fail "a second mount: $rc $(cat "$MC_TMP/err")"

# Busy: who, and exit code 4; the mount lives on.
sleep 1000 <"$mnt/checkpoints/o/m/file" &
reader=$!
is_sleep() { [ "$(cat "/proc/$1/comm")" = sleep ]; }
await 'the reader' is_sleep "$reader"
rc=0
"$program" umount "$mnt" --json >"$MC_TMP/out" 2>"$MC_TMP/err" || rc=$?
[ $rc = 4 ] || fail "umount of a busy mount: $rc"
[ "$(tr '\n' ' ' <"$MC_TMP/out")" = "{\"event\":\"holder\",\"pid\":$reader,\"name\":\"sleep\",\"how\":\"open file\"} {\"event\":\"busy\",\"mountpoint\":\"$mnt\"} " ] ||
	fail "holder: $(cat "$MC_TMP/out")"
grep -q "process $reader (sleep): open file" "$MC_TMP/err" || fail "holder: $(cat "$MC_TMP/err")"
mounted || fail 'not mounted any more'
if command -v setpriv >/dev/null; then
	chmod 755 "$MC_TMP"
	cp "$program" "$MC_TMP/program"
	rc=0
	setpriv --reuid=65534 --regid=65534 --clear-groups "$MC_TMP/program" umount "$mnt" 2>"$MC_TMP/err" || rc=$?
	[ $rc = 1 ] && grep -q 'be root or the user who mounted' "$MC_TMP/err" ||
		fail "umount by another user: $rc $(cat "$MC_TMP/err")"
	mounted || fail 'another user unmounted it'
fi
"$program" umount --lazy "$mnt"
mounted && fail 'still mounted'
# The old daemon serves its reader while a new one has the place.
"$program" mount "$mnt" "${remote[@]}"
[ "$(cat "/proc/$reader/fd/0")" = hello ] || fail 'the reader of the detached mount'
[ "$(cat "$mnt/checkpoints/o/m/file")" = hello ] || fail 'the new mount'
kill $reader
wait $reader 2>/dev/null || true
reader=
"$program" umount "$mnt"

# Options from a file and from -o; the daemon is gone when umount returns, so the NVMe tier is free.
echo "{\"remote\": \"dir:$MC_TMP/remote\", \"dram\": \"64MiB\"}" >"$MC_TMP/config.json"
for i in 1 2 3; do
	"$program" mount "$mnt" --config "$MC_TMP/config.json" -o "ro,nvme=$MC_TMP/nvme\\,128MiB"
	[ "$(cat "$mnt/checkpoints/o/m/file")" = hello ] || fail "round $i"
	[ -z "$("$program" umount "$mnt")" ] || fail 'umount prints'
done

"$program" mount "$mnt" --remote "dir:$MC_TMP/remote" --dram 99TiB 2>"$MC_TMP/err"
grep -q 'event=dram-larger-than-memory dram_bytes=[0-9]* memory_bytes=[0-9]* ' "$MC_TMP/err" || fail "no warning: $(cat "$MC_TMP/err")"
"$program" umount "$mnt"

# What goes wrong before it is ready is told by the command itself.
rc=0
"$program" mount "$mnt" --remote "dir:$MC_TMP/absent" 2>"$MC_TMP/err" || rc=$?
[ $rc = 1 ] && grep -q "$MC_TMP/absent" "$MC_TMP/err" || fail "absent remote: $rc $(cat "$MC_TMP/err")"
"$program" mount "$mnt" "${remote[@]}" --nvme "$MC_TMP/nvme,128MiB"
mkdir "$MC_TMP/mnt2"
rc=0
"$program" mount "$MC_TMP/mnt2" "${remote[@]}" --nvme "$MC_TMP/nvme,128MiB" 2>"$MC_TMP/err" || rc=$?
[ $rc = 1 ] && grep -q "$MC_TMP/nvme" "$MC_TMP/err" || fail "shared NVMe: $rc $(cat "$MC_TMP/err")"
"$program" umount "$mnt"
if command -v setpriv >/dev/null; then
	rc=0
	setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin "$program" mount "$mnt" "${remote[@]}" 2>"$MC_TMP/err" || rc=$?
	[ $rc = 1 ] && grep -q 'it takes CAP_SYS_ADMIN' "$MC_TMP/err" || fail "without the right: $rc $(cat "$MC_TMP/err")"
fi

# SIGTERM ends a mount in the foreground with 0.
: >"$MC_TMP/log"
"$program" mount -f "$mnt" "${remote[@]}" 2>"$MC_TMP/log" &
pid=$!
await_from $pid 'a mount in the foreground' grep -q event=mounted "$MC_TMP/log"
kill -TERM $pid
wait $pid || fail "SIGTERM: $?"
mounted && fail 'still mounted after SIGTERM'
exit 0
