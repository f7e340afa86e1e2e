#!/bin/bash
# Power failures on real ext4 and XFS under the NVMe tier and the KV store, that over NVMe, over a
# directory as the remote, over both, or over a block tier: a disk records what is written to it, and states are
# sampled that it may be in when the power goes; each is mounted, recovered and compared with what
# had been acknowledged. MC_STATES=n samples n states (500), MC_SEED=n repeats a run, MC_ROUND=n
# begins at that round of it, MC_KEEP=file keeps the disk of a state that fails.
# timeout: 3000
set -euo pipefail

states=${MC_STATES:-500}
seed=${MC_SEED:-$RANDOM}
tmp=${MC_TMP:-$(mktemp -d)}
program=${MC_BUILD:-build}/tests/crash-disk

skip() { echo "$*"; exit 77; }

# Others copy their mount namespace all the time: a mount that is in such a copy outlives its umount.
copy_namespaces()
{
	while [ ! -e "$tmp/end" ]; do
		unshare --mount --propagation private sleep 0.3
	done
}

# The disk and its mounts go with their process.
cleanup()
{
	touch "$tmp/end"
	wait
	rm -rf "$tmp/end" "$tmp"/ext4* "$tmp"/xfs*
	[ -n "${MC_TMP:-}" ] || rmdir "$tmp"
}

[ "$(id -u)" = 0 ] || skip 'needs root'
[ -c /dev/fuse ] || skip 'needs /dev/fuse'
[ -c /dev/loop-control ] || skip 'needs loop devices'
[ -x "$program" ] || skip 'Check is not installed'
trap cleanup EXIT

kinds=()
for type in ext4 xfs; do
	! command -v "mkfs.$type" >/dev/null || kinds+=("$type")
done
[ ${#kinds[@]} -gt 0 ] || skip 'neither mkfs.ext4 nor mkfs.xfs is installed'
copy_namespaces &
for type in "${kinds[@]}"; do
	case $type in
	ext4)
		truncate -s 96M "$tmp/ext4"
		mkfs.ext4 -q -F -b 4096 "$tmp/ext4"
		;;
	xfs)
		truncate -s 320M "$tmp/xfs"
		mkfs.xfs -q -f -s size=4096 "$tmp/xfs"
		;;
	esac
	mkdir "$tmp/$type.d"
	echo 'fact: after a power failure what was acknowledged durable is there, whole, and nothing is half there'
	"$program" "$tmp/$type" "$tmp/$type.d" $((states / ${#kinds[@]})) "$seed" "${MC_ROUND:-0}"
done
