# Mounts of the program under test; to be sourced by a bash script with MC_BUILD and MC_TMP set. Brings
# script.sh with it.
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
#   mount_dram            prints where the DRAM tier of checkpoints lies; that of KV: the same and .kv
#   mount_forget          the DRAM tiers of a daemon that is gone go, as at a reboot
#   unlisted              nothing is mounted at $mnt
#   refused TEXT ARG...   fails unless the script's start ARG... fails and its log holds the text
#   objects_there         fails unless kv/ holds each file of $MC_TMP/want as it is there
#   proxy_start DIR URL   a TCP proxy before the NFS server of that URL; $proxy_url leads through it;
#                         ended by mount_clean
#   proxy DIR ORDER...    how it treats connections, see tcp-proxy.c
#   proxy_bytes DIR       bytes that went through it to the client so far
#   kv_figure NAME        prints a figure of kv/ from status
#   hang_fs_start         a file system at $MC_TMP/dfs that hangs in the kernel while there is $MC_TMP/hang;
#                         ended by mount_clean
#   check NAME [ARG...]   one check of mount_checks.py on $MC_TMP/source and the mounted revision
#   trouble NAME [ARG...] the same with trouble_checks.py
#   readers_start SECONDS FILE...   eight readers for so long; returns once they have read something
#   readers_end           waits for them, prints what they saw ($MC_TMP/readers); fails if a byte was wrong
#   logged TEXT...        fails unless a line of the log holds all the texts
#   unlogged TEXT         fails if a line of the log holds the text
#   await_log TEXT        waits for a line of the log
mount_lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$mount_lib/script.sh"
mooncakefs=$MC_BUILD/mooncakefs
mnt=$MC_TMP/mnt
mount_pid=
mount_worker=
proxy_pids=()
hang_fs_pid=
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

mount_clean()
{
	local dram=

	rm -f "$MC_TMP/hang"
	[ -z "$mount_pid" ] || kill -KILL "$mount_pid" 2>/dev/null
	[ ${#proxy_pids[@]} = 0 ] || kill "${proxy_pids[@]}" 2>/dev/null
	proxy_pids=()
	until unlisted; do
		umount -l "$mnt" || break
	done
	# What a killed daemon leaves for its successor: the DRAM tier, named by remote and mount point.
	dram=$(mount_dram)
	umount -l "$dram" "$dram.kv" 2>/dev/null
	rmdir "$dram" "$dram.kv" 2>/dev/null
	dram=/dev/shm/mooncakefs-65534/${dram##*/}
	rm -rf "$dram" "$dram.kv"
	[ -z "$hang_fs_pid" ] || { umount -l "$MC_TMP/dfs" 2>/dev/null; kill "$hang_fs_pid" 2>/dev/null; }
}

hang_fs_start()
{
	mkdir "$MC_TMP/behind" "$MC_TMP/dfs"
	"$MC_BUILD/tests/hang-fs" "$MC_TMP/behind" "$MC_TMP/dfs" "$MC_TMP/hang" &
	hang_fs_pid=$!
	await_from $hang_fs_pid 'the file system' mountpoint -q "$MC_TMP/dfs"
}

unlisted() { ! grep -qF " $mnt fuse.mooncakefs " /proc/self/mounts; }

mount_dram()
{
	printf '/run/mooncakefs/'
	printf '%s\n%s' "${remote%%$'\n'*}" "$mnt" | sha256sum | head -c 32
}

mount_forget()
{
	local dram

	dram=$(mount_dram)
	umount -l "$dram" "$dram.kv" || fail "umount $dram"
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

mount_settled() { grep -q event=mounted "$MC_TMP/log" || ! kill -0 "$mount_pid" 2>/dev/null; }

mount_start()
{
	: >"$MC_TMP/log"
	mount_flags
	"$mooncakefs" mount -f "$mnt" "${remote_flags[@]}" "$@" >>"$MC_TMP/log" 2>&1 &
	mount_pid=$!
	await 'a mount' mount_settled
	if grep -q event=mounted "$MC_TMP/log"; then
		mount_worker=$(cat "/proc/$mount_pid/task/$mount_pid/children")
		return
	fi
	wait "$mount_pid"
	mount_rc=$?
	mount_pid=
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
	[ -z "${mount_worker% }" ] || await 'the end of the worker' test ! -e "/proc/${mount_worker% }"
}

refused()
{
	local text=$1
	shift
	if start "$@"; then
		fail "mounted: $*"
	fi
	grep -qF -- "$text" "$MC_TMP/log" || fail "$text: $(cat "$MC_TMP/log")"
}

objects_there()
{
	local name

	for name in "$MC_TMP/want"/*; do
		cmp "$name" "$mnt/kv/${name##*/}" || fail "${name##*/}"
	done
}

proxy_start()
{
	local port

	port=$(sed -nE 's/.*nfsport=([0-9]+).*/\1/p' <<<"$2")
	mkdir -p "$1"
	"$MC_BUILD/tests/tcp-proxy" run "$1" "$port" &
	proxy_pids+=($!)
	await_from "${proxy_pids[-1]}" 'a proxy' test -s "$1/port"
	proxy_url=${2/nfsport=$port/nfsport=$(cat "$1/port")}
}

proxy() { "$MC_BUILD/tests/tcp-proxy" set "$@"; }
proxy_bytes() { "$MC_BUILD/tests/tcp-proxy" stats "$1" | cut -d ' ' -f 3; }

kv_figure()
{
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["kv"][sys.argv[2]])' "$mnt/.mooncake/status" "$1"
}

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

readers_start()
{
	rm -f "$MC_TMP/started"
	trouble interrupted "$MC_TMP/started" "$@" >"$MC_TMP/readers" &
	readers=$!
	until [ -e "$MC_TMP/started" ]; do
		kill -0 "$readers" 2>/dev/null || readers_end
		sleep 0.01
	done
}

readers_end()
{
	local rc

	wait "$readers"
	rc=$?
	cat "$MC_TMP/readers"
	[ $rc = 0 ] || exit 1
}

logged()
{
	local lines text

	lines=$(cat "$MC_TMP/log")
	for text; do
		lines=$(grep -F -- "$text" <<<"$lines") || fail "no line of the log holds all of: $*"
	done
}

unlogged() { ! grep -F -- "$1" "$MC_TMP/log" || fail "the log holds: $1"; }

await_log() { await "in the log: $1" grep -qF -- "$1" "$MC_TMP/log"; }
