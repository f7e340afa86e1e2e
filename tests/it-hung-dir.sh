#!/bin/bash
# One of two remotes is a mounted directory whose file system hangs in the kernel: readers, names, puts
# and imports go on with the other one, with a bounded number of threads; then it is used again.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need
mkdir "$MC_TMP/plain" "$MC_TMP/source"
hang_fs_start

files=(one.bin two.bin)
for name in "${files[@]}"; do
	head -c $((20 * 1048576 + 99)) /dev/urandom >"$MC_TMP/source/$name"
done
remote=dir:$MC_TMP/dfs#name=dfs$'\n'dir:$MC_TMP/plain#name=plain
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
start() { mount_start --dram 80MiB --kv-dram 16MiB --kv-replicas 2 --kv-ack remote --deadline 6 --stop-timeout 20 || fail 'mount'; }
# Threads of the daemon that wait for the file system.
threads() { cat "/proc/$mount_pid/task/"*/wchan | tr '\0' '\n' | sed 's/request_wait/\n&/g' | grep -c request_wait; }

# xattr CALL FILE ATTRIBUTE [VALUE]
xattr()
{
	timeout 60 python3 -B -c 'import os, sys
call, file, name, *value = sys.argv[1:]
print(getattr(os, call)(file, "user.mooncake." + name, *[v.encode() for v in value]))' \
		"$1" "$mnt/checkpoints/acme/model@r1/$2" "${@:3}"
}
evict() { xattr setxattr "$1" evict dram >/dev/null; }
warm() { xattr setxattr "$1" warm dram >/dev/null; }
dram() { xattr getxattr "$1" resident.dram | tr -dc 0-9; }

# Nothing tells that it hangs but the calls that do.
start
: >"$MC_TMP/hang"
fact 'a mounted directory hangs: names and puts are answered by the other remote, all calls end'
for i in {1..24}; do
	LC_ALL=C timeout 60 stat "$mnt/checkpoints/acme/none$i" >"$MC_TMP/stat$i" 2>&1 &
	pids[i]=$!
done
for i in 1 2 3 4; do
	timeout 60 cp "$MC_TMP/source/one.bin" "$mnt/kv/k$i" || fail "put $i"
	timeout 60 cmp "$MC_TMP/source/one.bin" "$mnt/kv/k$i" || fail "get $i"
done
for i in {1..24}; do
	wait "${pids[i]}" 2>/dev/null
	grep -q 'No such file' "$MC_TMP/stat$i" || fail "a missing name: $(cat "$MC_TMP/stat$i")"
done
await_log event=remote-fenced
head -c 100000 /dev/urandom >"$MC_TMP/source/three.bin"
timeout 60 "$mooncakefs" import "$MC_TMP/source" acme/model@r2 --remote "dir:$MC_TMP/plain" >/dev/null || fail 'import'
timeout 60 cmp "$MC_TMP/source/three.bin" "$mnt/checkpoints/acme/model@r2/three.bin" || fail 'a new revision'
fact 'no call of it begins while others hang: no more threads after more calls'
some=$(threads)
for i in 1 2 3 4 5 6 7 8; do
	timeout 60 ls "$mnt/checkpoints/acme" "$mnt/checkpoints/none$i" >/dev/null 2>&1
	timeout 60 cp "$MC_TMP/source/three.bin" "$mnt/kv/l$i" || fail "put $i"
done
echo "threads: $some when it hung, $(threads) after more calls"
[ "$(threads)" -le "$some" ] && [ "$some" -le 40 ] || fail 'threads'

fact 'it answers again: it is used, and brought what it missed'
rm "$MC_TMP/hang"
await_log event=remote-back
await 'the same copies on both' diff -rq --exclude=tmp --exclude=missed --exclude=r2 --exclude=latest \
	"$MC_TMP/behind/kv" "$MC_TMP/plain/kv"

fact 'it hangs under readers: right bytes from the other remote, no error'
readers_start 2 "${files[@]}"
: >"$MC_TMP/hang"
readers_end
grep -q ' 0 EIO' "$MC_TMP/readers" || fail 'reads failed'
rm "$MC_TMP/hang"
mount_stop || fail "stop: $mount_rc"

fact 'a mount begins while it hangs'
: >"$MC_TMP/hang"
start
trouble right "${files[@]}"
# A process whose threads the kernel holds cannot end.
rm "$MC_TMP/hang"
mount_stop || fail "stop: $mount_rc"

remote=dir:$MC_TMP/dfs
mount_start --dram 80MiB --kv-dram 16MiB --deadline 600 --stop-timeout 60 || fail 'mount'
cat "$mnt/checkpoints/acme/model@r1/"*.bin | wc -c
fact 'the only remote hangs: an order to warm is answered at once, also behind one that waits'
for name in "${files[@]}"; do evict "$name" || fail "evict $name"; done
: >"$MC_TMP/hang"
for name in "${files[@]}" "${files[@]}"; do warm "$name" || fail "warm $name"; done
[ "$(dram one.bin)" != $(stat -c %s "$MC_TMP/source/one.bin") ] || fail 'it did not hang'
rm "$MC_TMP/hang"
in_dram() { [ "$(dram "$1")" = "$(stat -c %s "$MC_TMP/source/$1")" ]; }
await 'all of it in DRAM' in_dram two.bin
mount_stop || fail "stop: $mount_rc"
