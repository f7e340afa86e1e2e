#!/bin/bash
# Puts whose writes met a full memory, by clients that do not look at what write tells them: nothing half of them
# is there afterwards, past the daemon and through it.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

full_check() { timeout 100 python3 -B "$mount_lib/full_checks.py" "$1" "$mnt/kv/d" "${@:2}" || fail "check $*"; }
gone() { [ ! -e "$mnt/kv/d/$1" ] || fail "$1 is there, of $(stat -c %s "$mnt/kv/d/$1") bytes"; }

head -c 100M /dev/zero >"$MC_TMP/large"
for mode in '' --no-passthrough; do
	mount_start --dram 128MiB --kv-dram 64MiB --nvme "$MC_TMP/nvme,1GiB" ${mode:+"$mode"} || fail "mount: $mount_rc"
	mkdir "$mnt/kv/d"
	fact "what cp and dd could not write whole is not there, and the log and kv/ say why${mode:+, through the daemon}"
	cp "$MC_TMP/large" "$mnt/kv/d/cp" 2>"$MC_TMP/cp" && fail 'cp of more than there is'
	grep -q 'No space left' "$MC_TMP/cp" || fail "cp: $(cat "$MC_TMP/cp")"
	gone cp
	logged kv-put-failed d/cp 'No space left'
	getfattr --absolute-names --only-values -n user.mooncake.error "$mnt/kv" | grep -q -- --kv-dram || fail 'the way out'
	dd if=/dev/zero of="$mnt/kv/d/dd" bs=1M conv=noerror,notrunc status=none 2>/dev/null && fail 'dd to the end'
	gone dd
	[ "$(kv_figure puts_failed)" = 2 ] || fail "puts that failed: $(kv_figure puts_failed)"
	full_check ignored
	full_check replaced
	full_check synced
	full_check mapped
	full_check freed_by_others "$([ -n "$mode" ] && echo through || echo past)"
	fact "a put after room was made works${mode:+, through the daemon}"
	head -c 20M "$MC_TMP/large" >"$mnt/kv/d/dd" || fail 'a put with room'
	cmp -n 20M "$MC_TMP/large" "$mnt/kv/d/dd" || fail 'its bytes'
	full_check killed "$mount_worker"
	rm -r "$mnt/kv/d" || fail 'what is there cannot be removed'
	mount_stop || fail "stop: $mount_rc"
done
exit 0
