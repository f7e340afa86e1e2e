#!/bin/bash
# A mapping that outlives its descriptor keeps its bytes: while the tier evicts, when the daemon is
# killed, and while its successor evicts.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

mount_make_source "$MC_TMP/source" || exit 1
rm -r "$MC_TMP/source/many"
mkdir "$MC_TMP/large"
head -c 100M /dev/urandom >"$MC_TMP/large/large.bin"
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
mount_import "$MC_TMP/large" acme/large@r1 || fail 'import'
mount_start --dram 64MiB || fail 'mount'

coproc holder { python3 -B "$mount_lib/mount_checks.py" held "$MC_TMP/source" "$mnt/checkpoints/acme/model@r1"; }
read -r mode <&"${holder[0]}" || fail 'the holder'
passthrough=$(sed -nE 's/.*event=mounted .*passthrough=([a-z]+).*/\1/p' "$MC_TMP/log")
[ "$passthrough" = off ] || [ "$mode" = passthrough ] || fail "the mapped file is $mode"
still_right()
{
	local answer

	echo >&"${holder[1]}"
	read -r answer <&"${holder[0]}" && [ "$answer" = right ] || fail "the mapping after $1: ${answer:-died}"
}

still_right 'its close'
check press
still_right 'eviction'
mount_kill
if [ "$mode" = passthrough ]; then
	still_right 'the death of the daemon'
	mount_start --dram 64MiB || fail 'mount again'
	still_right 'the new daemon'
	check press
	still_right 'its eviction'
	check bytes
	mount_stop || fail "stop: $mount_rc"
	still_right 'the end of the new daemon'
fi
exit 0
