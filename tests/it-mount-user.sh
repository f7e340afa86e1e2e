#!/bin/bash
# A user without rights mounts through fusermount3: everything works through the daemon.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need
user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
if ! command -v setpriv fusermount3 >/dev/null || ! "${user[@]}" sh -c 'exec 3<>/dev/fuse' 2>/dev/null; then
	echo 'needs setpriv, fusermount3 and a /dev/fuse for everyone'
	exit 77
fi

mount_make_source "$MC_TMP/source" || exit 1
rm -r "$MC_TMP/source/many"
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
cp "$mooncakefs" "$MC_TMP/mooncakefs"
chmod 755 "$MC_TMP"
chown -R 65534:65534 "$MC_TMP"/{remote,mnt,source}

# What another user could write to is no place for a tier.
mkdir -m 777 /dev/shm/mooncakefs-65533 || fail 'a directory of root in the place of a tier'
setpriv --reuid=65533 --regid=65533 --clear-groups "$MC_TMP/mooncakefs" mount -f "$mnt" --remote "$remote" \
	--dram 64MiB >"$MC_TMP/log" 2>&1 && fail 'mounted with a tier that others can write to'
rmdir /dev/shm/mooncakefs-65533
grep -q 'only user 65533 can write to' "$MC_TMP/log" || fail "refusal: $(cat "$MC_TMP/log")"

"${user[@]}" "$MC_TMP/mooncakefs" mount -f "$mnt" --remote "$remote" --dram 64MiB >"$MC_TMP/log" 2>&1 &
mount_pid=$!
await_from "$mount_pid" 'a mount' grep -q event=mounted "$MC_TMP/log"
grep -q 'passthrough=off reason="[^"]' "$MC_TMP/log" || fail 'no reason why there is no passthrough'
for name in bytes mmap direct seek; do
	"${user[@]}" env PATH=/usr/bin:/bin python3 -B - "$name" "$MC_TMP/source" "$mnt/checkpoints/acme/model@r1" \
		<"$mount_lib/mount_checks.py" || fail "check $name"
done
mount_stop || fail "stop: $mount_rc"
