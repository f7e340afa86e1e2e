#!/bin/bash
# Cached mode and passthrough on one inode, one after the other, with the DRAM tier under pressure.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

mount_make_source "$MC_TMP/source" || exit 1
mkdir "$MC_TMP/large"
head -c 100M /dev/urandom >"$MC_TMP/large/large.bin"
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
mount_import "$MC_TMP/large" acme/large@r1 || fail 'import'

mount_start --dram 64MiB || fail 'mount'
passthrough=$(sed -nE 's/.*event=mounted .*passthrough=([a-z]+).*/\1/p' "$MC_TMP/log")
check modes "$passthrough"
mount_stop || fail "stop: $mount_rc"

mount_start --dram 64MiB --nvme "$MC_TMP/nvme,512MiB" || fail 'mount with NVMe'
check modes "$passthrough"
mount_stop || fail "stop: $mount_rc"
