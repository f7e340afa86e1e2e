#!/bin/bash
# The remote in trouble: damaged, missing, full, changing under an import. Each error names the thing, the
# tier and the way out, and the way out works.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need
export XDG_STATE_HOME=$MC_TMP/state

# command CODE TEXT... -- ARG...: the program's exit code, and texts that its last output holds.
command()
{
	local code=$1 rc=0 texts=() text
	shift

	while [ "$1" != -- ]; do
		texts+=("$1")
		shift
	done
	shift
	"$mooncakefs" "$@" --remote "$remote" >"$MC_TMP/out" 2>&1 </dev/null || rc=$?
	[ $rc = "$code" ] || { cat "$MC_TMP/out"; fail "$*: exit code $rc, not $code"; }
	for text in "${texts[@]}"; do
		grep -qF -- "$text" "$MC_TMP/out" || { cat "$MC_TMP/out"; fail "$*: no \"$text\""; }
	done
}

source=$MC_TMP/source
revision=$MC_TMP/remote/checkpoints/acme/model/r1
mkdir "$source"
head -c 20M /dev/urandom >"$source/one.bin"
head -c 3M /dev/urandom >"$source/two.bin"
command 0 -- import "$source" acme/model@r1
chunk=$(find "$MC_TMP/remote/chunks" -type f -size +7M | head -n 1)
name=chunks/${chunk#"$MC_TMP/remote/chunks/"}
cp "$chunk" "$MC_TMP/good"

# Where the chunk lies in the file, in blocks of 1 MiB.
at=$(python3 - "$source/one.bin" "$chunk" <<'END'
import sys
a, b = (open(p, "rb").read() for p in sys.argv[1:])
print(a.index(b) >> 20)
END
)
[ -n "$at" ] || fail 'a chunk of one.bin'

fact 'a flipped bit on the remote: EIO for that block, right bytes beside it'
"$(dirname "$0")/lib/flip-byte" "$chunk" $((2 * 1048576 + 5))
mount_start --dram 64MiB --deadline 5 || fail 'mount'
trouble eio one.bin $((at + 2)) 1
fact 'the log names the checkpoint file, the digest, the remote, the chunk and the way out'
logged event=remote-bad-block tier=remote "url=$remote" "object=$name" 'mooncakefs verify'
logged event=read-failed 'file="acme/model@r1/one.bin"' digest= tier=remote "url=\"$remote\"" 'mooncakefs verify'

fact 'verify names file, byte range and chunk, and how to repair; exit code 3'
command 3 'one.bin: bytes ' "$(basename "$chunk")" 'wrong bytes on the remote' 'import the same source' \
	-- verify acme/model@r1
command 1 one.bin 'wrong bytes' 'mooncakefs verify' -- export acme/model@r1 "$MC_TMP/out-1"

fact 'a missing chunk: EIO, and the log and export say what restores it'
rm "$chunk"
trouble eio one.bin $((at + 2)) 1
logged event=fetch-failed tier=remote "url=$remote" "object=$name" 'importing the same source again restores it'
command 1 "$name" 'importing the same source again restores it' -- export acme/model@r1 "$MC_TMP/out-2"

fact 'importing the same source again restores a missing chunk, which a mounted reader sees'
command 0 -- import "$source" acme/model@r1
cmp "$chunk" "$MC_TMP/good" || fail 'the restored chunk'
trouble recovers one.bin
command 0 '0 damaged' -- verify acme/model@r1

fact 'a remote that is away and comes back: EIO for what is not resident, then right bytes'
mount_stop || fail "stop: $mount_rc"
mount_start --dram 64MiB --deadline 5 || fail 'mount'
stat "$mnt/checkpoints/acme/model@r1/one.bin" >/dev/null || fail stat
trouble right two.bin
mv "$MC_TMP/remote/chunks" "$MC_TMP/chunks.away"
trouble right two.bin
trouble eio one.bin 0 20
mv "$MC_TMP/chunks.away" "$MC_TMP/remote/chunks"
trouble recovers one.bin two.bin

fact 'a damaged manifest is an error that names it; importing the same source repairs it'
for what in 'X manifest.json' 'X manifest.id'; do
	file=${what#* }
	echo "${what% *}" >>"$revision/$file"
	command 1 "$remote" "checkpoints/acme/model/r1/$file" 'import' -- verify acme/model@r1
	command 0 -- import "$source" acme/model@r1
	command 0 '0 damaged' -- verify acme/model@r1
done
echo nonsense >"$MC_TMP/remote/checkpoints/acme/model/latest"
command 1 "$remote" checkpoints/acme/model/latest 'import' -- verify acme/model
command 0 -- import "$source" acme/model@r1
command 0 -- verify acme/model

fact 'a mount shows a damaged manifest as EIO, logs it, and goes on with the other revisions'
command 0 -- import "$source" acme/other@r1
echo X >>"$MC_TMP/remote/checkpoints/acme/other/r1/manifest.json"
got=$(stat "$mnt/checkpoints/acme/other@r1/one.bin" 2>&1) && fail 'a damaged manifest is shown'
grep -q 'Input/output error' <<<"$got" || fail "not EIO: $got"
logged event=catalogue-failed 'name="acme/other@r1"' "$remote" checkpoints/acme/other/r1/manifest.json 'import the same'
trouble right two.bin
mount_stop || fail "stop: $mount_rc"

fact 'an index that names a missing file fails the import and names both; nothing is visible'
mkdir "$MC_TMP/short"
echo '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}' \
	>"$MC_TMP/short/model.safetensors.index.json"
python3 - "$MC_TMP/short/model-00001-of-00002.safetensors" <<'END'
import json, struct, sys
h = json.dumps({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(h)) + h + b"abcd")
END
command 1 model-00002-of-00002.safetensors model.safetensors.index.json -- import "$MC_TMP/short" acme/short@r1
command 1 acme/short -- verify acme/short@r1

fact 'a truncated weight file fails the import with the sizes'
cp "$MC_TMP/short/model-00001-of-00002.safetensors" "$MC_TMP/short/model-00002-of-00002.safetensors"
sed -i 's/"b"/"x"/' "$MC_TMP/short/model.safetensors.index.json"
truncate -s -1 "$MC_TMP/short/model-00002-of-00002.safetensors"
command 1 model-00002-of-00002.safetensors -- import "$MC_TMP/short" acme/short@r1
cat "$MC_TMP/out"

fact 'a source that changes during the import fails it and names the file; nothing is visible'
mkdir "$MC_TMP/moving"
head -c 200M /dev/urandom >"$MC_TMP/moving/large.bin"
echo a >"$MC_TMP/moving/small"
mkfifo "$MC_TMP/progress"
"$mooncakefs" import "$MC_TMP/moving" acme/moving@r1 --remote "$remote" --jobs 1 --json \
	>"$MC_TMP/progress" 2>"$MC_TMP/err" &
import=$!
exec 5<"$MC_TMP/progress"
while read -r line <&5 && [[ $line == *'"stage":"scan"'* ]]; do :; done
kill -STOP $import
echo b >>"$MC_TMP/moving/small"
printf y | dd of="$MC_TMP/moving/large.bin" bs=1 seek=150M conv=notrunc status=none
kill -CONT $import
cat <&5 >/dev/null
exec 5<&-
rc=0
wait $import || rc=$?
[ $rc = 1 ] || fail "import of a changing source: exit code $rc after $line"
grep -q 'changed' "$MC_TMP/err" && grep -qE 'small|large.bin' "$MC_TMP/err" || fail "changed source: $(cat "$MC_TMP/err")"
command 1 acme/moving -- verify acme/moving@r1
exit 0
