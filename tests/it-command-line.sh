#!/bin/bash
# What the program says and how it ends: help, mistakes, exit codes.
set -euo pipefail

program=$MC_BUILD/mooncakefs
export XDG_STATE_HOME=$MC_TMP/state
. "$(dirname "$0")/lib/script.sh"

# expect CODE TEXT ARG...: exit code, and a text in what is printed.
expect()
{
	local code=$1 text=$2 rc=0
	shift 2

	"$program" "$@" >"$MC_TMP/out" 2>&1 </dev/null || rc=$?
	[ $rc = "$code" ] || { cat "$MC_TMP/out"; fail "$*: exit code $rc, not $code"; }
	[ -z "$text" ] || grep -qF -- "$text" "$MC_TMP/out" || { cat "$MC_TMP/out"; fail "$*: no \"$text\""; }
}

expect 0 'Usage: mooncakefs COMMAND' --help
expect 0 'mooncakefs ' --version
expect 2 'Usage: mooncakefs COMMAND'
expect 2 'did you mean "import"?' imprt
expect 2 'no command "xyzzy"' xyzzy
for command in import ls verify export mount umount config version help; do
	expect 0 "Usage: mooncakefs $command" help $command
	expect 0 'Exit codes:' $command --help
	expect 2 'unknown option --frobnicate' $command --frobnicate
done
expect 2 'did you mean --strict?' import a o/m --stirct
expect 2 'missing argument; usage: mooncakefs import SRC' import
expect 2 'too many arguments: "c"' import a o/m c
expect 2 'which remote? Give --remote' ls
expect 2 'which remote? Give --remote' mount "$MC_TMP"
expect 1 "$MC_TMP/none" ls --remote "dir:$MC_TMP/none"
expect 1 'ftp://x' ls --remote ftp://x
mkdir "$MC_TMP/remote"
remote=(--remote "dir:$MC_TMP/remote")
expect 0 '' ls "${remote[@]}"
expect 1 'o/m' ls o/m "${remote[@]}"
expect 1 'o/m' verify o/m "${remote[@]}"
expect 1 'o/m' export o/m@v1 "$MC_TMP/dest" "${remote[@]}"
expect 0 '' import "$MC_BUILD/packaging" o/model@v1 "${remote[@]}"
expect 1 'has no checkpoint o/modle; did you mean o/model?' ls o/modle "${remote[@]}"
expect 1 'has no checkpoint o/modle; did you mean o/model?' export o/modle "$MC_TMP/dest" "${remote[@]}"
for command in verify repair rm; do
	expect 1 'has no revision o/model@v2; it has @v1' $command o/model@v2 "${remote[@]}"
done
expect 1 'o/model holds no tensors' plan --model o/model --from tp2 --to tp4 "${remote[@]}"
expect 2 'no-slash' import "$MC_TMP" no-slash "${remote[@]}"
expect 2 '' import "$MC_TMP" ../m "${remote[@]}"
expect 1 "$MC_TMP/nowhere" import "$MC_TMP/nowhere" o/m "${remote[@]}"
expect 1 'nothing is mounted at' umount "$MC_TMP"
expect 1 'not ours' umount /proc
expect 2 '--nvme: "/n,12XB" is not DIR or DIR,SIZE' mount "$MC_TMP" "${remote[@]}" --nvme "/n,12XB"
expect 1 "$MC_TMP/nowhere" mount "$MC_TMP/nowhere" "${remote[@]}"
echo '{"dram": "1GiB", "remtoe": "x"}' >"$MC_TMP/config.json"
expect 2 'unknown key "remtoe"; did you mean "remote"?' ls --config "$MC_TMP/config.json"
expect 1 "$MC_TMP/config.json:1: unknown key \"remtoe\"" config check "$MC_TMP/config.json"
expect 1 "$MC_TMP/none: No such file" config check "$MC_TMP/none"
expect 2 'check which file?' config check
expect 2 'give check FILE, show [MOUNTPOINT] or schema' config xyzzy
echo "{\"remote\": \"dir:$MC_TMP/remote\"}" >"$MC_TMP/config.json"
expect 0 'no mistake found' config check "$MC_TMP/config.json"
expect 0 '"key":"remote","value":"dir:'"$MC_TMP"'/remote","origin":"configuration file"' \
	config show --json --config "$MC_TMP/config.json"
expect 0 'json-schema.org' config schema
expect 0 '' ls --config "$MC_TMP/config.json"

fact 'with --json each line is an object, and a failure is one that says why and how the command ends'
commands=$("$program" --help | sed -nE 's/^  ([a-z-]+) +[A-Z].*/\1/p' | grep -vx help)
for command in $commands; do
	"$program" $command --help >"$MC_TMP/out"
	grep -qF -- --json "$MC_TMP/out" || fail "$command has no --json"
	for args in '--frobnicate' "$MC_TMP/none $MC_TMP/none $MC_TMP/none o/m"; do
		rc=0
		# shellcheck disable=SC2086
		"$program" $command $args --json >"$MC_TMP/out" 2>/dev/null </dev/null || rc=$?
		printf '["%s %s",%s,[%s]]\n' "$command" "$args" $rc "$(paste -sd , "$MC_TMP/out")" >>"$MC_TMP/failures"
	done
done
python3 - "$MC_TMP/failures" <<'END' || fail 'failures as JSON'
import json, sys
for line in open(sys.argv[1], encoding="utf-8"):
    what, rc, said = json.loads(line)
    assert rc > 0 and said[-1]["event"] == "error" and said[-1]["text"] and said[-1]["exit_code"] == rc, line
END
expect 0 '{"event":"checked","file":"'"$MC_TMP/config.json"'"}' config check "$MC_TMP/config.json" --json
expect 1 '"text":"\ufffd: No such file' config check $'\xff' --json

cat >"$MC_TMP/layout.json" <<'END'
{"format":"reshard-layout","version":1,"name":"halves","mesh":{"axes":[["tp",2]]},"rules":[{"match":"**","replicate":true}]}
END
for args in "check $MC_TMP/layout.json:good" "add $MC_TMP/layout.json:registered" ls:registered 'rm halves:removed'; do
	# shellcheck disable=SC2086
	expect 0 '{"event":"'"${args##*:}"'","kind":"layout","name":"halves"}' layout ${args%:*} --json "${remote[@]}"
done
expect 1 '"xx" is no layout: no document of that name, and no mesh like' layout show xx "${remote[@]}"

# What stands in the way is named together with the tier and the way out.
: >"$MC_TMP/file"
expect 1 "dir:$MC_TMP/file: Not a directory; give the directory that holds" ls --remote "dir:$MC_TMP/file"
expect 1 "dir:$MC_TMP/none: No such file or directory; make the directory, or mount" ls --remote "dir:$MC_TMP/none"
expect 1 'unknown kind of remote; use nfs://SERVER/EXPORT or dir:/PATH' ls --remote http://x
expect 1 'nfs://127.0.0.1/x?nfsport=9&mountport=9: the MOUNT service of 127.0.0.1' \
	ls --remote 'nfs://127.0.0.1/x?nfsport=9&mountport=9' --deadline 2
expect 1 'is the server up, and are nfsport= and mountport= right?' \
	ls --remote 'nfs://127.0.0.1/x?nfsport=9&mountport=9' --deadline 2
expect 1 "mount point $MC_TMP/none: No such file or directory; make the directory" mount "$MC_TMP/none" "${remote[@]}"
expect 1 "$MC_TMP/none: No such file or directory; attach the device" \
	mount "$MC_TMP" "${remote[@]}" --dram 64MiB --block "$MC_TMP/none"
expect 1 "mount point $MC_TMP/file is not a directory" mount "$MC_TMP/file" "${remote[@]}"
expect 1 "NVMe tier $MC_TMP/file: Not a directory; give a directory on a local disk" \
	mount "$MC_TMP" "${remote[@]}" --nvme "$MC_TMP/file,64MiB"
expect 1 "NVMe tier $MC_TMP/none/x: No such file or directory; give a directory on a local disk" \
	mount "$MC_TMP" "${remote[@]}" --nvme "$MC_TMP/none/x,64MiB"
as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups env "XDG_STATE_HOME=$MC_TMP/nobody")
if [ "$(id -u)" = 0 ] && chmod 755 "$MC_TMP" && "${as_nobody[@]}" "$program" --version >/dev/null; then
	mkdir "$MC_TMP/src"
	mkdir -m 777 "$MC_TMP/nobody"
	echo hello >"$MC_TMP/src/file"
	rc=0
	"${as_nobody[@]}" "$program" import "$MC_TMP/src" o/m "${remote[@]}" >"$MC_TMP/out" 2>&1 || rc=$?
	[ $rc = 1 ] && grep -q 'check the rights of the user' "$MC_TMP/out" || fail "no rights: $rc $(cat "$MC_TMP/out")"
fi

set -o pipefail
"$program" help 2>"$MC_TMP/out" | : || :
[ ! -s "$MC_TMP/out" ] || fail "a reader that is gone: $(cat "$MC_TMP/out")"
rc=0
"$program" help >/dev/full 2>"$MC_TMP/out" || rc=$?
[ $rc = 1 ] || fail "a full standard output: exit code $rc"
