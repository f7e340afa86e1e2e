#!/bin/bash
# The crash suite, beyond the bounds of the default run: every sequence of three operations in
# process with a crash at every I/O, sampled states of a recording disk under ext4 and XFS (the KV
# store over NVMe, over a directory as the remote, over both, over a block tier), and daemons killed under load.
#   crash-explore.sh [--states N] [--kills N] [--seed N] [disk|kill|process]...
# N states of the disk (600), N kills (200); a seed repeats a run. Called by itself it wants nothing
# but a build (MC_BUILD, build/).
# timeout: 10800
set -eu

states=600 kills=200 parts=()
while [ $# -gt 0 ]; do
	case $1 in
	--states) states=$2; shift ;;
	--kills) kills=$2; shift ;;
	--seed) export MC_SEED=$2; shift ;;
	disk | kill | process) parts+=("$1") ;;
	*) sed -n '2,7s/^# \?//p' "$0"; exit 2 ;;
	esac
	shift
done
[ ${#parts[@]} -gt 0 ] || parts=(disk kill process)
here=$(dirname "$0")
top=${MC_TMP:-$(mktemp -d /var/tmp/mooncakefs-crash.XXXXXX)}
[ -n "${MC_TMP:-}" ] || trap 'rmdir "$top" 2>/dev/null || :' EXIT
export MC_BUILD=${MC_BUILD:-$here/../build}
MC_BUILD=$(realpath "$MC_BUILD")

# script NAME VARIABLE=VALUE: an integration script in a directory of its own; a skip is no failure.
script()
{
	mkdir "$top/$1"
	env MC_TMP="$top/$1" "$2" "$here/$1.sh" || [ $? = 77 ]
	rm -rf --one-file-system "${top:?}/$1"
}

for part in "${parts[@]}"; do
	case $part in
	disk) script it-crash-disk MC_STATES="$states" ;;
	kill) script it-kv-kill MC_KILLS="$kills" ;;
	process)
		for test in kv-log-crash nvme-crash kv-crash; do
			MC_LONG=1 CK_TIMEOUT_MULTIPLIER=40 "$MC_BUILD/tests/test-$test"
		done
		;;
	esac
done
