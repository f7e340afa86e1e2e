#!/bin/bash
# fsck of a node's cache directory: in use, after a SIGKILL, damaged, repaired, mounted again.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

cache=$MC_TMP/nvme
said=$MC_TMP/said
mkdir "$MC_TMP/source" "$MC_TMP/want"
head -c 9000000 /dev/urandom >"$MC_TMP/source/one.bin"
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'

start() { mount_start --dram 160MiB --kv-dram 64MiB --nvme "$cache,1GiB" "$@" || fail 'mount'; }
tree() { (cd "$cache" && find . -printf '%P %y %s %T@\n' | sort && find . -type f -print0 | sort -z | xargs -0 sha256sum) | sha256sum; }
flip() { "$mount_lib/flip-byte" "$1" "$2"; }

# fsck EXIT [ARG...]: what it says is in $said.
fsck()
{
	"$mooncakefs" fsck "${@:2}" >"$said" 2>&1
	local got=$?
	[ $got = "$1" ] || { cat "$said"; fail "fsck ${*:2}: exit code $got, not $1"; }
}
says() { grep -qF -- "$1" "$said" || { cat "$said"; fail "fsck does not say: $1"; }; }

# Where these bytes lie: "FILE OFFSET".
where()
{
	python3 -B - "$1" "$cache/$2" <<'END'
import pathlib
import sys
want = pathlib.Path(sys.argv[1]).read_bytes()[:4096]
for path in sorted(pathlib.Path(sys.argv[2]).rglob("*")):
    at = path.read_bytes().find(want) if path.is_file() else -1
    if at >= 0:
        print(path, at)
END
}

put() # NAME BYTES
{
	head -c "$2" /dev/urandom >"$MC_TMP/want/$1"
	cp "$MC_TMP/want/$1" "$mnt/kv/d/$1" || fail "put $1"
}

fact 'a directory in use is refused, with the process that uses it; exit code 4'
start --kv-ack nvme
mkdir "$mnt/kv/d" || fail mkdir
put gone 300000
put kept 300000
put large 12000000
trouble right one.bin
trouble wait-resident nvme 9000000 one.bin
fsck 4 "$cache"
worker=${mount_worker% }
says "in use by process ${worker:-$mount_pid};"

fact 'what a killed daemon leaves is clean, and nothing of it is changed'
mount_kill
umount -l "$mnt"
before=$(tree)
fsck 0 "$cache"
says ' 0 places damaged'
[ "$(tree)" = "$before" ] || fail 'fsck changed something'
fsck 0 -n "$cache"

fact 'an object with a copy on the remote, and one without'
start --kv-ack remote
put far 300000
mount_stop || fail "stop: $mount_rc"
fsck 0 "$cache"

fact 'each damage is named with its place, without --repair nothing is changed; exit code 3'
image=$(find "$cache/images" -type f)
flip "$image" 5000000
for i in gone far; do
	at=$(where "$MC_TMP/want/$i" kv/segments)
	[ -n "$at" ] || fail "$i is in no segment"
	flip "${at% *}" $((${at#* } + 1000))
done
at=$(where "$MC_TMP/want/large" kv/segments)
[ -n "$at" ] || fail 'large is in no segment'
flip "${at% *}" $((${at#* } + 1000))
before=$(tree)
fsck 3 "$cache"
says "${image#"$cache/"}: bytes 4194304 to 5242880 are damaged, 1 blocks"
says 'object d/gone: damaged in its MiB 0 (kv/segments/'
says 'it was the last copy, 300000 bytes'
says 'object d/far: damaged in its MiB 0 (kv/segments/'
says 'it is read from its 1 copies on remotes'
says 'object d/large: damaged in its MiB 0 (kv/segments/'
says '4 places damaged (1 blocks, 3 objects, 2 of them last copies)'
says 'Nothing was changed.'
[ "$(tree)" = "$before" ] || fail 'fsck changed something'
"$mooncakefs" fsck --json "$cache" 2>/dev/null >"$said"
python3 -B - "$said" <<'END' || fail 'json'
import json
import sys
lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
kinds = sorted(line["event"] for line in lines if line["event"] != "progress")
assert kinds == ["checked", "damage", "damage", "lost", "lost"], kinds
last = lines[-1]
assert (last["damaged"], last["bad_blocks"], last["bad_objects"], last["lost"]) == (4, 1, 3, 2), last
assert last["repaired"] is False and last["unfinished"] is False, last
END

fact 'what --repair repaired is clean; exit codes 1 and 0'
fsck 1 --repair "$cache"
says ', repaired'
fsck 0 "$cache"
says ' 0 places damaged'

fact 'after a repair every byte that is served is right: from the remote, from a copy, undamaged here'
start
trouble right one.bin
cmp "$MC_TMP/want/kept" "$mnt/kv/d/kept" || fail 'kept'
cmp "$MC_TMP/want/far" "$mnt/kv/d/far" || fail 'far'
for i in gone large; do
	[ ! -e "$mnt/kv/d/$i" ] || fail "$i is still there"
done
put gone 300000
cmp "$MC_TMP/want/gone" "$mnt/kv/d/gone" || fail 'put again'
mount_stop || fail "stop: $mount_rc"
fsck 0 "$cache"

fact 'a damaged superblock of the journal and a lost STORE cost nothing'
flip "$cache/journal/SUPER" 20
flip "$cache/kv/kvjournal/SUPER" 4200
rm "$cache/STORE"
fsck 1 --repair "$cache"
says 'journal/SUPER: one of its two pages is not whole'
says 'STORE is missing'
start
cmp "$MC_TMP/want/kept" "$mnt/kv/d/kept" || fail 'kept'
mv "$MC_TMP/remote/chunks" "$MC_TMP/chunks.away"
trouble right one.bin
mv "$MC_TMP/chunks.away" "$MC_TMP/remote/chunks"
mount_stop || fail "stop: $mount_rc"

fact 'a mount is checked in use: its daemon deals with what is damaged; exit codes 1 and 0'
start --kv-ack remote --scrub 0
put near 300000
mount_stop || fail "stop: $mount_rc"
start --scrub 0
at=$(where "$MC_TMP/want/near" kv/segments)
[ -n "$at" ] || fail 'near is in no segment'
flip "${at% *}" $((${at#* } + 1000))
fsck 1 "$mnt"
says '1 damaged, of which 0 are right again, 1 dropped'
fsck 0 "$mnt"
cmp "$MC_TMP/want/near" "$mnt/kv/d/near" || fail 'near'
mount_stop || fail "stop: $mount_rc"
fsck 0 "$cache"

fact 'a directory without a tier, and one that is not there, are told; exit code 3'
fsck 3 "$MC_TMP/want"
says 'holds no tier of mooncakefs'
fsck 3 "$MC_TMP/none"
says 'No such file or directory'
fsck 2 --repair -n "$cache"
exit 0
