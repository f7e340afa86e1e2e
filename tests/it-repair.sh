#!/bin/bash
# Copies on two remotes are damaged on purpose: verify names every one, repair puts right bytes back and
# writes nothing else, also after it was killed.
set -uo pipefail

program=$MC_BUILD/mooncakefs
export XDG_STATE_HOME=$MC_TMP/state
. "$(dirname "$0")/lib/script.sh"
checks() { python3 -B "$(dirname "$0")/lib/repair_checks.py" "$@" || fail "$*"; }
unmount() { for d in a b; do mountpoint -q "$MC_TMP/$d" && umount -l "$MC_TMP/$d"; done; }
remotes=(--remote "dir:$MC_TMP/a#name=a" --remote "dir:$MC_TMP/b#name=b")

# run CODE COMMAND...: lines go to $MC_TMP/out and $MC_TMP/err.
run()
{
	local code=$1 rc=0
	shift

	"$program" "$@" >"$MC_TMP/out" 2>"$MC_TMP/err" || rc=$?
	[ $rc = "$code" ] || { tail "$MC_TMP/out" "$MC_TMP/err"; fail "$*: exit code $rc, not $code"; }
}
count() { checks count "$MC_TMP/out" "$@"; }

# Memory, where that can be had: two thousand small files are synced one by one.
mkdir "$MC_TMP/a" "$MC_TMP/b" "$MC_TMP/src"
trap unmount EXIT
for d in a b; do
	mount -t tmpfs -o size=64M none "$MC_TMP/$d" 2>/dev/null || :
done
checks make "$MC_TMP/src" 1200
run 0 import "$MC_TMP/src" o/m@v1 "${remotes[@]}"
cp -a "$MC_TMP/a" "$MC_TMP/good"
run 0 verify o/m "${remotes[@]}" --json
count chunks=1200 copies=2400 checked=2400 damaged=0

fact 'verify --sample reads that share of the chunks, every copy of each'
run 0 verify o/m "${remotes[@]}" --json --sample 10
sampled=$(sed -nE '$s/.*"checked":([0-9]+).*/\1/p' "$MC_TMP/out")
((sampled % 2 == 0 && sampled > 100 && sampled < 400)) || fail "$sampled copies of 2400 are not 10 %"
run 0 verify o/m "${remotes[@]}" --json --sample 100
count checked=2400

fact 'flipped bits in every copy but one of 1,000 chunks: verify names all of them, with the remote'
checks flip "$MC_TMP" 1000
run 3 verify o/m "${remotes[@]}" --json
count damaged=1000 repaired=0
checks named "$MC_TMP"
fact 'repair puts all of them back, and only them; nothing is read twice'
run 0 repair o/m "${remotes[@]}" --json
count damaged=1000 repaired=1000 checked=2400 fetched_bytes=0
checks written "$MC_TMP"
run 0 verify o/m@v1 "${remotes[@]}"

fact 'a missing chunk and a damaged manifest are put back'
find "$MC_TMP/a/chunks" -type f | head -n 3 | xargs rm
rm "$MC_TMP/b/checkpoints/o/m/v1/manifest.json"
echo >>"$MC_TMP/a/checkpoints/o/m/v1/manifest.id"
run 3 verify o/m@v1 "${remotes[@]}" --json
count damaged=5
run 0 repair o/m@v1 "${remotes[@]}" --json
count damaged=5 repaired=5
diff -r "$MC_TMP/good/chunks" "$MC_TMP/a/chunks" || fail 'chunks of a'
for d in a b; do
	diff -r "$MC_TMP/good/checkpoints" "$MC_TMP/$d/checkpoints" || fail "checkpoints of $d"
done

fact 'every copy is bad: named, exit code 3; --from and --source repair it'
bad=$(cd "$MC_TMP/a" && find chunks -type f | sort | head -n 1)
for d in a b; do
	"$(dirname "$0")/lib/flip-byte" "$MC_TMP/$d/$bad" 5
done
run 3 repair o/m@v1 "${remotes[@]}"
[ "$(grep -c "chunk ${bad##*/}: .*no good copy was found" "$MC_TMP/err")" = 2 ] || fail 'both copies are not named'
run 0 repair o/m@v1 "${remotes[@]}" --json --from "dir:$MC_TMP/good"
count damaged=2 repaired=2 fetched_bytes="$(stat -c %s "$MC_TMP/good/$bad")"
rm "$MC_TMP/a/$bad" "$MC_TMP/b/$bad"
run 0 repair o/m@v1 "${remotes[@]}" --json --source "$MC_TMP/src"
count damaged=2 repaired=2

fact 'verify --from looks at the copies on one remote only'
rm "$MC_TMP/b/$bad"
run 0 verify o/m@v1 "${remotes[@]}" --json --from a
count copies=1200 damaged=0
run 3 verify o/m@v1 "${remotes[@]}" --json --from "dir:$MC_TMP/b"
count copies=1200 damaged=1
run 1 verify o/m@v1 "${remotes[@]}" --from c
run 0 repair o/m@v1 "${remotes[@]}"

fact 'a repair that was killed is completed by the same command, which puts back what was left'
checks flip "$MC_TMP" 1000
checks killed "$MC_TMP" "$program" repair o/m@v1 "${remotes[@]}" --jobs 1 --json
left=$(checks bad "$MC_TMP")
[ "$left" -lt 1000 ] || fail 'it was killed before it did anything'
run 0 repair o/m@v1 "${remotes[@]}" --json
count damaged="$left" repaired="$left"
run 0 verify o/m@v1 "${remotes[@]}"
for d in a b; do
	diff -r "$MC_TMP/good/chunks" "$MC_TMP/$d/chunks" || fail "chunks of $d"
done

fact 'gc removes every copy of what no revision uses, and nothing while a remote is away'
head -c 100000 /dev/urandom >"$MC_TMP/src/more"
run 0 import "$MC_TMP/src" o/m@v2 "${remotes[@]}"
run 0 rm o/m@v2 "${remotes[@]}"
find "$MC_TMP/a/chunks" "$MC_TMP/b/chunks" -type f -exec touch -d '2 days ago' {} +
all() { find "$MC_TMP/a/chunks" "$MC_TMP/b/chunks" -type f | wc -l; }
# Whatever it asks the remote that is left has the answer.
for ((i = 0; i < 256; i++)); do mkdir -p "$MC_TMP/a/chunks/$(printf %02x $i)"; done
mkdir -p "$MC_TMP/a/tmp/gc"
run 1 gc --remote "dir:$MC_TMP/a#name=a" --remote "dir:$MC_TMP/none#name=b" --grace 3600 --delete
grep -q "remote dir:$MC_TMP/none is away; all are needed" "$MC_TMP/err" || fail "$(cat "$MC_TMP/err")"
[ "$(all)" = 2402 ] || fail "$(all) copies beside a remote that is away"
find "$MC_TMP/a/chunks" -type d -empty -delete
run 0 gc "${remotes[@]}" --grace 3600 --json
count garbage=1 missing=0
[ "$(all)" = 2402 ] || fail "$(all) copies after a dry run"
run 0 gc "${remotes[@]}" --grace 3600 --delete --json
count garbage=1 referenced=1200
for d in a b; do
	diff -r "$MC_TMP/good/chunks" "$MC_TMP/$d/chunks" || fail "chunks of $d after gc"
done
exit 0
