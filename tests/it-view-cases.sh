#!/bin/bash
# What went wrong with layouts for users of neighbouring systems, through a mount: right bytes, or refused.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

cases() { python3 -B "$mount_lib/view_cases.py" "$@"; }

cases make "$MC_TMP/odd" || fail 'make'
mount_import "$MC_TMP/odd" acme/odd@r1 || fail 'import'
cases quantise "$MC_TMP/odd" || fail 'make it quantised'
mount_import "$MC_TMP/odd" acme/quantised@r1 || fail 'import'
mount_start --dram 64MiB || fail 'mount'
cases check "$mnt" || fail 'cases'
logged catalogue-failed acme/ error=
mount_stop || fail "stop: $mount_rc"
