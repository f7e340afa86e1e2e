#!/bin/bash
# The NVMe tier survives power failures on real ext4 and XFS: a loop device whose file system is shut
# down without a flush again and again. MC_LONG=1 runs many cycles; MC_SEED=n repeats a run.
# timeout: 900
set -euo pipefail

cycles=${MC_CYCLES:-12}
[ -z "${MC_LONG:-}" ] || cycles=400
seed=${MC_SEED:-$RANDOM}
tmp=${MC_TMP:-$(mktemp -d)}
power=${MC_BUILD:-build}/tests/nvme-power
loop=

skip() { echo "$*"; exit 77; }

cleanup()
{
	[ -z "$loop" ] || losetup -d "$loop"
	rm -f "$tmp/disk"
}

[ "$(id -u)" = 0 ] || skip 'needs root for loop devices'
[ -x "$power" ] || skip 'Check is not installed'
mkdir -p "$tmp/mnt"
trap cleanup EXIT

ran=0
for type in ext4 xfs; do
	command -v "mkfs.$type" >/dev/null || continue
	truncate -s 400M "$tmp/disk"
	loop=$(losetup --show -f "$tmp/disk") || skip 'no loop devices'
	case $type in
	ext4) mkfs.ext4 -q -F "$loop" ;;
	xfs) mkfs.xfs -q -f "$loop" ;;
	esac
	# Whoever copies the mount namespace meanwhile gets no copy of this mount: it would outlive the umount.
	CK_FORK=no unshare --mount --propagation private "$power" "$loop" "$tmp/mnt" "$type" "$cycles" "$seed"
	losetup -d "$loop"
	loop=
	rm -f "$tmp/disk"
	ran=$((ran + 1))
done
[ "$ran" -gt 0 ] || skip 'neither mkfs.ext4 nor mkfs.xfs is installed'
