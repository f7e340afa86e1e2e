#!/bin/bash
# From mount to unmount: stacking, a killed daemon, a stop under open files, new revisions, a slow end.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

source=$MC_TMP/source
mkdir "$source"
echo one >"$source/file"
mount_import "$source" acme/model@r1 || fail 'import'

mount_start --dram 64MiB || fail 'mount'
first=$mount_pid
cp "$MC_TMP/log" "$MC_TMP/log.first"
mount_start --dram 64MiB && fail 'a second mount was stacked'
grep -q 'mooncakefs is mounted' "$MC_TMP/log" || fail 'the refusal does not say why'
[ "$mount_rc" != 0 ] || fail 'the refusal exits with 0'
mount_pid=$first
[ "$(cat "$mnt/checkpoints/acme/model/file")" = one ] || fail 'the first mount after the refusal'

mount_kill
cat "$mnt/checkpoints/acme/model/file" 2>/dev/null && fail 'a dead mount answers'
mount_start --dram 64MiB || fail 'mount over a dead mount'
[ "$(grep -cF " $mnt fuse.mooncakefs " /proc/self/mounts)" = 1 ] || fail 'the dead mount is still there'
[ "$(cat "$mnt/checkpoints/acme/model@r1/file")" = one ] || fail 'after the dead mount'

# A new revision: its name at once, the link and the list soon.
link_is() { [ "$(readlink "$mnt/checkpoints/acme/model")" = "$1" ]; }
lists() { ls "$mnt/checkpoints/acme" | grep -qx "$1"; }
ls "$mnt/checkpoints/acme" >/dev/null
readlink "$mnt/checkpoints/acme/model" >/dev/null
echo two >"$source/file"
mount_import "$source" acme/model@r2 || fail 'import of a second revision'
await 'the link to the new revision' link_is model@r2
await 'the new revision in the list' lists model@r2
[ "$(cat "$mnt/checkpoints/acme/model/file")" = two ] || fail 'the new revision'
[ "$(cat "$mnt/checkpoints/acme/model@r1/file")" = one ] || fail 'the old revision'

# A stop with a file open: the process ends, the mount is gone.
exec 7<"$mnt/checkpoints/acme/model/file"
mount_stop || fail "stop with an open file: $mount_rc"
exec 7<&-
grep -qF " $mnt fuse.mooncakefs " /proc/self/mounts && fail 'still mounted'

# umount from outside ends the daemon.
mount_start --dram 64MiB || fail 'mount'
umount "$mnt" || fail umount
wait "$mount_pid" || fail 'the daemon fails when it is unmounted'
mount_pid=
