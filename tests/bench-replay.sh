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
# The store's NVMe tier in memory, where there are 8 GiB: what it decides counts here, not its speed.
store=$MC_TMP/store
if [ "$(df --output=avail -k /dev/shm | tail -n 1)" -gt 8388608 ]; then
	store=$(mktemp -d /dev/shm/mooncakefs-replay.XXXXXX)
	trap 'umount -l "$store/dram" 2>/dev/null; rm -rf "$store"' EXIT
else
	mkdir "$store"
fi
"$MC_BUILD/tests/replay/replay" --json "$MC_TMP/replay.json" --store "$store" "${args[@]}"
