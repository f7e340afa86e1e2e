#!/bin/bash
# The daemon is killed at random points of serving: a restart has what NVMe had committed, without one
# byte from the remote.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

mkdir "$MC_TMP/source"
for name in one two three; do
	head -c $((30 * 1048576 + 777)) /dev/urandom >"$MC_TMP/source/$name.bin"
done
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
files=(one.bin two.bin three.bin)
RANDOM=${MC_SEED:-$$}
echo "seed ${MC_SEED:-$$}"
start() { mount_start --dram 64MiB --nvme "$MC_TMP/nvme,512MiB" --deadline 5 || fail 'mount'; }

# The DRAM tier of a killed daemon is adopted by the next; without it only NVMe can have the bytes.
drop_dram()
{
	local dram

	dram=$(mount_dram)
	# The kernel lets go of what its io_uring held a moment after the process is gone.
	await "umount $dram" umount -q "$dram"
}

held=0
for round in 1 2 3; do
	first=$(((round - 1) * (RANDOM % 30 + 1) << 20))
	rm -rf "$MC_TMP/nvme"
	start
	fact 'readers of a daemon that is killed get right bytes or an error, at once'
	out=$(trouble serve-and-die "$mount_pid" "$first" $((RANDOM % 500)) "${files[@]}") || { echo "$out"; exit 1; }
	echo "round $round: $out"
	wait "$mount_pid" 2>/dev/null
	mount_pid=
	mount_gone
	held=$(sed -nE 's/^held ([0-9]+)$/\1/p' <<<"$out")
	drop_dram

	fact 'a restart serves all that NVMe had committed, and only that, without a byte from the remote'
	start
	stat "$mnt/checkpoints/acme/model@r1/one.bin" >/dev/null || fail stat
	mv "$MC_TMP/remote/chunks" "$MC_TMP/chunks.away"
	trouble committed "$held" "${files[@]}"
	mv "$MC_TMP/chunks.away" "$MC_TMP/remote/chunks"
	fact 'the rest is fetched as if nothing had happened'
	trouble recovers "${files[@]}"
	mount_stop || fail "stop: $mount_rc"
done

fact 'a killed daemon leaves its DRAM tier to the next one, which reads nothing again'
rm -rf "$MC_TMP/nvme"
start
trouble right one.bin
mount_kill
mv "$MC_TMP/remote/chunks" "$MC_TMP/chunks.away"
start
trouble right one.bin
mv "$MC_TMP/chunks.away" "$MC_TMP/remote/chunks"
mount_stop || fail "stop: $mount_rc"
exit 0
