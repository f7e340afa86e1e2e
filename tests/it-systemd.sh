#!/bin/bash
# The unit file under systemd itself: a systemd of its own, first of its namespaces, on units of this test alone.
set -uo pipefail

. "$(dirname "$0")/lib/script.sh"
skip() { echo "$*"; exit 77; }
[ "$(id -u)" = 0 ] && [ -c /dev/fuse ] || skip 'needs root and /dev/fuse'
[ -x /lib/systemd/systemd ] && command -v systemctl systemd-analyze systemd-escape nsenter unshare >/dev/null ||
	skip 'needs systemd'

mnt=$MC_TMP/mnt
units=$MC_TMP/units
name=$(systemd-escape -p "$mnt")
service=mooncakefs@$name.service
instance_config=$MC_TMP/etc/mooncakefs/$name.json
outer=
init=
cgroup=

cleanup()
{
	# The first process takes the others of its namespace, and all mounts there, with it.
	[ -z "$init" ] || kill -KILL "$init" 2>/dev/null
	[ -z "$outer" ] || wait "$outer" 2>/dev/null
	for ((i = 0; i < 100; i++)); do
		[ -n "$cgroup" ] && [ -d "$cgroup" ] || break
		find "$cgroup" -depth -type d -exec rmdir {} \; 2>/dev/null
		sleep 0.1
	done
}
trap cleanup EXIT

inside() { nsenter -t "$init" -m -p -C -u -i "$@"; }
ctl() { inside systemctl "$@"; }
property() { ctl show -P "$1" "$service"; }
is() { [ "$(property "$1")" = "$2" ]; }
in_log() { grep -qF -- "$1" "$MC_TMP/log"; }
reads() { [ "$(inside cat "$mnt/checkpoints/o/m/file")" = hello ]; }
# status KEY: of the mount's part of .mooncake/status
status() { inside cat "$mnt/.mooncake/status" | python3 -c 'import json, sys; print(json.load(sys.stdin)["mount"][sys.argv[1]])' "$1"; }
# Process ids of outside: systemd counts those of its namespace.
worker() { grep -lzsxF "MC_INSTANCE=$name" /proc/[0-9]*/environ | cut -d / -f 3 | while read -r p; do
	[ "$(awk '/^NSpid:/ { print $NF }' "/proc/$p/status" 2>/dev/null)" != "$1" ] || echo "$p"
done; }

# The units that ours names; no file of the machine is read, so nothing else is started or mounted.
make_units()
{
	local target

	mkdir -p "$units/mooncakefs@.service.d"
	for target in basic sysinit shutdown network-online local-fs multi-user; do
		printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' $target >"$units/$target.target"
	done
	sed "s|=[^ =]*/mooncakefs |=$MC_BUILD/mooncakefs |" "$MC_BUILD/packaging/mooncakefs@.service" >"$units/mooncakefs@.service"
	# Where there is no journal the log goes to a file; a shorter watchdog shortens the test.
	cat >"$units/mooncakefs@.service.d/test.conf" <<-END
		[Service]
		StandardError=append:$MC_TMP/log
		Environment=MC_INSTANCE=%i
		WatchdogSec=5
	END
}

start_systemd()
{
	local base

	base=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)
	[ -n "$base" ] && cgroup=$base/mooncakefs-test-$$ && mkdir "$cgroup" 2>/dev/null || { cgroup=; skip 'needs a cgroup2 that root may write'; }
	cat >"$MC_TMP/first" <<-END
		set -e
		mount --make-rprivate /
		# What other tests have mounted: a copy here would keep it alive when they unmount it.
		awk '\$3 ~ /^fuse/ || \$2 ~ "^/run/" { print \$2 }' /proc/self/mounts | tac | xargs -r -n 1 umount -l
		mount -t proc proc /proc
		mount --bind /proc/sys /proc/sys
		mount -o remount,bind,ro /proc/sys
		mount -t tmpfs tmpfs /run
		mount -t cgroup2 none /sys/fs/cgroup
		mount --bind "$MC_TMP/etc" /etc
		touch "$MC_TMP/first-done"
		exec env -i container=test "PATH=$PATH" "SYSTEMD_UNIT_PATH=$units" "SYSTEMD_GENERATOR_PATH=$MC_TMP/none" \
			SYSTEMD_LOG_TARGET=console /lib/systemd/systemd --system --unit=basic.target --show-status=no
	END
	cp -a /etc "$MC_TMP/etc"
	mkdir -p "$MC_TMP/etc/mooncakefs"
	bash -c 'echo $$ >"$1/cgroup.procs" && exec unshare --fork --kill-child --pid --mount --cgroup --uts --ipc bash "$2"' \
		- "$cgroup" "$MC_TMP/first" >"$MC_TMP/systemd-log" 2>&1 &
	outer=$!
	await 'the first process' begun
	[ -e "$MC_TMP/first-done" ] || skip "no namespaces for systemd here: $(tail -n 1 "$MC_TMP/systemd-log")"
	init=$(cat "/proc/$outer/task/$outer/children")
	init=${init% }
	await 'systemd' answers
	! gone "$init" || skip "systemd does not start here: $(tail -n 1 "$MC_TMP/systemd-log")"
}

gone() { ! kill -0 "$1" 2>/dev/null; }
begun() { [ -e "$MC_TMP/first-done" ] || gone "$outer"; }
answers() { gone "$init" || [ "$(ctl is-system-running 2>/dev/null)" = running ]; }

mkdir -p "$mnt" "$MC_TMP/src" "$MC_TMP/remote"
echo hello >"$MC_TMP/src/file"
"$MC_BUILD/mooncakefs" import "$MC_TMP/src" o/m@v1 --remote "dir:$MC_TMP/remote" >/dev/null || fail 'import'
make_units
touch "$MC_TMP/log"
start_systemd

fact 'systemd-analyze has nothing to say about the unit'
inside env "SYSTEMD_UNIT_PATH=$units" systemd-analyze verify --man=no "$units/mooncakefs@$name.service" >"$MC_TMP/out" 2>&1 ||
	fail "verify: $(cat "$MC_TMP/out")"
[ ! -s "$MC_TMP/out" ] || fail "verify: $(cat "$MC_TMP/out")"

fact 'without a configuration the service does not start'
ctl start "$service" 2>/dev/null && fail 'started without a configuration'
is Result success && is AssertResult no || fail "assertion: $(property AssertResult)"

fact 'start returns when the tree answers; the mount is seen outside the service'
cat >"$instance_config" <<-END
	{"remote": "dir:$MC_TMP/remote", "dram": "96MiB", "kv-dram": "32MiB", "nvme": "$MC_TMP/nvme,128MiB", "stop-timeout": 10}
END
ctl start "$service" || fail 'start'
reads || fail 'the first read'
is ActiveState active || fail "state: $(property ActiveState)"
is StatusText "Serving $mnt" || fail "status: $(property StatusText)"
main=$(property MainPID)
[ "$(status pid)" = "$main" ] || fail "main process: $main, not $(status pid)"

fact 'a worker that is killed is replaced while files stay open, and the service stays'
coproc holder { inside bash -c "exec 5<'$mnt/checkpoints/o/m/file' && echo open && read -r && cat <&5"; }
read -r -u "${holder[0]}" word && [ "$word" = open ] || fail 'an open file'
kill -KILL "$(worker "$(status worker_pid)")" || fail 'no worker'
await 'takeover' in_log event=taken-over
echo go >&"${holder[1]}"
read -r -u "${holder[0]}" word && [ "$word" = hello ] || fail "the open file afterwards: $word"
reads || fail 'a read after the takeover'
[ "$(property MainPID) $(property NRestarts)" = "$main 0" ] || fail 'the service was restarted'

fact 'reload returns when the new values are in effect'
sed -i 's|}|, "log-level": "debug"}|' "$instance_config"
ctl reload "$service" || fail 'reload'
is ActiveState active || fail "state after reload: $(property ActiveState)"
in_log event=reload || fail 'the log has no reload'

fact 'a worker that hangs is replaced before the watchdog acts: open files go on, and the service stays'
coproc holder { inside bash -c "exec 5<'$mnt/checkpoints/o/m/file' && echo open && read -r && cat <&5"; }
read -r -u "${holder[0]}" word && [ "$word" = open ] || fail 'an open file'
kill -STOP "$(worker "$(status worker_pid)")" || fail 'no worker'
await 'worker-hangs' in_log event=worker-hangs
echo go >&"${holder[1]}"
read -r -u "${holder[0]}" word && [ "$word" = hello ] || fail "the open file afterwards: $word"
reads || fail 'a read after the hang'
[ "$(property MainPID) $(property NRestarts)" = "$main 0" ] || fail 'the service was restarted'

fact 'a main process that hangs misses the watchdog, and the service is started again'
kill -STOP "$(worker "$main")" || fail 'no main process'
await 'restart' is NRestarts 1
await 'active again' is ActiveState active
reads || fail 'a read after the restart'

fact 'what was put is there after a stop, which ends in order and leaves no mount'
inside bash -c "echo kept >'$mnt/kv/key'" || fail 'put'
ctl stop "$service" || fail 'stop'
[ "$(property ActiveState) $(property Result)" = 'inactive success' ] || fail "stopped: $(property ActiveState) $(property Result)"
inside grep -qF " $mnt fuse" /proc/mounts && fail 'mounted after the stop'
ctl start "$service" || fail 'start again'
[ "$(inside cat "$mnt/kv/key")" = kept ] || fail 'the object'
ctl stop "$service" || fail 'stop again'
exit 0
