#!/bin/bash
# A mounted revision looks and reads like the tree it was imported from, and refuses every change.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

mount_make_source "$MC_TMP/source" || exit 1
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
mount_start --dram 128MiB || fail 'mount'

[ "$(readlink "$mnt/checkpoints/acme/model")" = model@r1 ] || fail 'the link to the newest revision'
grep -q "^mooncake $mnt fuse.mooncakefs .*nosuid.*nodev" /proc/self/mounts || fail 'mount table'
df "$mnt" >/dev/null || fail df
for name in attributes missing seek bytes mmap direct xattrs readonly threads forks; do
	check $name
done
(cd "$MC_TMP/source" && sha256sum big.bin two.bin holes) >"$MC_TMP/sums"
(cd "$mnt/checkpoints/acme/model" && sha256sum --quiet -c "$MC_TMP/sums") || fail sha256sum
cp "$mnt/checkpoints/acme/model/holes" "$MC_TMP/copy" && cmp "$MC_TMP/copy" "$MC_TMP/source/holes" ||
	fail 'cp of a sparse file'
dd if="$mnt/checkpoints/acme/model/big.bin" of=/dev/null bs=1M iflag=direct status=none || fail 'dd direct'
mount_stop || fail "stop: $mount_rc"
