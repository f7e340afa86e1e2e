#!/bin/bash
# kv/ as real clients use it: LMCache's fs connector, SGLang's file backend, ranks that pread one
# object, rsync, cp, tar, dd, fio.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

client() { timeout 100 python3 -B "$mount_lib/kv_clients.py" "$1" "$mnt/kv/c" || fail "client $1"; }

mount_start --dram 640MiB --kv-dram 512MiB --nvme "$MC_TMP/nvme,2GiB" || fail 'mount'
mkdir "$mnt/kv/c" || fail 'mkdir'
client lmcache
client sglang
client ranks

tree=$MC_TMP/tree
mkdir -p "$tree/sub"
for size in 0 1 5000 65536 3000000; do head -c $size /dev/urandom >"$tree/sub/$size"; done
cp -r "$tree/sub" "$tree/again"
find "$tree" -type f -exec touch -d '2001-02-03 04:05:06.789' {} +
# same DIR [stat]: the tree is there, with its times when asked.
same()
{
	diff -r "$tree" "$1" || fail "content of $1"
	[ $# = 1 ] || diff <(cd "$tree" && find . -type f -printf '%p %T@\n' | sort) \
		<(cd "$1" && find . -type f -printf '%p %T@\n' | sort) || fail "times of $1"
}
cp -a "$tree" "$mnt/kv/c/cp" || fail 'cp -a'
same "$mnt/kv/c/cp" times
cp -r "$mnt/kv/c/cp" "$mnt/kv/c/cp2" || fail 'cp within kv/'
same "$mnt/kv/c/cp2"
cp "$tree/again/5000" "$mnt/kv/c/cp/sub/3000000" && cmp "$tree/again/5000" "$mnt/kv/c/cp/sub/3000000" ||
	fail 'cp over an object'
tar --format=posix -C "$tree" -cf - . | { mkdir "$mnt/kv/c/tar" && tar -C "$mnt/kv/c/tar" -xf -; } || fail 'tar -x'
same "$mnt/kv/c/tar" times
mkdir "$MC_TMP/back" && tar -C "$mnt/kv/c/tar" -cf - . | tar -C "$MC_TMP/back" -xf - || fail 'tar -c of kv/'
same "$MC_TMP/back"
kept=tar
if command -v rsync >/dev/null; then
	rsync -rt "$tree/" "$mnt/kv/c/rsync/" || fail 'rsync'
	same "$mnt/kv/c/rsync" times
	[ -z "$(rsync -rti "$tree/" "$mnt/kv/c/rsync/" | grep -v /$)" ] || fail 'rsync copied again'
	head -c 70000 /dev/urandom >"$tree/sub/5000"
	rsync -rt "$tree/" "$mnt/kv/c/rsync/" || fail 'rsync of a change'
	same "$mnt/kv/c/rsync" times
	kept=rsync
fi
dd if="$tree/sub/3000000" of="$mnt/kv/c/dd" bs=64K conv=fsync 2>/dev/null || fail 'dd'
cmp "$tree/sub/3000000" "$mnt/kv/c/dd" || fail 'bytes of dd'
dd if="$tree/sub/65536" of="$mnt/kv/c/dd" bs=64K oflag=direct 2>/dev/null || fail 'dd, O_DIRECT, over it'
cmp "$tree/sub/65536" "$mnt/kv/c/dd" || fail 'bytes of dd, O_DIRECT'
dd if="$tree/sub/1" of="$mnt/kv/c/dd" conv=notrunc 2>/dev/null && fail 'dd conv=notrunc into an object'
if command -v fio >/dev/null; then
	(cd "$MC_TMP" && fio --name=put --directory="$mnt/kv/c" --rw=write --bs=1M --filesize=4M --nrfiles=8 \
		--openfiles=1 --file_service_type=sequential --create_on_open=1 --fallocate=none \
		--verify=crc32c --do_verify=0 --output=fio.log) || fail 'fio put'
	[ "$(find "$mnt/kv/c" -name 'put.*' -size 4096k | wc -l)" = 8 ] || fail 'files of fio'
fi
rm -rf "$mnt/kv/c/cp" || fail 'rm -rf'
[ ! -e "$mnt/kv/c/cp" ] || fail 'still there'

# What was put is there after a stop, with its times.
mount_stop || fail "stop: $mount_rc"
mount_start --dram 640MiB --kv-dram 512MiB --nvme "$MC_TMP/nvme,2GiB" || fail 'mount again'
same "$mnt/kv/c/$kept" times
mount_stop || fail "stop: $mount_rc"
