#!/bin/bash
# tiers/ in a real mount: what a tier holds, listed, measured and cleared with coreutils.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

tier_check() { timeout 200 python3 -B "$mount_lib/tier_checks.py" "$1" "$mnt" "${@:2}" || fail "tiers $*"; }

mount_make_source "$MC_TMP/source" || exit 1
find "$MC_TMP/source/many" -name '*[1-9]' -delete
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
rm -r "$MC_TMP/source/many"
mount_import "$MC_TMP/source" acme/model@r2 || fail 'import of the second revision'
mount_start --dram 256MiB --nvme "$MC_TMP/nvme,1GiB" || fail 'mount'
fact 'each tier shows what it holds, with true sizes, shared bytes once'
tier_check tree
fact 'files of tiers are for stat and unlink'
tier_check access
fact 'rm takes a file out of one tier and never the last good copy'
tier_check evict
fact 'what is pinned or mapped stays and says why'
tier_check busy
fact 'rm -r empties a tier'
tier_check rm_r
fact 'a large directory is listed, measured and cleared'
tier_check many 2000
mount_stop || fail "stop: $mount_rc"
