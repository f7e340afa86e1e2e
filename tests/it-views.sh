#!/bin/bash
# Views in a real mount have the bytes that an independent slicer cuts, for all model families.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

views() { python3 -B "$mount_lib/view_checks.py" "$@"; }

models=$(views models)
for model in $models; do
	views make "$model" "$MC_TMP/$model" || fail "make $model"
	mount_import "$MC_TMP/$model" "acme/$model@r1" || fail "import $model"
	rm -rf "$MC_TMP/$model"
done
mount_start --dram 256MiB || fail 'mount'

[ "$(ls "$mnt/views/acme" | grep -c @)" = "$(wc -w <<<"$models")" ] || fail 'the list of models'
[ "$(readlink "$mnt/views/acme/llama")" = llama@r1 ] || fail 'the link to the newest revision'
for model in $models; do
	for mesh in $(views meshes "$model"); do
		views check "$model" "$mesh" "$mnt/views/acme/$model@r1/$mesh" || fail "check $model $mesh"
	done
done
ls "$mnt/views/acme/llama" >"$MC_TMP/list" || fail 'list of layouts'
grep -qx tp8 "$MC_TMP/list" || fail 'tp8 is listed'
! grep -q ep8 "$MC_TMP/list" || fail 'a layout that does not fit is listed'
views blocks "$mnt/views/acme/wide/tp4/rank-00001/model.safetensors" || fail 'reads'
[ "$(getfattr --only-values -n user.mooncake.kind "$mnt/views/acme/llama/tp2/rank-00000/model.safetensors")" = view ] ||
	fail 'kind'
[ ! -e "$mnt/views/acme/llama/tp3x" ] || fail 'a name that is no layout'
[ ! -e "$mnt/views/acme/llama/tp2/rank-00002" ] || fail 'a rank beyond the mesh'
stat "$mnt/views/acme/llama/tp7" 2>"$MC_TMP/err" && fail 'a layout that does not fit'
grep -q 'Invalid argument' "$MC_TMP/err" || fail "a layout that does not fit: $(cat "$MC_TMP/err")"
mount_stop || fail "stop: $mount_rc"
