#!/bin/bash
# Many processes on the same files while the DRAM tier is too small for them, so that files change
# between cached mode and passthrough all the time: right bytes, never an error.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

mount_make_source "$MC_TMP/source" || exit 1
rm -r "$MC_TMP/source/many"
mkdir "$MC_TMP/large"
head -c 100M /dev/urandom >"$MC_TMP/large/large.bin"
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
mount_import "$MC_TMP/large" acme/large@r1 || fail 'import'

mount_start --dram 64MiB || fail 'mount'
check churn 8
mount_stop || fail "stop: $mount_rc"
grep -o ' reads=.*' "$MC_TMP/log"
grep -q 'read_errors=0 ' "$MC_TMP/log" || fail 'read errors'

mount_start --dram 64MiB --nvme "$MC_TMP/nvme,512MiB" || fail 'mount with NVMe'
check churn 8
mount_stop || fail "stop: $mount_rc"
grep -o ' reads=.*' "$MC_TMP/log"
grep -q 'read_errors=0 ' "$MC_TMP/log" || fail 'read errors'
