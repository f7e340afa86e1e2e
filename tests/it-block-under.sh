#!/bin/bash
# A block tier below an NVMe directory: what the directory has no room for moves down, is there after a
# SIGKILL, and is out of reach while the device fails.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

export MC_IO_FAULTS=$MC_TMP/faults MC_IO_FAULTS_ONLY=$MC_TMP/device
truncate -s 128M "$MC_TMP/device"
mkdir "$MC_TMP/want"

start() { mount_start --dram 192MiB --kv-dram 96MiB "$@"; }
both=(--nvme "$MC_TMP/nvme,64MiB" --block "$MC_TMP/device")

# put FIRST LAST: objects of 500,000 bytes, durable, and remembered.
put()
{
	local i
	for ((i = $1; i <= $2; i++)); do
		head -c 500000 /dev/urandom >"$MC_TMP/want/$i"
		cp "$MC_TMP/want/$i" "$mnt/kv/$i" || fail "put $i"
	done
	sync $(seq -f "$mnt/kv/%g" "$1" "$2") || fail "sync $1 to $2"
}

# used TIER: bytes of KV objects there, as status says.
used()
{
	python3 -B -c '
import json, sys
tiers = json.load(open(sys.argv[1], encoding="utf-8"))["tiers"]
print(*[t["used_bytes"] for t in tiers if t["tier"] == sys.argv[2] and t["data"] == "kv"])
' "$mnt/.mooncake/status" "$1"
}

# io RATE: how many of 10,000 reads, syncs and writes of the device fail.
io() { printf '%04d %04d %04d 0000 0000 0000\n' "$1" "$1" "$1" 1<>"$MC_IO_FAULTS"; }

fact 'what the directory has no room for moves to the device, and is there after a SIGKILL and a reboot'
start "${both[@]}" --format || fail "format: $(cat "$MC_TMP/log")"
put 1 90
(($(used nvme) <= 33554432)) || fail "nvme: $(used nvme)"
(($(used block) >= 11000000)) || fail "block: $(used block)"
objects_there
[ "$(cd "$mnt/tiers" && echo *)" = 'block dram nvme remote' ] || fail "tiers: $(ls "$mnt/tiers")"
python3 -B - "$mnt/tiers" <<'END' || fail 'sizes'
import os
import sys
def sizes(tier):
    return {e.name: e.stat().st_blocks * 512 for e in os.scandir(f"{sys.argv[1]}/{tier}/kv")}
nvme, block = sizes("nvme"), sizes("block")
assert len(block) >= 22 and len(nvme) >= 22, (nvme, block)
names = {str(i) for i in range(1, 91)}
assert set(nvme) | set(block) == names, (nvme, block)
for name in names:  # one in parts may lie on both; a sector of each may be rounded up
    assert 500000 <= nvme.get(name, 0) + block.get(name, 0) <= 501024, (name, nvme, block)
END
mount_kill
mount_gone
mount_forget
start "${both[@]}" || fail "mount: $(cat "$MC_TMP/log")"
objects_there
put 91 100
mount_stop || fail "stop: $mount_rc"

fact 'directory and device are refused without each other, and with others'
refused 'give --block' --nvme "$MC_TMP/nvme,64MiB"
refused 'give --nvme' --block "$MC_TMP/device"
refused 'do not belong together' --nvme "$MC_TMP/other,64MiB" --block "$MC_TMP/device"

fact 'fsck checks both, names what is damaged on the device, and repairs it'
cp -a "$MC_TMP/nvme" "$MC_TMP/nvme3"
cp --sparse=always "$MC_TMP/device" "$MC_TMP/device3"
check() { rc=0; "$MC_BUILD/mooncakefs" fsck "$@" >"$MC_TMP/fsck" 2>&1 || rc=$?; }
check "$MC_TMP/nvme3" "$MC_TMP/device3"
[ $rc = 0 ] && ! grep -q 'not looked at' "$MC_TMP/fsck" || fail "whole: $rc $(cat "$MC_TMP/fsck")"
check "$MC_TMP/nvme3"
[ $rc = 0 ] && grep -q 'give its device' "$MC_TMP/fsck" || fail "alone: $rc $(cat "$MC_TMP/fsck")"
check "$MC_TMP/device3"
[ $rc != 0 ] && grep -q 'its directory' "$MC_TMP/fsck" || fail "device alone: $rc $(cat "$MC_TMP/fsck")"
check "$MC_TMP/other" "$MC_TMP/device3"
[ $rc != 0 ] && grep -q 'do not belong together' "$MC_TMP/fsck" || fail "others: $rc $(cat "$MC_TMP/fsck")"
python3 - "$MC_TMP/device3" "$MC_TMP"/want/* <<'END' || fail 'no object lies on the device'
import sys
with open(sys.argv[1], "r+b") as f:
    disk, n = f.read(), 0
    for path in sys.argv[2:]:
        what = open(path, "rb").read()[5000:5064]
        at = disk.find(what) if len(what) == 64 else -1
        while at >= 0:
            f.seek(at)
            f.write(bytes([disk[at] ^ 1]))
            n += 1
            at = disk.find(what, at + 1)
sys.exit(n == 0)
END
check "$MC_TMP/nvme3" "$MC_TMP/device3"
[ $rc = 3 ] && grep -q 'of the block tier at' "$MC_TMP/fsck" || fail "damaged: $rc $(cat "$MC_TMP/fsck")"
check "$MC_TMP/nvme3" "$MC_TMP/device3" --repair
[ $rc = 1 ] || fail "repair: $rc $(cat "$MC_TMP/fsck")"
check "$MC_TMP/nvme3" "$MC_TMP/device3"
[ $rc = 0 ] || fail "repaired: $rc $(cat "$MC_TMP/fsck")"
rm -r "$MC_TMP/nvme3" "$MC_TMP/device3"

fact 'a checkpoint larger than DRAM and the directory is read again without the remote, also after a restart'
mkdir "$MC_TMP/large"
head -c 100000000 /dev/urandom >"$MC_TMP/large/large.bin"
mount_import "$MC_TMP/large" acme/large@r1 || fail 'import'
truncate -s 256M "$MC_TMP/device2"
large=$mnt/checkpoints/acme/large@r1/large.bin
small=(--dram 64MiB --kv-dram 32MiB --nvme "$MC_TMP/nvme2,64MiB" --block "$MC_TMP/device2")
fetched() { sed -n 's/^mooncakefs_fetched_bytes_total \([0-9]*\)$/\1/p' "$mnt/.mooncake/metrics"; }
format=--format
# What leaves DRAM while NVMe has enough to write is not kept: again.
for ((i = 0; i < 10; i++)); do
	mount_start "${small[@]}" $format || fail "mount: $(cat "$MC_TMP/log")"
	format=
	cmp "$MC_TMP/large/large.bin" "$large" || fail 'read'
	bytes=$(fetched)
	[ -n "$bytes" ] || fail "metrics: $(head "$mnt/.mooncake/metrics")"
	mount_stop || fail "stop: $mount_rc"
	((bytes > 0)) || break
done
((i < 10)) || fail "still $bytes bytes from the remote"
mount_start "${small[@]}" || fail "mount: $(cat "$MC_TMP/log")"
ls "$mnt/checkpoints/acme/large@r1" >/dev/null || fail 'list'
mv "$MC_TMP/remote/chunks" "$MC_TMP/chunks" || fail 'chunks'
cmp "$MC_TMP/large/large.bin" "$large" || fail 'read without the remote'
mv "$MC_TMP/chunks" "$MC_TMP/remote/chunks"
mount_stop || fail "stop: $mount_rc"

mooncakefs=$MC_BUILD/tests/mooncakefs-faulty
if [ -x "$mooncakefs" ]; then
	fact 'while the device fails objects are put and synced, and what lies there is read once it is back'
	io 0
	start "${both[@]}" || fail "mount: $(cat "$MC_TMP/log")"
	io 9999
	failed=0
	for ((i = 1; i <= 100; i++)); do
		cmp -s "$MC_TMP/want/$i" "$mnt/kv/$i" || failed=$((failed + 1))
	done
	((failed >= 10 && failed <= 90)) || fail "$failed objects could not be read"
	await 'status tells of the device' grep -F 'block tier below NVMe fails' "$mnt/.mooncake/status"
	rm "$mnt"/kv/9? "$MC_TMP"/want/9? || fail 'rm'
	put 101 110
	io 0
	await_log 'the block tier works again'
	objects_there
	mount_stop || fail "stop: $mount_rc"
fi
