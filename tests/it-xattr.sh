#!/bin/bash
# user.mooncake.* in a real mount: of files, objects and directories; those that do something.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

xattr_check() { timeout 100 python3 -B "$mount_lib/xattr_checks.py" "$1" "$mnt" "${@:2}" || fail "xattr $*"; }

mount_make_source "$MC_TMP/source" || exit 1
find "$MC_TMP/source/many" -name '*[1-9]' -delete
truncate -s 2G "$MC_TMP/source/huge" # a hole
mount_import "$MC_TMP/source" acme/model@r1 || fail 'import'
mount_start --dram 256MiB --nvme "$MC_TMP/nvme,1GiB" || fail 'mount'
fact 'each kind of thing has its attributes, also below tiers'
xattr_check names
fact 'attributes of a directory are sums'
xattr_check sums
fact 'evict and warm move files and directories'
xattr_check evict_warm
fact 'pin keeps files and objects where they are'
xattr_check pin
fact 'what cannot be set is refused'
xattr_check refused
mount_stop || fail "stop: $mount_rc"
fact 'pins survive a restart'
mount_start --dram 256MiB --nvme "$MC_TMP/nvme,1GiB" --hide-xattrs || fail 'mount'
xattr_check pinned
fact 'attributes can be left out of lists'
xattr_check hidden
mount_stop || fail "stop: $mount_rc"
