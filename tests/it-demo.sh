#!/bin/bash
# The demo runs to its end, leaves nothing behind, and shows the numbers it promises.
set -uo pipefail
[ "$(id -u)" = 0 ] && [ -c /dev/fuse ] || { echo 'needs root and /dev/fuse'; exit 77; }
cd "$(dirname "$0")/.." || exit 1
out=$(TMPDIR=$MC_TMP tools/demo 2>&1)
rc=$?
echo "$out"
[ $rc = 0 ] || { echo "exit code $rc"; exit 1; }
[ "$(tail -n 1 <<<"$out")" = 'done' ] || { echo 'no end'; exit 1; }
[ "$(grep -c '^the same bytes$' <<<"$out")" = 2 ] || { echo 'not read twice'; exit 1; }
grep -qx 'user.mooncake.resident.dram  *15339032' <<<"$out" || { echo 'not in memory'; exit 1; }
[ "$(grep -cx 'user.mooncake.resident.nvme  *15339032' <<<"$out")" = 2 ] ||
	{ echo 'not on NVMe, or lost by the restart'; exit 1; }
[ -z "$(ls -A "$MC_TMP")" ] || { echo "left behind: $(ls -A "$MC_TMP")"; exit 1; }
