#!/bin/bash
# mount(8), umount(8) and fstab: the helper's line, its exit codes, /dev/fd/N, dead mounts.
set -euo pipefail
. "$(dirname "$0")/lib/script.sh"

# In a mount namespace of its own the helper can stand in /sbin without touching the machine.
if [ -z "${MC_HELPER_INSIDE:-}" ]; then
	[ "$(id -u)" = 0 ] && [ -c /dev/fuse ] || { echo 'needs root and /dev/fuse'; exit 77; }
	export MC_HELPER_INSIDE=yes
	if unshare -m true 2>/dev/null; then
		exec unshare -m --propagation private "$0"
	fi
fi

mnt=$MC_TMP/mnt
remote=dir:$MC_TMP/remote
tiers=dram=64MiB,kv-dram=0
export XDG_STATE_HOME=$MC_TMP/state
mounted() { grep -qF " $1 fuse.mooncakefs " /proc/self/mounts; }
reader=
cleanup()
{
	[ -z "$reader" ] || kill "$reader" 2>/dev/null
	while mounted "$mnt"; do
		"$MC_BUILD/mooncakefs" umount --lazy "$mnt" || umount -i -l "$mnt" || break
	done
}
trap cleanup EXIT

mkdir -p "$MC_TMP/remote" "$MC_TMP/src" "$mnt" "$MC_TMP/sbin"
echo hello >"$MC_TMP/src/file"
"$MC_BUILD/mooncakefs" import "$MC_TMP/src" o/m@v1 --remote "$remote"
ln -s "$MC_BUILD/mooncakefs" "$MC_TMP/sbin/mount.fuse.mooncakefs"
ln -s "$MC_BUILD/mooncakefs" "$MC_TMP/sbin/umount.fuse.mooncakefs"
helper=$MC_TMP/sbin/mount.fuse.mooncakefs
unhelper=$MC_TMP/sbin/umount.fuse.mooncakefs

# expect CODE TEXT COMMAND...: exit code, and a text in what is printed.
expect()
{
	local code=$1 text=$2 rc=0
	shift 2

	"$@" >"$MC_TMP/out" 2>&1 </dev/null || rc=$?
	[ $rc = "$code" ] || { cat "$MC_TMP/out"; fail "$*: exit code $rc, not $code"; }
	[ -z "$text" ] || grep -qF -- "$text" "$MC_TMP/out" || { cat "$MC_TMP/out"; fail "$*: no \"$text\""; }
}
serves() { [ "$(cat "$mnt/checkpoints/o/m/file")" = hello ] || fail "$*: the file"; }

fact 'the helper mounts what fstab names, and ends with the exit codes of mount(8)'
expect 0 '' "$helper" "$remote" "$mnt" -n -o "rw,_netdev,noauto,nofail,user,x-systemd.automount,$tiers"
serves helper
expect 32 'a mooncakefs is mounted there already' "$helper" "$remote" "$mnt" -o "$tiers"
expect 0 '' "$unhelper" "$mnt"
mounted "$mnt" && fail 'still mounted'
expect 1 'did you mean -o dram?' "$helper" "$remote" "$mnt" -o dramm=64MiB
expect 1 'Usage: mount.fuse.mooncakefs' "$helper" "$remote"
expect 1 'remount' "$helper" "$remote" "$mnt" -o remount,ro
expect 32 "$MC_TMP/absent" "$helper" "dir:$MC_TMP/absent" "$mnt" -o "$tiers"
expect 0 '' "$helper" "$remote" "$mnt" -f -o "$tiers"
mounted "$mnt" && fail '-f mounted'
echo "{\"remote\": \"$remote\", \"dram\": \"64MiB\", \"kv-dram\": 0}" >"$MC_TMP/config.json"
expect 0 '' "$helper" none "$mnt" -o "config=$MC_TMP/config.json"
serves 'a configuration file'

fact 'umount of a busy mount names the holders and fails'
sleep 1000 <"$mnt/checkpoints/o/m/file" &
reader=$!
expect 32 "process $reader (sleep): open file" "$unhelper" "$mnt"
mounted "$mnt" || fail 'a busy mount is gone'
expect 0 '' "$unhelper" "$mnt" -l
mounted "$mnt" && fail 'still mounted after -l'
kill $reader
wait $reader 2>/dev/null || true
reader=
expect 32 'nothing is mounted at' "$unhelper" "$mnt"

fact 'the helper mounts over a dead mount'
: >"$MC_TMP/log"
"$MC_BUILD/mooncakefs" mount -f "$mnt" --remote "$remote" -o "$tiers" 2>"$MC_TMP/log" &
pid=$!
await_from $pid 'a mount in the foreground' grep -q event=mounted "$MC_TMP/log"
worker=$(cat /proc/$pid/task/$pid/children)
kill -KILL $pid
wait $pid 2>/dev/null || true
await 'the end of the worker' test ! -e "/proc/${worker% }"
expect 2 'Transport endpoint' ls "$mnt/checkpoints"
expect 0 '' "$helper" "$remote" "$mnt" -o "$tiers"
serves 'over a dead mount'
expect 0 '' "$unhelper" "$mnt" -f
mounted "$mnt" && fail 'still mounted after -f'

fact 'a /dev/fuse descriptor that somebody else mounted is served as /dev/fd/N'
python3 -B "$(dirname "$0")/lib/mount_fd.py" "$MC_BUILD/mooncakefs" "$mnt" --remote "$remote" -o "$tiers" ||
	fail '/dev/fd/N'
expect 2 'is not an open /dev/fuse' "$MC_BUILD/mooncakefs" mount -f /dev/fd/0 --remote "$remote"

# The rest needs mount(8) to find the helper.
if ! mount -t overlay overlay -o "lowerdir=$MC_TMP/sbin:$(realpath /sbin)" /sbin 2>/dev/null; then
	exit 0
fi
fact 'mount -t fuse.mooncakefs and an fstab line mount, umount unmounts'
mount -t fuse.mooncakefs "$remote" "$mnt" -o "$tiers,nvme=\"$MC_TMP/nvme,128MiB\""
serves mount
[ -e "$MC_TMP/nvme/STORE" ] || fail 'no NVMe tier'
umount "$mnt"
mounted "$mnt" && fail 'still mounted after umount'
echo "$remote $mnt fuse.mooncakefs $tiers,_netdev,nofail 0 0" >"$MC_TMP/fstab"
mount --fstab "$MC_TMP/fstab" "$mnt"
serves fstab
umount "$mnt"
mounted "$mnt" && fail 'still mounted after umount of fstab'
expect 1 'did you mean -o dram?' mount -t fuse.mooncakefs "$remote" "$mnt" -o dramm=1GiB
expect 32 "$MC_TMP/absent" mount -t fuse.mooncakefs "dir:$MC_TMP/absent" "$mnt" -o "$tiers"
exit 0
