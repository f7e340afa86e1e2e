#!/bin/bash
# What `meson install` puts where, whether the manual pages are right and complete, and that
# uninstalling leaves nothing.
set -euo pipefail

. "$(dirname "$0")/lib/script.sh"
prefix=$(meson introspect "$MC_BUILD" --buildoptions | python3 -c '
import json, sys
print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
export DESTDIR=$MC_TMP/dest
top=$DESTDIR$prefix

meson install -C "$MC_BUILD" --no-rebuild >"$MC_TMP/out" 2>&1 || { cat "$MC_TMP/out"; fail 'meson install'; }

fact 'program, helpers, unit, manual pages, completion, schema and presets are installed'
for file in bin/mooncakefs sbin/mount.fuse.mooncakefs sbin/umount.fuse.mooncakefs \
	lib/systemd/system/mooncakefs@.service share/bash-completion/completions/mooncakefs \
	share/mooncakefs/mooncakefs.schema.json share/mooncakefs/write-profile.py share/mooncakefs/presets/llama.json \
	share/man/man1/mooncakefs.1 share/man/man5/mooncakefs.json.5 share/man/man5/mooncakefs-layout.5 \
	share/man/man5/mooncakefs-remote.5 share/man/man8/mooncakefs-service.8 \
	share/man/man8/mount.fuse.mooncakefs.8; do
	[ -s "$top/$file" ] || fail "not installed: $file"
done
"$top/bin/mooncakefs" version >/dev/null || fail 'the installed program'
rc=0
"$top/sbin/mount.fuse.mooncakefs" 2>"$MC_TMP/out" || rc=$?
[ $rc = 1 ] && grep -q 'Usage: mount.fuse.mooncakefs' "$MC_TMP/out" || fail "the helper: $rc"
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$top/share/mooncakefs/mooncakefs.schema.json"

fact 'every command has a manual page that documents each of its options'
"$top/bin/mooncakefs" help | sed -nE 's/^  ([a-z-]+) +[A-Z].*/\1/p' >"$MC_TMP/commands"
[ "$(wc -l <"$MC_TMP/commands")" -ge 12 ] || fail "commands: $(cat "$MC_TMP/commands")"
n=0
while read -r command; do
	page=$top/share/man/man1/mooncakefs-$command.1
	[ -s "$page" ] || fail "no page for $command"
	text=$(sed 's/\\-/-/g' "$page")
	for option in $("$top/bin/mooncakefs" help "$command" | sed -nE 's/^ +(-., )?--([a-z0-9-]+).*/\2/p'); do
		grep -qE "^\.BR (-. \", \" )?--$option( |\$)" <<<"$text" ||
			fail "$command: --$option is not in the page"
		n=$((n + 1))
	done
	grep -q "mooncakefs\\\\-$command" "$top/share/man/man1/mooncakefs.1" || fail "mooncakefs(1): $command"
done <"$MC_TMP/commands"
[ $n -gt 50 ] || fail "$n options looked at"
python3 -c '
import json, re, sys
keys = set(json.load(open(sys.argv[1]))["properties"]) - {"$schema"}
page = set(re.findall(r"^\.B ([a-z0-9-]+)$", open(sys.argv[2]).read().replace("\\-", "-"), re.M))
sys.exit(f"not in mooncakefs.json(5): {keys - page}" if keys - page else 0)' \
	"$top/share/mooncakefs/mooncakefs.schema.json" "$top/share/man/man5/mooncakefs.json.5" || fail 'keys'

fact 'the manual pages are clean'
find "$top/share/man" -type f >"$MC_TMP/pages"
while read -r page; do
	! grep -nF '(null)' "$page" || fail "$page"
	if command -v mandoc >/dev/null; then
		mandoc -Tlint "$page" >"$MC_TMP/out" 2>&1 || { cat "$MC_TMP/out"; fail "$page"; }
	fi
	if command -v man >/dev/null && command -v groff >/dev/null; then
		LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>"$MC_TMP/out" >/dev/null
		[ ! -s "$MC_TMP/out" ] || { cat "$MC_TMP/out"; fail "$page"; }
	fi
done <"$MC_TMP/pages"

fact 'the completion knows commands, options and choices'
completes()
{
	local want=$1
	shift

	bash -euc '. "$0"; COMP_WORDS=("${@}"); COMP_CWORD=$(($# - 1)); _mooncakefs; echo "${COMPREPLY[*]}"' \
		"$top/share/bash-completion/completions/mooncakefs" "$@" >"$MC_TMP/out"
	[ "$(cat "$MC_TMP/out")" = "$want" ] || fail "completion of $*: $(cat "$MC_TMP/out")"
}
completes import mooncakefs imp
completes 'check show schema' mooncakefs config ''
completes 'dram nvme remote' mooncakefs mount --kv-ack ''
completes --stop-timeout mooncakefs mount --sto

fact 'no directive of the unit implies a mount namespace'
unit=$top/lib/systemd/system/mooncakefs@.service
# systemd.exec(5): these need or imply a mount namespace of the service.
! grep -nE '^(Private|Protect|ReadWrite|ReadOnly|Inaccessible|Exec(Paths|SearchPath)|NoExec|Bind|Temporary|Root|Mount|Dynamic|ProcSubset|LoadCredential|SetCredential|LogNamespace|StateDirectory|CacheDirectory|IPCNamespace|NetworkNamespace|Extension)' \
	"$unit" || fail 'the unit'
grep -q '^Type=notify' "$unit" && grep -q "^ExecStart=$prefix/bin/mooncakefs mount --foreground" "$unit" || fail 'the unit'
if command -v systemd-analyze >/dev/null; then
	# It looks for the program under its final name: a copy of the unit names the one that is there.
	mkdir "$MC_TMP/unit"
	sed "s|=$prefix/bin/|=$top/bin/|" "$unit" >"$MC_TMP/unit/mooncakefs@mnt-x.service"
	SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no "$MC_TMP/unit/mooncakefs@mnt-x.service" \
		>"$MC_TMP/out" 2>&1 || true
	! grep -E 'mooncakefs@mnt-x.service.*(Unknown|Failed|Invalid|ignoring)' "$MC_TMP/out" || fail 'systemd-analyze'
fi

fact 'uninstalling leaves nothing'
ninja -C "$MC_BUILD" uninstall >"$MC_TMP/out" 2>&1 || { cat "$MC_TMP/out"; fail uninstall; }
[ ! -e "$DESTDIR" ] || fail "left: $(find "$DESTDIR")"
exit 0
