#!/bin/bash
# kv/ in a real mount: each rule for files one check, with passthrough and through the daemon.
# timeout: 300
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

rules='put_get long_keys ranges unsealed old_version_while_replaced readers_keep_version partial_overwrite excl two_writers
	join_writer pwrite_truncate append dup_fork shell exit_without_close killed_writers killed_after_close
	shared_mapping replaced_all_the_time fsync'

kv_check() { timeout 60 python3 -B "$mount_lib/kv_checks.py" "$1" "$mnt/kv/$2" "${@:3}" || fail "kv check $*"; }

mount_start --dram 256MiB --kv-dram 192MiB || fail 'mount'
mkdir "$mnt/kv/files" || fail 'mkdir'
for rule in $rules; do kv_check $rule files; done
mount_stop || fail "stop: $mount_rc"

mount_start --dram 256MiB --kv-dram 192MiB --no-passthrough || fail 'mount'
mkdir "$mnt/kv/daemon" || fail 'mkdir'
for rule in $rules; do kv_check $rule daemon; done
mount_stop || fail "stop: $mount_rc"
