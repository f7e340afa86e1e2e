#!/bin/bash
# Layouts written into the mount by ordinary programs: published whole or refused with the reason.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

python3 -B "$mount_lib/view_checks.py" make llama "$MC_TMP/llama" || fail 'make'
mount_import "$MC_TMP/llama" acme/llama@r1 || fail 'import'
awk '/^```json/ {on = 1; next} /^```/ {on = 0} on' "$mount_lib/../../docs/LAYOUT.md" >"$MC_TMP/llama-qkv.json"
mount_start --dram 128MiB || fail 'mount'

checks() { python3 -B "$mount_lib/layout_checks.py" "$1" "$mnt" "$MC_TMP" || fail "$1"; }

for name in closed renamed shell whole_or_not refused too_large never_changes temporary killed misfits others outage; do
	checks $name
done
logged layout-refused name=\"bad.json\" /rules/0/split/0 'no axis "ep"'
logged layout-published name=\"closed\"

fact 'layouts that were written into the mount are on the remote for other nodes'
"$mooncakefs" layout ls --remote "$remote" >"$MC_TMP/ls" || fail 'layout ls'
grep -qx closed "$MC_TMP/ls" || fail "layout ls: $(cat "$MC_TMP/ls")"
"$mooncakefs" layout rm renamed0 --remote "$remote" || fail 'layout rm'
[ ! -e "$MC_TMP/remote/layouts/renamed0.json" ] || fail 'still there'
"$mooncakefs" layout rm renamed0 --remote "$remote" 2>"$MC_TMP/err" && fail 'removed twice'
grep -q 'no layout "renamed0" is registered' "$MC_TMP/err" || fail "layout rm: $(cat "$MC_TMP/err")"
find "$MC_TMP/remote/layouts" -name '*bad*' | grep . && fail 'a refused layout is on the remote'

checks removed
mount_stop || fail "stop: $mount_rc"
mount_start --dram 128MiB || fail 'mount again'
checks after_restart
mount_stop || fail "stop: $mount_rc"
