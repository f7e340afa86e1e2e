#!/bin/bash
# A remote without room: the error says so, nothing is visible, and the import goes on once there is room.
set -euo pipefail

program=$MC_BUILD/mooncakefs
export XDG_STATE_HOME=$MC_TMP/state
. "$(dirname "$0")/lib/script.sh"

[ "$(id -u)" = 0 ] || { echo 'needs root'; exit 77; }
mkdir "$MC_TMP/remote" "$MC_TMP/src"
mount -t tmpfs -o size=24M none "$MC_TMP/remote" || { echo 'cannot mount a tmpfs'; exit 77; }
trap 'umount -l "$MC_TMP/remote"' EXIT
head -c 20M /dev/urandom >"$MC_TMP/src/first.bin"
head -c 20M /dev/urandom >"$MC_TMP/src/second.bin"

rc=0
"$program" import "$MC_TMP/src" o/m@v1 --remote "dir:$MC_TMP/remote" --jobs 2 2>"$MC_TMP/err" || rc=$?
cat "$MC_TMP/err"
[ $rc = 1 ] || fail "exit code $rc"
grep -q 'src/\(first\|second\).bin' "$MC_TMP/err" || fail 'the file is not named'
grep -q "$MC_TMP/remote" "$MC_TMP/err" || fail 'the remote is not named'
grep -qi 'no space\|full' "$MC_TMP/err" || fail 'the reason is not named'
[ -z "$("$program" ls --remote "dir:$MC_TMP/remote")" ] || fail 'something is visible'

mount -o remount,size=64M "$MC_TMP/remote"
out=$("$program" import "$MC_TMP/src" o/m@v1 --remote "dir:$MC_TMP/remote" --jobs 2 --json | tail -n 1)
echo "$out"
python3 - "$out" <<'END' || fail 'nothing was resumed'
import json, sys
r = json.loads(sys.argv[1])
sys.exit(not (r["resumed_bytes"] >= 8 << 20 and r["read_bytes"] + r["resumed_bytes"] == 40 << 20))
END
"$program" verify o/m --remote "dir:$MC_TMP/remote"

# What a killed process left under a temporary name goes after a day, not before.
node=$(cat "$XDG_STATE_HOME/mooncakefs/node-id")
tmp=$MC_TMP/remote/tmp/$node
mkdir -p "$tmp"
echo old >"$tmp/old"
echo new >"$tmp/new"
touch -d '25 hours ago' "$tmp/old"
"$program" import "$MC_TMP/src" o/m@v1 --remote "dir:$MC_TMP/remote" >/dev/null
[ "$(ls "$tmp")" = new ] || fail "leftovers: $(ls "$tmp")"
