#!/bin/bash
# What does not change: inode numbers, an open file, a revision; bytes that two revisions share; the caps.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

source=$MC_TMP/source
top=$mnt/checkpoints/acme
mkdir "$source"
head -c $((30 * 1048576 + 5)) /dev/urandom >"$source/same.bin"
echo "[\"old\"]" >"$source/config.json"
ln -s same.bin "$source/link"
mount_import "$source" acme/model@r1 || fail 'import'
cp -a "$source" "$MC_TMP/second"
echo "[\"newer\"]" >"$MC_TMP/second/config.json"
inodes() { (cd "$top/model@r1" && stat -c '%n %i %y %s' . config.json link same.bin); }

mount_start --dram 64MiB --nvme "$MC_TMP/nvme,64MiB" || fail 'mount'
first=$(inodes)
exec 7<"$top/model/config.json"

fact 'an open file keeps its revision when a newer one is published'
mount_import "$MC_TMP/second" acme/model@a/b || fail 'import of a second revision'
link_is() { [ "$(readlink "$top/model")" = "$1" ]; }
await 'the link to the newer revision' link_is 'model@a%2Fb'
[ "$(cat <&7)" = '["old"]' ] || fail 'the open file changed'
exec 7<&-
[ "$(cat "$top/model/config.json")" = '["newer"]' ] || fail 'the newest revision'
[ "$(cat "$top/model@r1/config.json")" = '["old"]' ] || fail 'the older revision'

fact 'a slash in a revision is written %2F'
[ "$(cat "$top/model@a%2Fb/config.json")" = '["newer"]' ] || fail 'a revision with a slash'

fact 'bytes that two revisions share are cached once'
trouble right same.bin
mv "$MC_TMP/remote/chunks" "$MC_TMP/chunks.away"
cmp "$top/model@a%2Fb/same.bin" "$source/same.bin" || fail 'the shared file'
mv "$MC_TMP/chunks.away" "$MC_TMP/remote/chunks"
for tier in dram nvme; do
	[ "$tier" = dram ] || trouble wait-resident nvme $((30 * 1048576 + 5)) same.bin
	a=$(getfattr --absolute-names --only-values -n user.mooncake.resident.$tier "$top/model@r1/same.bin")
	b=$(getfattr --absolute-names --only-values -n user.mooncake.resident.$tier "$top/model@a%2Fb/same.bin")
	[ "$a" = "$b" ] && [ "$a" = $((30 * 1048576 + 5)) ] || fail "resident.$tier: $a and $b"
done

fact 'inode numbers, times and sizes are the same after eviction and after a restart'
mkdir "$MC_TMP/large"
head -c 130M /dev/urandom >"$MC_TMP/large/large.bin"
mount_import "$MC_TMP/large" acme/large@r1 || fail 'import'
cat "$top/large@r1/large.bin" >/dev/null || fail 'reading'
[ "$(inodes)" = "$first" ] || fail "after eviction: $(inodes)"
mount_stop || fail "stop: $mount_rc"
mount_start --dram 64MiB --nvme "$MC_TMP/nvme,64MiB" || fail 'mount'
[ "$(inodes)" = "$first" ] || fail "after a restart: $(inodes)"

# With one image in the tier, one stat sees all of it at one moment.
mount_stop || fail "stop: $mount_rc"
rm -rf "$MC_TMP/nvme"
mount_start --dram 64MiB --nvme "$MC_TMP/nvme,64MiB" || fail 'mount'
fact 'file bytes never take more than a tier was given, with four readers of twice its size'
dram=$(mount_dram)
for i in 1 2 3 4; do
	cmp "$top/large@r1/large.bin" "$MC_TMP/large/large.bin" &
	pids[i]=$!
done
most_dram=0 most_nvme=0 looks=0
while [ -n "$(jobs -r -p | grep -vx "$mount_pid")" ]; do
	used=$(df --output=used -B1 "$dram" | tail -n 1)
	[ "$used" -le $most_dram ] || most_dram=$used
	used=$(stat -c %b "$MC_TMP/nvme"/images/*/* 2>/dev/null || echo 0)
	[ $((used * 512)) -le $most_nvme ] || most_nvme=$((used * 512))
	looks=$((looks + 1))
done
for pid in "${pids[@]}"; do
	wait "$pid" || fail 'a reader'
done
echo "in $looks looks: DRAM $((most_dram >> 10)) KiB, NVMe $((most_nvme >> 10)) KiB of 65536 each"
# On top come a page for the map of each image in DRAM, and what the file system needs to find blocks.
[ $most_dram -le $(((64 << 20) + 16384)) ] || fail 'the DRAM tier grew past its size'
[ $most_nvme -le $(((64 << 20) + 65536)) ] || fail 'the NVMe tier grew past its size'
rest=$(du -s -B1 --exclude=images --exclude=held "$MC_TMP/nvme" | cut -f 1)
[ "$rest" -le $((17 << 20)) ] || fail "journal and indexes take $rest bytes"

fact 'df shows a size and a use'
read -r size used < <(df --output=size,used -B1 "$mnt" | tail -n 1)
[ "$size" -gt 0 ] && [ "$used" -le "$size" ] || fail "df: $size $used"

fact 'st_blocks does not depend on where the bytes are'
blocks=$(stat -c %b "$top/model@r1/same.bin")
[ $((blocks * 512)) -ge $((30 * 1048576)) ] || fail "st_blocks: $blocks"
mount_stop || fail "stop: $mount_rc"
exit 0
