#!/bin/bash
# Readers that know every byte, through all tiers, while connections are cut, hang and are refused, the
# server is killed, the local disk fails reads, syncs and writes, tears them, flips bits, is full, and
# the daemon is killed: right bytes or an error.
# MC_READS=n goes on until so many reads were verified (20000) and each tier has served, MC_SEED=n repeats
# the order of the faults.
# timeout: 300
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
. "$(dirname "$0")/lib/nfs-server.sh"
mount_need
nfs_start "$MC_TMP/nfs" || exit
mooncakefs=$MC_BUILD/tests/mooncakefs-faulty
[ -x "$mooncakefs" ] || { echo 'needs a linker that wraps symbols'; exit 77; }

readonly files=6 mib=40 target=${MC_READS:-20000} rounds_at_least=5
export MC_SEED=${MC_SEED:-$$} MC_STOP=$MC_TMP/stop MC_PROGRESS=$MC_TMP/progress MC_IO_FAULTS=$MC_TMP/faults
echo "MC_SEED=$MC_SEED"
RANDOM=$MC_SEED
reader=
clean()
{
	[ -z "$reader" ] || kill -KILL "$reader" 2>/dev/null
	mount_clean
	nfs_stop_all
}
trap clean EXIT

# io [READS SYNCS TORN LIES FLIPS FULL]: how many of 10,000 calls below the daemon go wrong.
io()
{
	local all=("$@" 0 0 0 0 0 0)

	printf '%04d %04d %04d %04d %04d %04d\n' "${all[@]:0:6}" 1<>"$MC_IO_FAULTS"
}

# What a lying disk did is noticed where every block is checked, so each way has a disk of its own.
way=checked
start()
{
	local how=(--nvme "$MC_TMP/nvme-$way,384MiB")

	[ $way = passed ] || how+=(--no-passthrough)
	mount_start --dram 112MiB --kv-dram 48MiB --deadline 3 --stop-timeout 20 "${how[@]}" || fail 'mount'
}

# Who served what, by the counters of each daemon that ran.
sample()
{
	timeout 20 cat "$mnt/.mooncake/metrics" >"$MC_TMP/metrics" 2>/dev/null
	grep -E '^mooncakefs_(block_hits|block_fetches|kv_hits|opens|reads|bad_blocks|nvme_errors)' "$MC_TMP/metrics" \
		>"$MC_TMP/sample.new" && mv "$MC_TMP/sample.new" "$MC_TMP/sample"
}
daemon_ends()
{
	[ ! -e "$MC_TMP/sample" ] || cat "$MC_TMP/sample" >>"$MC_TMP/samples"
	rm -f "$MC_TMP/sample"
}

# The first tier that has served nothing so far.
unserved()
{
	local tier

	for tier in 'block_hits_total{tier="dram"}' 'block_hits_total{tier="nvme"}' block_fetches_total 'kv_hits_total{tier="dram"}'; do
		{ cat "$MC_TMP/samples" "$MC_TMP/sample" 2>/dev/null || :; } | # either may not be there
			awk -v name="mooncakefs_$tier" '$1 == name { n += $2 } END { exit n == 0 }' || { echo "$tier"; return; }
	done
}

network()
{
	case $1 in
	cuts) proxy "$MC_TMP/proxy" cut-each $((100000 + RANDOM * 100)) ;;
	hang) proxy "$MC_TMP/proxy" hang ;;
	refuse) proxy "$MC_TMP/proxy" refuse ;;
	slow) proxy "$MC_TMP/proxy" rate 20000000 ;;
	killed) nfs_kill "$MC_TMP/nfs" ;;
	esac
}

disk()
{
	case $1 in
	reads) io 300 ;;
	syncs) io 0 3000 ;;
	torn) io 0 0 1000 ;;
	lies) [ $way = passed ] || io 0 0 0 500 ;;
	flips) [ $way = passed ] || io 0 0 0 0 300 ;;
	full) io 0 0 0 0 0 5000 ;;
	esac
}

all_well()
{
	proxy "$MC_TMP/proxy" pass
	io
	[ -e "$MC_TMP/nfs/pid" ] || nfs_restart "$MC_TMP/nfs" || fail 'the server does not come back'
}

# daemon HOW: it ends, all is well again, the next one begins.
daemon()
{
	sample
	case $1 in
	killed | reboot) mount_kill ;;
	esac
	all_well
	case $1 in
	reboot) # nothing of its memory is left
		mount_forget
		;;
	stopped)
		mount_stop || fail "stop: $mount_rc"
		[ $way = passed ] && way=checked || way=passed
		;;
	esac
	daemon_ends
	start
}

pause() { sleep "0.$((RANDOM % 7 + 1))"; }
pick() { local all=("$@"); choice=${all[RANDOM % $#]}; }

mkdir "$MC_TMP/source"
io
"$MC_BUILD/tests/verified-reads" make "$MC_TMP/source" $files $mib || fail 'source'
remote=$(nfs_url "$MC_TMP/nfs")
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
rm -r "$MC_TMP/source"
proxy_start "$MC_TMP/proxy" "$remote"
remote=$proxy_url
start
mkdir -p "$mnt/kv/d" || fail 'mkdir'
fact 'reads of 4 to 64 KiB under random faults of network, server, disk and daemon: right bytes or an error'
"$MC_BUILD/tests/verified-reads" run "$mnt/checkpoints/acme/model@r1" "$mnt/kv/d" $files $mib &
reader=$!
n=0 round=0 moved=$SECONDS told=$SECONDS
while [ "$n" -lt "$target" ] || [ $round -lt $rounds_at_least ] || { [ $round -lt 40 ] && [ -n "$(unserved)" ]; }; do
	pick none cuts hang refuse slow killed
	happens=$choice
	network "$choice"
	pick none reads syncs torn lies flips full
	happens+=" $choice"
	disk "$choice"
	pause
	pause
	pick none none killed reboot stopped
	happens+=" $choice"
	[ "$choice" = none ] && all_well || daemon "$choice"
	pause
	[ -e "$MC_TMP/metrics" ] && [ "$choice" != none ] || sample
	kill -0 $reader 2>/dev/null || fail "the readers ended in round $round: $happens"
	was=$n
	read -r n kv errors wrong <"$MC_PROGRESS" || fail 'progress'
	[ "$n" = "$was" ] || moved=$SECONDS
	[ $((SECONDS - moved)) -lt 120 ] || fail "no read for 120 s; round $round: $happens"
	round=$((round + 1))
	if [ $((SECONDS - told)) -ge 20 ]; then
		echo "$SECONDS s: $round rounds, $n reads, $kv of them of KV objects, $errors errors, $wrong wrong"
		told=$SECONDS
	fi
done
touch "$MC_STOP"
wait $reader || fail 'wrong bytes'
reader=
sample
daemon_ends
mount_stop || fail "stop: $mount_rc"
echo "$round rounds in $SECONDS s; what served (blocks, objects):"
awk '{ sum[$1] += $2 } END { for (name in sum) print "  " name, sum[name] }' "$MC_TMP/samples" | sort
tier=$(unserved)
[ -z "$tier" ] || fail "nothing served by $tier"
exit 0
