# Mounts of the program under test; to be sourced by a bash script with MC_BUILD and MC_TMP set.
#
#   mount_need            skip (77) where a real mount cannot be tried
#   mount_make_source DIR a source tree with every kind of entry
#   mount_import SRC NAME import into $remote, dir:$MC_TMP/remote unless the script changes it; of
#                         several remotes, a line each
#   mount_flags           $remote as the words of an option, in the array remote_flags
#   mount_start [ARG...]  mount it at $MC_TMP/mnt in the foreground mode, wait until it answers;
#                         the process is $mount_pid, its worker $mount_worker, its log $MC_TMP/log
#   mount_gone            waits for the worker of a mount whose process was killed
#   mount_stop            SIGTERM, wait for the process; prints the log if it failed
#   mount_kill            SIGKILL, which leaves a dead mount
#   proxy_start DIR URL   a TCP proxy before the NFS server of that URL; $proxy_url leads through it;
#                         ended by mount_clean
#   proxy DIR ORDER...    how it treats connections, see tcp-proxy.c
#   proxy_bytes DIR       bytes that went through it to the client so far
#   check NAME [ARG...]   one check of mount_checks.py on $MC_TMP/source and the mounted revision
#   trouble NAME [ARG...] the same with trouble_checks.py
#   mount_pause SECONDS   waits that long; for the loops of those who wait for something
#   fact TEXT             says what is being shown now; docs/SEMANTICS.md refers to these texts
#   logged TEXT...        fails unless a line of the log holds all the texts
#   unlogged TEXT         fails if a line of the log holds the text
#   await_log TEXT        waits for a line of the log
mount_lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mooncakefs=$MC_BUILD/mooncakefs
mnt=$MC_TMP/mnt
mount_pid=
mount_worker=
proxy_pids=()
[ -p "$MC_TMP/never" ] || mkfifo "$MC_TMP/never"
exec {mount_never}<>"$MC_TMP/never"
remote=dir:$MC_TMP/remote

mount_need()
{
	if [ "$(id -u)" != 0 ] || [ ! -c /dev/fuse ]; then
		echo 'needs root and /dev/fuse'
		exit 77
	fi
	mkdir -p "$mnt" "$MC_TMP/remote"
	trap mount_clean EXIT
}

# No <(:) here: bash takes a later child that has the pid of its process for that one, and waits for ever.
mount_pause() { read -rt "$1" -u "$mount_never" || :; }

mount_clean()
{
	local dram

	[ -z "$mount_pid" ] || kill -KILL "$mount_pid" 2>/dev/null
	[ ${#proxy_pids[@]} = 0 ] || kill "${proxy_pids[@]}" 2>/dev/null
	proxy_pids=()
	while grep -qF " $mnt fuse.mooncakefs " /proc/self/mounts; do
		umount -l "$mnt" || break
	done
	# What a killed daemon leaves for its successor: the DRAM tier, named by remote and mount point.
	dram=$(printf '%s\n%s' "${remote%%$'\n'*}" "$mnt" | sha256sum | head -c 32)
	umount -l "/run/mooncakefs/$dram" "/run/mooncakefs/$dram.kv" 2>/dev/null
	rmdir "/run/mooncakefs/$dram" "/run/mooncakefs/$dram.kv" 2>/dev/null
	rm -rf "/dev/shm/mooncakefs-65534/$dram" "/dev/shm/mooncakefs-65534/$dram.kv"
}

mount_make_source() { python3 -B "$mount_lib/mount_checks.py" make "$1"; }

mount_flags()
{
	local line

	remote_flags=()
	while IFS= read -r line; do
		remote_flags+=(--remote "$line")
	done <<<"$remote"
}

mount_import()
{
	mount_flags
	"$mooncakefs" import "$1" "$2" "${remote_flags[@]}" >/dev/null
}

mount_start()
{
	local i

	: >"$MC_TMP/log"
	mount_flags
	"$mooncakefs" mount -f "$mnt" "${remote_flags[@]}" "$@" >>"$MC_TMP/log" 2>&1 &
	mount_pid=$!
	for ((i = 0; i < 600; i++)); do
		if grep -q event=mounted "$MC_TMP/log"; then
			mount_worker=$(cat "/proc/$mount_pid/task/$mount_pid/children")
			return
		fi
		if ! kill -0 "$mount_pid" 2>/dev/null; then
			wait "$mount_pid"
			mount_rc=$?
			mount_pid=
			return 1
		fi
		mount_pause 0.05
	done
	echo 'not mounted after 30 s'
	cat "$MC_TMP/log"
	return 1
}

mount_stop()
{
	kill -TERM "$mount_pid"
	wait "$mount_pid"
	mount_rc=$?
	mount_pid=
	[ $mount_rc = 0 ] || tail -n 30 "$MC_TMP/log"
	return $mount_rc
}

mount_kill()
{
	kill -KILL "$mount_pid"
	wait "$mount_pid" 2>/dev/null
	mount_pid=
	mount_gone
}

mount_gone()
{
	local i

	for ((i = 0; i < 600; i++)); do
		[ -n "${mount_worker% }" ] && [ -e "/proc/${mount_worker% }" ] || return 0
		mount_pause 0.05
	done
	fail 'the worker lives on'
}

proxy_start()
{
	local port

	port=$(sed -nE 's/.*nfsport=([0-9]+).*/\1/p' <<<"$2")
	mkdir -p "$1"
	"$MC_BUILD/tests/tcp-proxy" run "$1" "$port" &
	proxy_pids+=($!)
	until [ -s "$1/port" ]; do
		kill -0 "${proxy_pids[-1]}" || fail 'the proxy'
		mount_pause 0.05
	done
	proxy_url=${2/nfsport=$port/nfsport=$(cat "$1/port")}
}

proxy() { "$MC_BUILD/tests/tcp-proxy" set "$@"; }
proxy_bytes() { "$MC_BUILD/tests/tcp-proxy" stats "$1" | cut -d ' ' -f 3; }

check()
{
	python3 -B "$mount_lib/mount_checks.py" "$1" "$MC_TMP/source" "$mnt/checkpoints/acme/model@r1" \
		"${@:2}" || fail "check $*"
}

trouble()
{
	python3 -B "$mount_lib/trouble_checks.py" "$1" "$MC_TMP/source" "$mnt/checkpoints/acme/model@r1" \
		"${@:2}" || fail "trouble $*"
}

fact() { echo "fact: $*"; }

logged()
{
	local lines text

	lines=$(cat "$MC_TMP/log")
	for text; do
		lines=$(grep -F -- "$text" <<<"$lines") || fail "no line of the log holds all of: $*"
	done
}

unlogged() { ! grep -F -- "$1" "$MC_TMP/log" || fail "the log holds: $1"; }

await_log()
{
	local deadline=$((SECONDS + 20))

	until grep -qF -- "$1" "$MC_TMP/log"; do
		[ $SECONDS -lt $deadline ] || fail "not in the log: $1"
		mount_pause 0.05
	done
}

fail()
{
	echo "FAILED: $*"
	tail -n 30 "$MC_TMP/log"
	exit 1
}
