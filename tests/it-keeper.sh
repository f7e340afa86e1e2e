#!/bin/bash
# A keeper whose workers cannot go on: without a remote, dying again and again, of a program that is no good.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

source=$MC_TMP/source
mkdir "$source"
python3 -B "$mount_lib/takeover_load.py" make "$source" || fail 'make'
mount_import "$source" acme/model@r1 || fail 'import'
start() { mount_start --dram 256MiB --kv-dram 64MiB --nvme "$MC_TMP/nvme,512MiB" || fail 'mount'; }

fact 'a worker that dies while the remote is away: its mount waits, and goes on once the remote is back'
start
exec 7<"$mnt/checkpoints/acme/model/large.bin"
lose_remote()
{
	mv "$MC_TMP/remote" "$MC_TMP/remote.away"
	kill -KILL "$(cat "/proc/$mount_pid/task/$mount_pid/children")"
	await_log event=worker-waits
}
lose_remote
mv "$MC_TMP/remote.away" "$MC_TMP/remote"
cmp "$source/large.bin" <(cat <&7) || fail 'a file that was open'
exec 7<&-
await_log event=taken-over
: >"$MC_TMP/log"
fact 'SIGTERM ends such a mount, too'
lose_remote
kill -TERM "$mount_pid"
wait "$mount_pid" && fail 'it ended well'
mount_pid=
unlisted || fail 'still mounted after SIGTERM'
mv "$MC_TMP/remote.away" "$MC_TMP/remote"

fact 'a worker that dies again and again is given up: the mount is gone, and the log says why'
start
timeout 250 python3 -B "$mount_lib/takeover_load.py" "$source" "$mnt/checkpoints/acme/model@r1" "$mnt/kv/t" \
	"$mount_pid" "$MC_TMP/log" loop || fail 'a worker that dies again and again'
wait "$mount_pid" && fail 'the keeper gave up and exits with 0'
mount_pid=
unlisted || fail 'still mounted after the keeper gave up'
logged event=gave-up 'too many workers died'

fact 'a program that cannot take over is refused, and the mount goes on'
cp "$mooncakefs" "$MC_TMP/mooncakefs"
mooncakefs=$MC_TMP/mooncakefs
start
rm "$MC_TMP/mooncakefs"
cp /bin/false "$MC_TMP/mooncakefs"
kill -USR2 "$mount_pid"
await_log event=upgrade-refused
reads() { [ "$(head -n 1 "$mnt/checkpoints/acme/model/dir/small.txt")" = 1 ] || fail "$*"; }
reads 'after a refused upgrade'

# replace LINES: what lies where the program lay, is tried, and then does LINES as the worker.
replace()
{
	printf '#!/bin/bash\ncase $MOONCAKEFS_TAKEOVER in *line=-1) exec "%s" "$@" ;; esac\n%s\n' "$whole" "$1" >"$MC_TMP/next"
	chmod 755 "$MC_TMP/next"
	mv "$MC_TMP/next" "$mooncakefs"
}
events() { grep -cF "event=$1" "$MC_TMP/log"; }
told() { [ "$(events "$1")" = "$2" ]; }
await_events() { await "$2 times in the log: $1" told "$@"; }

fact 'an upgrade whose worker does not start, or dies at once, is undone: the program before goes on, and files stay open'
whole=$MC_BUILD/mooncakefs
exec 7<"$mnt/checkpoints/acme/model/dir/small.txt"
replace 'exit 3'
kill -USR2 "$mount_pid"
await_events upgrade-undone 1
await_events taken-over 1
reads 'after an upgrade that did not start'
replace "(sleep 0.3; kill -KILL \$\$) 0<&- >/dev/null 2>&1 & exec \"$whole\" \"\$@\""
kill -USR2 "$mount_pid"
await_events upgrade-undone 2
await_log 'the program that the mount began with goes on'
reads 'after an upgrade that died'
read -r line <&7 && [ "$line" = 1 ] || fail "an open file: $line"
exec 7<&-
fact 'after that the next upgrade is an upgrade'
replace "exec \"$whole\" \"\$@\""
before=$(cat "/proc/$mount_pid/task/$mount_pid/children") seen=$(events taken-over)
kill -USR2 "$mount_pid"
await_events taken-over $((seen + 1))
reads 'after an upgrade'
mount_worker=$(cat "/proc/$mount_pid/task/$mount_pid/children")
[ "$mount_worker" != "$before" ] && [ "$(events upgrade-undone)" = 2 ] || fail "workers: $before, $mount_worker"
[ "$(tr "\0" " " <"/proc/${mount_worker% }/cmdline" | cut -d " " -f 1)" = "$whole" ] || fail "not the new program"
mount_stop || fail "stop: $mount_rc"
exit 0
