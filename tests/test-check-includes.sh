#!/bin/bash
# tests/check-includes finds what it is there to find, and passes what is right.
set -eu
check=$(cd "$(dirname "$0")" && pwd)/check-includes
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

mkdir "$dir/tier" "$dir/manifest" "$dir/fs"
echo 'extern int tier;' >"$dir/tier/a.h"
echo '#include "tier/a.h"' >"$dir/manifest/b.h"
printf '#include "manifest/b.h"\n#include "tier/a.h"\n' >"$dir/fs/c.c"
"$check" "$dir"

# wrong TEXT FILE: writing TEXT to FILE makes the check fail and name the file.
wrong()
{
	echo "$1" >"$dir/$2"
	if out=$("$check" "$dir" 2>/dev/null) || [[ $out != *"$2:"* ]]; then
		echo "not found: $1 in $2"
		exit 1
	fi
	rm "$dir/$2"
}
wrong '#include "manifest/b.h"' tier/up.c
wrong '  #  include "fs/c.h"' manifest/up.c
wrong '#include "a.h"' tier/relative.c
wrong '#include "tier/missing.h"' tier/missing.c
wrong 'size_t needs_stddef(void);' tier/alone.h
