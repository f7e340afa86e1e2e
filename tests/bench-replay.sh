#!/bin/bash
# Replays the traces in the directory $MC_TRACES (*.jsonl, Mooncake format) against the policies, and
# through the store library.
# timeout: 1800
set -uo pipefail

shopt -s nullglob
args=()
for trace in "${MC_TRACES:-/nonexistent}"/*.jsonl; do
	args+=(--trace "$trace")
done
if [ ${#args[@]} -eq 0 ]; then
	echo "set MC_TRACES to a directory with *.jsonl traces of the Mooncake format"
	exit 77
fi
mkdir "$MC_TMP/store"
exec "$MC_BUILD/tests/replay/replay" --json "$MC_TMP/replay.json" --store "$MC_TMP/store" "${args[@]}"
