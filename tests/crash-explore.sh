#!/bin/bash
# The crash suite, beyond the bounds of the default run: every sequence of three operations in
# process with a crash at every I/O, and sampled states of a recording disk under ext4 and XFS.
#   crash-explore.sh [--states N] [--seed N]
# N states of the disk (600); a seed repeats a run of them. Called by itself it wants MC_BUILD only.
# timeout: 3600
set -eu

states=600
while [ $# -gt 0 ]; do
	case $1 in
	--states) states=$2 ;;
	--seed) export MC_SEED=$2 ;;
	*) sed -n '2,5s/^# \?//p' "$0"; exit 2 ;;
	esac
	shift 2
done
here=$(dirname "$0")
export MC_BUILD=${MC_BUILD:-$here/../build} CK_TIMEOUT_MULTIPLIER=10
MC_STATES=$states "$here/it-crash-disk.sh" || [ $? = 77 ]
export MC_LONG=1
"$MC_BUILD/tests/test-kv-log-crash"
"$MC_BUILD/tests/test-nvme-crash"
