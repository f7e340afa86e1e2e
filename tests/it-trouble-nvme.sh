#!/bin/bash
# The NVMe directory in trouble: its file system full, its bytes damaged, the remote gone as well.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

loop=
disk=$MC_TMP/disk
clean()
{
	mount_clean
	umount -l "$disk" 2>/dev/null
	[ -z "$loop" ] || losetup -d "$loop"
}
trap clean EXIT
mkdir "$disk" "$MC_TMP/source"
truncate -s 96M "$MC_TMP/disk.img"
mkfs.ext4 -q -F -m 0 "$MC_TMP/disk.img" && loop=$(losetup --show -f "$MC_TMP/disk.img") &&
	mount "$loop" "$disk" || { echo 'needs ext4 on a loop device'; exit 77; }
head -c 40M /dev/urandom >"$MC_TMP/source/one.bin"
head -c 80M /dev/urandom >"$MC_TMP/source/two.bin"
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'

fact 'a tier larger than its file system: it makes room there and no read suffers'
mount_start --dram 64MiB --kv-dram 0 --nvme "$disk/tier,512MiB" || fail 'mount'
for i in 1 2; do
	trouble right one.bin two.bin
done
mount_stop || fail "stop: $mount_rc"
grep -q 'read_errors=0 ' "$MC_TMP/log" || fail 'read errors'

fact 'an NVMe file system filled by others: no read suffers, the log names directory, file and way out'
rm -rf "$disk/tier"
mount_start --dram 64MiB --kv-dram 0 --nvme "$disk/tier,512MiB" || fail 'mount'
fallocate -l "$(($(df --output=avail -B1 "$disk" | tail -n 1) - (1 << 20)))" "$disk/others" || fail fallocate
trouble right one.bin two.bin one.bin
logged event=write-behind-failed tier=nvme "dir=$disk/tier" file= 'No space left' 'make room'
lines=$(grep -c event=write-behind-failed "$MC_TMP/log")
[ "$lines" -le 15 ] || fail "$lines lines about a full disk"

fact 'a full NVMe file system is used again once there is room'
rm "$disk/others"
trouble right two.bin one.bin
trouble wait-resident nvme $((1 << 20)) one.bin two.bin
mount_stop || fail "stop: $mount_rc"
grep -q 'read_errors=0 ' "$MC_TMP/log" || fail 'read errors'

# A fresh tier in which one file is wholly resident; its image is known by the digest.
rm -rf "$disk/tier"
mount_start --dram 64MiB --kv-dram 0 --nvme "$disk/tier,64MiB" || fail 'mount'
trouble right one.bin
trouble wait-resident nvme $((40 << 20)) one.bin
digest=$(getfattr --absolute-names --only-values -n user.mooncake.digest "$mnt/checkpoints/acme/model@r1/one.bin")
mount_stop || fail "stop: $mount_rc"
image=$disk/tier/images/${digest:0:2}/$digest-$((40 << 20))
[ -f "$image" ] || fail "no image $image"
"$(dirname "$0")/lib/flip-byte" "$image" $((5 * 1048576 + 77))
"$(dirname "$0")/lib/flip-byte" "$image" $((7 * 1048576 + 77))

fact 'a flipped bit on NVMe with the remote there: the right bytes'
mount_start --dram 64MiB --kv-dram 0 --nvme "$disk/tier,64MiB" || fail 'mount'
trouble right one.bin
await_log event=nvme-bad-block
logged tier=nvme "dir=$disk/tier" "file=$digest" 'fetched'
mount_stop || fail "stop: $mount_rc"
grep -q 'read_errors=0 ' "$MC_TMP/log" || fail 'read errors'

fact 'a flipped bit on NVMe without the remote: EIO for that block only, the log names file, tier and way out'
mount_start --dram 64MiB --kv-dram 0 --nvme "$disk/tier,64MiB" || fail 'mount'
trouble right one.bin
trouble wait-resident nvme $((40 << 20)) one.bin
mount_stop || fail "stop: $mount_rc"
"$(dirname "$0")/lib/flip-byte" "$image" $((9 * 1048576 + 77))
# An image that was once verified may go to the kernel unseen, so here the daemon is told to serve all.
mount_start --dram 64MiB --kv-dram 0 --nvme "$disk/tier,64MiB" --no-passthrough || fail 'mount'
stat "$mnt/checkpoints/acme/model@r1/one.bin" >/dev/null || fail stat
mv "$MC_TMP/remote/chunks" "$MC_TMP/chunks.away"
trouble eio one.bin 9 1
logged event=read-failed "file=\"acme/model@r1/one.bin\"" "digest=$digest" tier=remote 'mooncakefs verify'
logged event=fetch-failed tier=remote "url=$remote" object=chunks/ "file=$digest" 'importing the same source again'

fact 'the block is right again when the remote is back'
mv "$MC_TMP/chunks.away" "$MC_TMP/remote/chunks"
trouble recovers one.bin
mount_stop || fail "stop: $mount_rc"
exit 0
