#!/bin/bash
# tests/check-architecture accepts tables that name every file and refuses the others.
set -uo pipefail
check=$(cd "$(dirname "$0")" && pwd)/check-architecture
dir=$(mktemp -d) || exit 1
trap 'rm -r "$dir"' EXIT
mkdir "$dir"/{docs,tier,fs,manifest}
touch "$dir"/tier/{kv.c,kv.h,kv-log.c,kv-log-op.c,kv-impl.h,nvme.c,nvme-io.c} "$dir/fs/run.c" "$dir/manifest/gc.c"

# expect RC TEXT NAMES: what the checker makes of a table of tier/ with these names.
expect()
{
	local out rc=0

	printf '## tier/\n| file | what |\n|---|---|\n%s\n' "$3" | sed '1i\\n' >"$dir/docs/ARCHITECTURE.md"
	printf '\n## fs/\n| file | what |\n|---|---|\n| run | a |\n\n## manifest/\n| file | what |\n|---|---|\n| gc | a |\n' \
		>>"$dir/docs/ARCHITECTURE.md"
	out=$("$check" "$dir") || rc=$?
	[ $rc = "$1" ] && grep -qF -- "$2" <<<"$out" || { echo "FAILED: $rc, $out; expected $1, $2"; exit 1; }
}

expect 0 'every file is named' $'| kv, kv-log, -op | a |\n| nvme\\* | b |'
expect 1 'tier/nvme-io is in no table' $'| kv, kv-log, -op | a |\n| nvme | b |'
expect 1 'tier/ has no file "-pack"' $'| kv, kv-log, -op, -pack | a |\n| nvme\\* | b |'
