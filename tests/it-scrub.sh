#!/bin/bash
# Scrubbing: bits flip on NVMe under readers, and what is read afterwards is right.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

# A directory whose file system has leases, or nothing is passed through.
nvme=$MC_TMP/nvme
config=$MC_TMP/config.json
scrub_check()
{
	fact "$2"
	python3 -B "$mount_lib/scrub_checks.py" "$1" "$mnt" "$MC_TMP/source" "$nvme" "$MC_TMP/log" \
		"$mount_pid" "$config" || fail "$1"
}
start() { mount_start --dram 128MiB --kv-dram 64MiB --nvme "$nvme,512MiB" --config "$config" "$@" || fail 'mount'; }

mkdir "$MC_TMP/source"
head -c 20M /dev/urandom >"$MC_TMP/source/one.bin"
printf tail >>"$MC_TMP/source/one.bin"
head -c 8M /dev/urandom >"$MC_TMP/source/two.bin"
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
echo '{"scrub": 0}' >"$config"
start
"$mooncakefs" warm --tier nvme "$mnt/checkpoints/acme/model@r1" || fail warm
"$mooncakefs" evict --tier dram "$mnt/checkpoints/acme/model@r1" || fail evict
mode=$(getfattr --absolute-names --only-values -n user.mooncake.io "$mnt/checkpoints/acme/model@r1/one.bin")

if [ "$mode" = passthrough ]; then
	scrub_check mapped 'bits that flip under readers in passthrough and their mappings are put right in place'
	# One that has no chunk open.
	mount_stop || fail "stop: $mount_rc"
	start
	scrub_check away 'while the remote is away damage stays under its reader, and is put right when it is back'
fi
scrub_check unread 'a damaged block that nobody reads past the daemon is dropped and fetched again'
scrub_check objects 'a damaged KV object is written anew from DRAM, the last copy stays and is told'
scrub_check watched 'an ordered scrub tells how far it is and ends with who ordered it; the rate follows the configuration'
mount_stop || fail "stop: $mount_rc"

# The place says that a pass has just been; without it the first one begins at once.
rm -f "$nvme/scrub"
image=$(find "$nvme/images" -name "*-$((8 << 20))")
"$mount_lib/flip-byte" "$image" $((6 * 1048576 + 99))
echo '{"scrub": "1GiB"}' >"$config"
start
scrub_check background 'without an order what is damaged is found, too, and the place is kept'
mount_stop || fail "stop: $mount_rc"
grep -q 'read_errors=0 ' "$MC_TMP/log" || fail 'read errors'
exit 0
