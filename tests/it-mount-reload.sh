#!/bin/bash
# The second load of a checkpoint asks the daemon for nothing, with passthrough and without it.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

mount_make_source "$MC_TMP/source" || exit 1
rm -r "$MC_TMP/source/many"
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
bytes=$(cat "$MC_TMP/source"/{big.bin,two.bin,holes,config.json} | wc -c)
for option in '' --no-passthrough; do
	# shellcheck disable=SC2086 # no option is no word
	mount_start --dram 128MiB $option || fail 'mount'
	check reload
	mount_stop || fail "stop: $mount_rc"
	read_bytes=$(sed -nE 's/.* read_bytes=([0-9]+) .*/\1/p' "$MC_TMP/log")
	echo "three loads of $bytes bytes: the daemon gave $read_bytes (${option:-passthrough where it can})"
	# The kernel may take a cold page back at any time; a second load would double the figure.
	[ "$read_bytes" -le $((bytes + bytes / 50)) ] || fail 'the daemon served bytes twice'
done
