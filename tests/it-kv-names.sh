#!/bin/bash
# kv/ in a real mount: names, directories, listing, times and attributes.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

kv_check() { timeout 100 python3 -B "$mount_lib/kv_checks.py" "$1" "$mnt/kv/$2" "${@:3}" || fail "kv check $*"; }

mount_start --dram 256MiB --kv-dram 192MiB --nvme "$MC_TMP/nvme,1GiB" || fail 'mount'
mkdir "$mnt/kv/names" || fail 'mkdir'
for rule in rename rename_unsealed unlink_unsealed close_then_rename directories listed_once_closed times xattrs; do
	kv_check $rule names
done
kv_check listing names 5000
kv_check statvfs names $((512 << 20))
ls "$mnt" | grep -qx kv || fail 'the root'
mount_stop || fail "stop: $mount_rc"

# Without --nvme the last local tier is DRAM; with --kv-dram 0 there is no kv/.
mount_start --dram 256MiB --kv-dram 192MiB || fail 'mount'
mkdir "$mnt/kv/space" && kv_check statvfs space $((192 << 20))
mount_stop || fail "stop: $mount_rc"
mount_start --dram 256MiB --kv-dram 0 || fail 'mount'
[ ! -e "$mnt/kv" ] && ! ls "$mnt" | grep -qx kv || fail 'kv/ although it was turned off'
mount_stop || fail "stop: $mount_rc"
