#!/bin/bash
# Import, ls, verify and export over a real NFS server; a reference to files that lie there; a dead server.
set -euo pipefail
. "$(dirname "$0")/lib/nfs-server.sh"

program=$MC_BUILD/mooncakefs
export XDG_STATE_HOME=$MC_TMP/state
. "$(dirname "$0")/lib/script.sh"

nfs_trap
nfs_start "$MC_TMP/nfs" || exit
url=$(nfs_url "$MC_TMP/nfs")
src=$MC_TMP/src
mkdir -p "$src/sub/empty"
head -c 20M /dev/urandom >"$src/a.bin"
truncate -s 30M "$src/sub/sparse"
head -c 1M /dev/urandom | dd of="$src/sub/sparse" bs=1M seek=11 conv=notrunc status=none
ln -s sub/sparse "$src/link"
: >"$src/none"
chmod 640 "$src/a.bin"
touch -d @1234567890.5 "$src/a.bin" "$src/sub"

"$program" import "$src" o/m@v1 --remote "$url"
out=$("$program" import "$src" o/m@v1 --remote "$url" --json | tail -n 1)
grep -q '"existed":true.*"written_bytes":0' <<<"$out" || fail "again: $out"
[ "$("$program" ls --remote "$url")" = 'o/m@v1  (latest)' ] || fail ls
"$program" verify o/m --remote "$url"
"$program" export o/m "$MC_TMP/out" --remote "$url"
list() { (cd "$1" && find . -printf '%p %y %m %T@ %l %s\n' | grep -v ' d ' | sort); }
diff -r --no-dereference "$src" "$MC_TMP/out"
diff <(list "$src") <(list "$MC_TMP/out")

# Files that the export holds already: nothing is copied, a change is noticed.
mkdir "$MC_TMP/nfs/export/models"
cp "$src/a.bin" "$src/none" "$MC_TMP/nfs/export/models/"
chunks=$(find "$MC_TMP/nfs/export/chunks" -type f | wc -l)
"$program" import models o/ref@v1 --remote "$url" --reference
[ "$(find "$MC_TMP/nfs/export/chunks" -type f | wc -l)" = "$chunks" ] || fail 'a reference copied'
"$program" verify o/ref --remote "$url"
"$program" export o/ref "$MC_TMP/ref" --remote "$url"
cmp "$src/a.bin" "$MC_TMP/ref/a.bin"
# The same by the path that this machine has for the export: links and holes are seen too.
ln -s a.bin "$MC_TMP/nfs/export/models/link"
ln -s ../models/none "$MC_TMP/nfs/export/models/out-and-in"
nfs_restart "$MC_TMP/nfs"
"$program" import "$MC_TMP/nfs/export/models" o/ref2@v1 --remote "$url" --reference
"$program" export o/ref2 "$MC_TMP/ref2" --remote "$url"
[ "$(readlink "$MC_TMP/ref2/out-and-in")" = none ] || fail 'a link out and in again'
[ "$(readlink "$MC_TMP/ref2/link")" = a.bin ] || fail 'a link inside'
cmp "$src/a.bin" "$MC_TMP/ref2/link"
rc=0
"$program" import "$MC_TMP/src" o/ref3@v1 --remote "$url" --reference 2>"$MC_TMP/err" || rc=$?
[ $rc = 1 ] && grep -q 'path below the export' "$MC_TMP/err" || fail "not on the export: $(cat "$MC_TMP/err")"
rm "$MC_TMP/nfs/export/models/link" "$MC_TMP/nfs/export/models/out-and-in"
printf x >>"$MC_TMP/nfs/export/models/a.bin"
# The server remembers attributes of files that change behind its back.
nfs_restart "$MC_TMP/nfs"
rc=0
"$program" verify o/ref --remote "$url" 2>"$MC_TMP/err" || rc=$?
[ $rc = 3 ] || fail "verify of a changed file: $rc"
grep -q 'a.bin: .*changed' "$MC_TMP/err" || fail 'the changed file is not named'

# A wrong chunk.
chunk=$(find "$MC_TMP/nfs/export/chunks" -type f -size +7M | head -n 1)
"$(dirname "$0")/lib/flip-byte" "$chunk" 4444
rc=0
"$program" verify o/m --remote "$url" 2>"$MC_TMP/err" || rc=$?
[ $rc = 3 ] || fail "verify of wrong bytes: $rc"
grep -q "a.bin: .*chunk $(basename "$chunk").*wrong bytes" "$MC_TMP/err" || fail 'the chunk is not named'

nfs_stop "$MC_TMP/nfs"
rc=0
"$program" ls --remote "$url" --deadline 2 2>"$MC_TMP/err" || rc=$?
[ $rc = 1 ] || fail "ls without a server: $rc"
grep -q 'nfs://127.0.0.1' "$MC_TMP/err" || fail 'the server is not named'
