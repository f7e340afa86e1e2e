#!/bin/bash
# KV objects on a block device: a loop device, formatted, mounted, killed; what is not to be taken is
# refused; a device that fails and comes back, where the kernel has a device mapper.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

loop=
mapper=
clean()
{
	mount_clean
	[ -z "$mapper" ] || dmsetup remove --force "$mapper" 2>/dev/null
	[ -z "$loop" ] || losetup -d "$loop"
}
trap clean EXIT
truncate -s 256M "$MC_TMP/disk.img"
loop=$(losetup --show -f "$MC_TMP/disk.img") || { echo 'needs a loop device'; exit 77; }
mkdir "$MC_TMP/want"

start() { mount_start --dram 192MiB --kv-dram 128MiB "$@"; }

# put NAME BYTES: durable on the device, and remembered.
put()
{
	head -c "$2" /dev/urandom >"$MC_TMP/want/$1"
	cp "$MC_TMP/want/$1" "$mnt/kv/$1" && sync -f "$mnt/kv/$1" || fail "put $1"
	sync "$mnt/kv/$1" || fail "sync $1"
}

fact 'a device that holds no block tier is refused, and one with a file system is not formatted'
refused '--format makes one' --block "$loop"
mkfs.ext4 -q -F "$loop" || { echo 'needs mkfs.ext4'; exit 77; }
refused 'holds ext4' --block "$loop" --format
mkdir "$MC_TMP/fs"
if mount "$loop" "$MC_TMP/fs"; then
	refused 'in use' --block "$loop" --format --force
	umount "$MC_TMP/fs"
	# In a copy of this mount namespace, as other tests make them, it is mounted for longer.
	await 'nobody has it mounted' \
		python3 -c 'import os, sys; os.open(sys.argv[1], os.O_RDWR | os.O_EXCL)' "$loop"
fi

fact 'a formatted device keeps what was put, over restarts and a SIGKILL'
start --block "$loop" --format --force || fail "format: $(cat "$MC_TMP/log")"
for size in 1 5000 300000 3000000 20000000; do
	put "object-$size" "$size"
done
python3 -B - "$mnt/.mooncake/status" <<'END' || fail 'status'
import json
import sys
tiers = json.load(open(sys.argv[1], encoding="utf-8"))["tiers"]
block = [t for t in tiers if t["tier"] == "block" and t["data"] == "kv"]
assert len(block) == 1 and block[0]["used_bytes"] > 0, tiers
END
mount_stop || fail "stop: $mount_rc"
start --block "$loop" || fail 'mount'
objects_there
put after-restart 2000000
mount_kill
mount_gone
mount_forget
start --block "$loop" || fail "mount: $(cat "$MC_TMP/log")"
objects_there

fact 'checkpoint files are read from the device where DRAM does not have them and the remote is empty'
mount_stop || fail "stop: $mount_rc"
mkdir "$MC_TMP/large"
head -c 50000000 /dev/urandom >"$MC_TMP/large/large.bin"
mount_import "$MC_TMP/large" acme/large@r1 || fail 'import'
start --block "$loop" || fail "mount: $(cat "$MC_TMP/log")"
large=$mnt/checkpoints/acme/large@r1/large.bin
cmp "$MC_TMP/large/large.bin" "$large" || fail 'cold read'
resident() { [ "$(getfattr --absolute-names --only-values -n user.mooncake.resident.block "$large")" = 50000000 ]; }
await 'all of it on the device' resident
mount_stop || fail "stop: $mount_rc"
start --block "$loop" || fail "mount: $(cat "$MC_TMP/log")"
ls "$mnt/checkpoints/acme/large@r1" >/dev/null || fail 'list'
await 'all of it on the device after a restart' resident
mv "$MC_TMP/remote/chunks" "$MC_TMP/chunks" || fail 'chunks'
cmp "$MC_TMP/large/large.bin" "$large" || fail 'read from the device'
mv "$MC_TMP/chunks" "$MC_TMP/remote/chunks"
python3 -B - "$mnt/.mooncake/status" <<'END' || fail 'status'
import json
import sys
tiers = json.load(open(sys.argv[1], encoding="utf-8"))["tiers"]
block = [t for t in tiers if t["tier"] == "block" and t["data"] == "checkpoints"]
assert len(block) == 1 and block[0]["used_bytes"] >= 50000000, tiers
END
objects_there

fact 'the tier is called block: in tiers/, for warm and for evict'
[ "$(cd "$mnt/tiers" && echo *)" = 'block dram remote' ] || fail "tiers: $(ls "$mnt/tiers")"
[ "$(du -s -B1 "$mnt/tiers/block/checkpoints" | cut -f1)" = 50000384 ] || fail 'du of checkpoints'
[ "$(stat -c %s "$mnt/tiers/block/kv/object-3000000")" = 3000000 ] || fail 'an object in tiers/block'
"$mooncakefs" du --json "$large" >"$MC_TMP/du" || fail 'du'
grep -qE '"nvme": ?0, ?"block": ?50000000' "$MC_TMP/du" || fail "du: $(cat "$MC_TMP/du")"
rm "$mnt/tiers/block/checkpoints/acme/large@r1/large.bin" || fail 'rm of a file'
[ "$(getfattr --absolute-names --only-values -n user.mooncake.resident.block "$large")" = 0 ] || fail 'evicted'
"$mooncakefs" warm "$large" >/dev/null || fail 'warm'
resident || fail 'warmed'
"$mooncakefs" evict --tier block "$large" || fail 'evict'
[ ! -e "$mnt/tiers/block/checkpoints/acme/large@r1/large.bin" ] || fail 'evicted by the command'
rm "$mnt/tiers/block/kv/object-3000000" || fail 'rm of an object'
[ -e "$mnt/tiers/remote/kv/object-3000000" ] || fail 'no copy on the remote'
objects_there

fact 'what is removed is discarded: the file below the loop device shrinks'
takes() { echo $(($(stat -c %b "$MC_TMP/disk.img") * 512)); }
head -c 60000000 /dev/urandom >"$mnt/kv/bulk" && sync "$mnt/kv/bulk" || fail 'bulk'
before=$(takes)
rm "$mnt/kv/bulk" || fail 'rm'
shrunk() { takes && (($(takes) <= before - 40000000)); }
await "well below $before bytes" shrunk
objects_there

fact 'a device in use is refused'
"$mooncakefs" mount -f "$MC_TMP/fs" --remote "$remote" --block "$loop" >"$MC_TMP/second" 2>&1 &&
	fail 'mounted twice'
grep -q 'in use' "$MC_TMP/second" || fail "$(cat "$MC_TMP/second")"
mount_stop || fail "stop: $mount_rc"

fact 'a device of another store is refused'
refused 'is the block tier' --block "$loop" --block-uuid 00000000000000000000000000000000

fact 'a block tier is not formatted again'
refused 'holds a block tier' --block "$loop" --format

if dmsetup create "mc-block-$$" --table "0 $(blockdev --getsz "$loop") linear $loop 0" 2>/dev/null; then
	mapper=mc-block-$$
	table="0 $(blockdev --getsz "$loop")"
	fact 'a device that fails gives errors and no wrong bytes, and is used again when it is back'
	start --block "/dev/mapper/$mapper" || fail "mount: $(cat "$MC_TMP/log")"
	dmsetup suspend "$mapper"
	dmsetup load "$mapper" --table "$table error"
	dmsetup resume "$mapper"
	head -c 100000 /dev/urandom >"$MC_TMP/lost"
	! { cp "$MC_TMP/lost" "$mnt/kv/lost" && sync "$mnt/kv/lost"; } 2>/dev/null || fail 'synced to nothing'
	dmsetup suspend "$mapper"
	dmsetup load "$mapper" --table "$table linear $loop 0"
	dmsetup resume "$mapper"
	await 'a sync' sync "$mnt/kv/lost"
	cmp "$MC_TMP/lost" "$mnt/kv/lost" || fail 'lost'
	objects_there
	mount_stop || fail "stop: $mount_rc"
fi
