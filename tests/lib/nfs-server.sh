# Real NFS servers (NFS-Ganesha, NFSv3 on loopback) for tests; to be sourced by a bash script.
#
#   nfs_start DIR     start a server exporting DIR/export as /export, on free ports; it keeps its
#                     configuration, log, pid and ports in DIR. Returns 77 where it cannot run.
#   nfs_url DIR       print the URL of the server: nfs://127.0.0.1/export?nfsport=…
#   nfs_stop DIR      stop it and wait for the process; nothing is done if it does not run
#   nfs_kill DIR      the same by SIGKILL: what a crash of the server leaves
#   nfs_restart DIR   start it again on the ports it had, over the same data
#   nfs_address       the address that servers listen at, 127.0.0.1 when it is not set
#   nfs_stop_all      stop what this shell started; installed as the EXIT trap by nfs_trap
#
# DIR must be on a file system with file handles that the server takes: ext4, XFS, btrfs; not
# overlayfs, and with Ganesha 6 (Debian 13) not tmpfs, which /tmp is there. Needs root.
nfs_lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
nfs_started=()

# Ports below the range of outgoing connections; a collision shows as a server that does not start.
nfs_pick_port()
{
	local port

	while :; do
		port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
	done
	echo "$port"
}

nfs_write_conf()
{
	local dir=$1 port mount_port flusher=

	read -r port mount_port <"$dir/ports"
	# Newer versions want a privilege that containers lack, and know an option to do without.
	! grep -q allow_set_io_flusher_fail "$(command -v ganesha.nfsd)" ||
		flusher='allow_set_io_flusher_fail = true;'
	cat >"$dir/ganesha.conf" <<-END
	NFS_CORE_PARAM {
		NFS_Port = $port; MNT_Port = $mount_port;
		NLM_Port = $((mount_port + 1)); RQUOTA_Port = $((mount_port + 2));
		Bind_addr = ${nfs_address:-127.0.0.1}; Protocols = 3, 4; mount_path_pseudo = true;
		Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; $flusher
	}
	NFSV4 {
		Graceless = true; RecoveryBackend = fs; RecoveryRoot = "$dir/run";
		Only_Numeric_Owners = true; Allow_Numeric_Owners = true;
	}
	EXPORT {
		Export_Id = 1; Path = $dir/export; Pseudo = /export; Protocols = 3, 4;
		Transports = TCP; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
		PrivilegedPort = false; FSAL { Name = VFS; }
	}
	END
}

# One attempt: 0 when the server answers on its port, 1 when it ended or is not ready in 20 s.
nfs_launch()
{
	local dir=$1 port pid i

	read -r port _ <"$dir/ports"
	rm -f "$dir/pid"
	: >"$dir/log"
	LD_PRELOAD=$dir/no-rpcbind.so setsid ganesha.nfsd -F -f "$dir/ganesha.conf" -L "$dir/log" \
		-p "$dir/ganesha.pid" -N NIV_EVENT </dev/null >"$dir/out" 2>&1 3>&- &
	pid=$!
	disown "$pid" 2>/dev/null || true
	echo "$pid" >"$dir/pid"
	for ((i = 0; i < 400; i++)); do
		kill -0 "$pid" 2>/dev/null || return 1
		if grep -q 'Could not create export' "$dir/log"; then
			break
		elif grep -q 'NFS SERVER INITIALIZED' "$dir/log" &&
			(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
			return 0
		fi
		sleep 0.05
	done
	nfs_signal "$dir" KILL
	return 1
}

nfs_start()
{
	local dir attempt

	mkdir -p "$1/export" "$1/run" && dir=$(cd "$1" && pwd) || return 1
	if [ "$(id -u)" != 0 ] || ! command -v ganesha.nfsd >/dev/null; then
		echo 'nfs-server: needs root and nfs-ganesha' >&2
		return 77
	fi
	if [ "$(stat -f -c %T "$dir")" = overlayfs ]; then
		echo "nfs-server: $dir is on overlayfs, which has no file handles" >&2
		return 77
	fi
	nfs_stop "$dir"
	"${CC:-cc}" -shared -fPIC -o "$dir/no-rpcbind.so" "$nfs_lib/no-rpcbind.c" || return 1
	for attempt in 1 2 3 4 5; do
		echo "$(nfs_pick_port) $(nfs_pick_port)" >"$dir/ports"
		nfs_write_conf "$dir"
		if nfs_launch "$dir"; then
			nfs_started+=("$dir")
			return 0
		fi
	done
	echo "nfs-server: does not start ($attempt attempts), from $dir/log:" >&2
	nfs_show_log "$dir" >&2
	return 1
}

# The lines that say why, and the last ones.
nfs_show_log()
{
	grep -E ':(FATAL|MAJ|CRIT) :' "$1/log" | grep -v DBUS | head -n 5
	tail -n 5 "$1/log" "$1/out"
}

nfs_restart()
{
	local dir i

	dir=$(cd "$1" && pwd) || return 1
	nfs_stop "$dir"
	for ((i = 0; i < 5; i++)); do
		nfs_launch "$dir" && nfs_started+=("$dir") && return 0
	done
	echo "nfs-server: does not start again, from $dir/log:" >&2
	nfs_show_log "$dir" >&2
	return 1
}

nfs_url()
{
	local port mount_port

	read -r port mount_port <"$1/ports" || return 1
	echo "nfs://127.0.0.1/export?nfsport=$port&mountport=$mount_port&version=3"
}

# nfs_signal DIR SIGNAL: sends it and waits until the process is gone.
nfs_signal()
{
	local pid i

	pid=$(cat "$1/pid" 2>/dev/null) || return 0
	if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = ganesha.nfsd ]; then
		kill -CONT "$pid" 2>/dev/null || true
		kill "-$2" "$pid" 2>/dev/null || true
		for ((i = 0; i < 200; i++)); do
			nfs_gone "$pid" && break
			sleep 0.05
		done
		nfs_gone "$pid" || kill -KILL "$pid" 2>/dev/null || true
	fi
	rm -f "$1/pid"
}

# A zombie has closed its sockets and files: it counts as gone.
nfs_gone()
{
	local state

	state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null)
	[ -z "$state" ] || [ "$state" = Z ]
}

nfs_stop() { nfs_signal "$1" TERM; }
nfs_kill() { nfs_signal "$1" KILL; }

nfs_stop_all()
{
	local dir

	for dir in "${nfs_started[@]}"; do
		nfs_stop "$dir"
	done
	nfs_started=()
}

nfs_trap() { trap nfs_stop_all EXIT; }
