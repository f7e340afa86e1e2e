#!/bin/bash
# The control socket and the commands that use it, on a mount with both local tiers.
set -uo pipefail

. "$(dirname "$0")/lib/mount.sh"
mount_need
umask 022
mkdir -p "$MC_TMP/src/sub" "$MC_TMP/small"
head -c 6000000 /dev/urandom >"$MC_TMP/src/a.bin"
head -c 3000000 /dev/urandom >"$MC_TMP/src/sub/b.bin"
echo hello >"$MC_TMP/src/c.txt"
: >"$MC_TMP/src/empty"
mount_import "$MC_TMP/src" acme/model@r1
size=9000006
mount_start --dram 128MiB --nvme "$MC_TMP/nvme,256MiB" || fail "mount: $mount_rc"
rev=$mnt/checkpoints/acme/model@r1

# run CODE ARG...: the command's exit code; its output is in $MC_TMP/out.
run()
{
	local code=$1 rc=0
	shift

	"$mooncakefs" "$@" >"$MC_TMP/out" 2>"$MC_TMP/errors" </dev/null || rc=$?
	[ $rc = "$code" ] || { cat "$MC_TMP/out" "$MC_TMP/errors"; fail "$*: exit code $rc, not $code"; }
}
says() { grep -qF -- "$1" "$MC_TMP/out" "$MC_TMP/errors" || { cat "$MC_TMP/out" "$MC_TMP/errors"; fail "no \"$1\""; }; }
# value KEY: of the last JSON line.
value() { tail -n 1 "$MC_TMP/out" | python3 -c 'import json, sys; print(json.loads(sys.stdin.read())[sys.argv[1]])' "$1"; }
# holds TIER BYTES: what du says of the revision.
holds()
{
	run 0 du --json "$rev"
	[ "$(value "$1")" = "$2" ] || fail "$1 holds $(value "$1") bytes, not $2"
}

fact 'status, stats and config show come from the daemon'
run 0 status "$mnt"
says 'state        as it should be'
says "mount        $mnt, process $mount_pid"
run 0 status --json "$mnt"
python3 -c 'import json, sys; assert json.load(sys.stdin)["mount"]["mountpoint"] == sys.argv[1]' "$mnt" <"$MC_TMP/out"
run 0 stats "$mnt"
says 'blocks from the remote'
run 0 stats --json "$mnt"
[ "$(value checkpoints_fetched_blocks)" = 0 ] || fail "blocks: $(value checkpoints_fetched_blocks)"
"$mooncakefs" stats --watch --json "$mnt" | head -n 1 >"$MC_TMP/out"
[ "$(value requests_waiting)" = 0 ] || fail 'stats --watch'
run 0 config show "$mnt" --json
grep -qF '"key":"dram","value":"128MiB","origin":"command line"' "$MC_TMP/out" || fail 'config show'

fact 'warm returns when the tier holds every byte; --check says how much it holds'
run 5 warm --check --json "$rev"
[ "$(value per_cent) $(value tier)" = '0.0 nvme' ] || fail "before: $(cat "$MC_TMP/out")"
run 0 warm "$rev"
says 'warmed: 4 of 4 files'
says '100.0 % in nvme'
holds nvme $size
run 0 warm --check "$rev"
run 0 stats --json "$mnt"
fetched=$(value checkpoints_fetched_blocks)
[ "$fetched" = 10 ] || fail "10 blocks in 3 files, fetched $fetched"

fact 'what warm brought to NVMe is served after a SIGKILL without a byte from the remote'
mount_kill
mount_start --dram 128MiB --nvme "$MC_TMP/nvme,256MiB" || fail "mount: $mount_rc"
for file in a.bin sub/b.bin c.txt; do
	cmp "$MC_TMP/src/$file" "$rev/$file" || fail "$file"
done
run 0 stats --json "$mnt"
[ "$(value checkpoints_fetched_blocks)" = 0 ] || fail 'fetched again'

fact 'evict empties a tier, or both'
run 0 evict --tier dram "$rev"
says 'evicted: 4 of 4 files'
holds dram 0
holds nvme $size
run 0 evict "$rev"
holds nvme 0

fact 'paths may be patterns, links, lists; the tier may be DRAM'
run 0 warm --tier dram "$mnt/checkpoints/*/model/*.bin"
holds dram 6000000
echo "$rev/sub" >"$MC_TMP/list"
run 0 warm --tier dram --files-from "$MC_TMP/list" "$rev/c.txt"
holds dram $size
run 0 warm --tier dram --files-from - "$rev/c.txt"

fact 'a pinned file is not evicted, and it is said why'
run 0 pin "$rev/a.bin"
run 1 evict "$rev"
says 'checkpoints/acme/model@r1/a.bin: it is pinned'
says 'evicted: 3 of 4 files'
holds dram 6000000
run 0 unpin "$rev/a.bin"
run 0 evict "$rev"
holds dram 0

fact 'a bandwidth limit holds: a second at least for 6 MB at 4 MiB/s'
before=$(date +%s%N)
run 0 warm --tier dram --bwlimit 4MiB "$rev/a.bin"
[ $(($(date +%s%N) - before)) -ge 1000000000 ] || fail 'too fast'

fact 'what does not fit the tier is told, and the exit code is 5'
truncate -s 0 "$MC_TMP/small/none"
head -c 80000000 /dev/zero | tr '\0' x >"$MC_TMP/small/big"
mount_import "$MC_TMP/small" acme/big@r1
run 0 refresh "$mnt"
run 5 warm --tier dram "$mnt/checkpoints/acme/big@r1"
says 'it does not fit the tier'

fact 'KV objects are warmed, measured, pinned and evicted like files'
head -c 100000 /dev/urandom >"$MC_TMP/object"
mkdir "$mnt/kv/dir"
cp "$MC_TMP/object" "$mnt/kv/dir/key"
run 0 warm --tier nvme "$mnt/kv/dir"
run 0 du --json "$mnt/kv"
[ "$(value size) $(value nvme)" = '100000 100000' ] || fail "du: $(cat "$MC_TMP/out")"
run 0 pin "$mnt/kv/dir/key"
run 1 evict --tier dram "$mnt/kv"
run 0 unpin "$mnt/kv/dir/key"
run 0 evict --tier dram "$mnt/kv"
run 0 warm --tier dram "$mnt/kv"
cmp "$MC_TMP/object" "$mnt/kv/dir/key" || fail 'the object'

fact 'debug-bundle writes one file, for its owner alone'
run 0 debug-bundle "$MC_TMP/bundle" "$mnt"
for part in status config events metrics "/proc/$mount_pid/limits"; do
	grep -qxF "==== $part" "$MC_TMP/bundle" || fail "no $part"
done
[ "$(stat -c %a "$MC_TMP/bundle")" = 600 ] || fail 'rights of the bundle'

fact 'mistakes say what to do'
run 1 du "$MC_TMP/src"
says 'is not in a mooncakefs'
run 1 du "$rev/none"
says 'No such file or directory'
run 1 status "$MC_TMP"
says 'no mooncakefs is mounted at'
run 2 warm
says 'warm which PATH?'

socket=/run/mooncakefs/control-$(awk -v m="$mnt" '$5 == m { split($3, d, ":"); print d[2] }' /proc/self/mountinfo)
[ "$(stat -c %a "$socket")" = 600 ] || fail 'rights of the socket'
inode=$(stat -c %i "$socket")
python3 -B "$mount_lib/control_checks.py" "$socket" figures garbage pieces long_line many left_alone other_user ||
	fail 'the protocol'
mount_stop || fail "stop: $mount_rc"
# Another mount of this machine may have the number by now.
[ "$(stat -c %i "$socket" 2>/dev/null)" != "$inode" ] || fail "the socket is left"

fact 'metrics come over HTTP where that is asked for'
page()
{
	python3 - "$1" "$2" <<-'END'
	import sys, urllib.error, urllib.request
	try:
	    with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}{sys.argv[2]}", timeout=60) as page:
	        print(page.status, page.headers["Content-Type"], page.read().decode())
	except urllib.error.HTTPError as e:
	    print(e.code)
	END
}
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mount_start --dram 64MiB --kv-dram 0 --metrics "127.0.0.1:$port" || fail "mount: $mount_rc"
page "$port" /metrics >"$MC_TMP/page"
grep -q '^200 text/plain; version=0.0.4' "$MC_TMP/page" || fail "page: $(head -n 1 "$MC_TMP/page")"
grep -qx 'mooncakefs_up 1' "$MC_TMP/page" || fail 'metrics'
[ "$(page "$port" /)" = 404 ] || fail 'another page'
mkdir "$MC_TMP/mnt2"
run 1 mount -f "$MC_TMP/mnt2" --remote "$remote" --dram 64MiB --metrics "127.0.0.1:$port"
says "--metrics 127.0.0.1:$port: Address already in use"
run 2 mount -f "$MC_TMP/mnt2" --remote "$remote" --dram 64MiB --metrics localhost
says 'is not a numeric address and port'
mount_stop || fail "stop: $mount_rc"

fact 'a stop ends commands under way within its bound'
mount_start --dram 64MiB --kv-dram 0 --stop-timeout 20 || fail "mount: $mount_rc"
"$mooncakefs" warm --tier dram --bwlimit 1KiB "$rev" >"$MC_TMP/out" 2>&1 &
slow=$!
# Event of its begin: the first block has come.
until run 0 stats --json "$mnt" && [ "$(value checkpoints_fetched_blocks)" -gt 0 ]; do :; done
mount_stop || fail "stop under a command: $mount_rc"
rc=0
wait $slow || rc=$?
[ $rc = 1 ] || fail "the command that lost its daemon: $rc"
exit 0
