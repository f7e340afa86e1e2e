#!/bin/bash
# tests/check-semantics accepts sentences whose tests exist and refuses the others.
set -uo pipefail
check=$(cd "$(dirname "$0")" && pwd)/check-semantics
dir=$(mktemp -d) || exit 1
trap 'rm -r "$dir"' EXIT

# expect RC TEXT: what the checker makes of standard input.
expect()
{
	local out rc=0

	cat >"$dir/doc.md"
	out=$("$check" "$dir/doc.md") || rc=$?
	[ $rc = "$1" ] && grep -qF -- "$2" <<<"$out" || { echo "FAILED: $rc, $out; expected $1, $2"; exit 1; }
}

expect 0 'every sentence names' <<<'* So it is. [test-digest: hex_is_lower_case_and_exact_length; it-mount-read: bytes]'
expect 0 'every sentence names' <<'END'
* So it is,
  over two lines. [test-check-semantics: expect]

| a | b |
|---|---|
| c | [test-golden: check_file] |
END
expect 1 'doc.md:1: names no test: * Not so.' <<<'* Not so.'
expect 1 'doc.md:3: names no test: | c | d' <<<$'| a | b |\n|---|---|\n| c | d |'
expect 1 'no test "test-digest: hex"' <<<'* Not so. [test-digest: hex]'
expect 1 'no test "it-mount-read: byte"' <<<'* Not so. [it-mount-read: byte]'
expect 1 'no test "nowhere: bytes"' <<<'* Not so. [nowhere: bytes]'
expect 1 'nothing is promised' <<<'Nothing.'
