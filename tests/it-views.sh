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
# Written down as revisions of their own; one of them is then a source in parts.
for model in mixtral deepseek-v3; do
	"$mooncakefs" reshard "acme/$model" tp4 "acme/$model-tp4@r1" --remote "$remote" >"$MC_TMP/out" ||
		fail "reshard $model"
done
grep -q ' 39 files' "$MC_TMP/out" || fail "what reshard says: $(cat "$MC_TMP/out")"
"$mooncakefs" reshard acme/mixtral tp4 acme/mixtral-tp4@r1 --remote "$remote" >"$MC_TMP/out" || fail 'reshard again'
grep -q 'wrote 0 B in 0 of' "$MC_TMP/out" || fail 'what is there is not written again'
"$mooncakefs" verify acme/mixtral-tp4 --remote "$remote" >/dev/null || fail 'verify'
# The document in docs/LAYOUT.md, registered.
awk '/^```json/ {on = 1; next} /^```/ {on = 0} on' "$mount_lib/../../docs/LAYOUT.md" >"$MC_TMP/llama-qkv.json"
"$mooncakefs" layout add "$MC_TMP/llama-qkv.json" --remote "$remote" >/dev/null || fail 'layout add'
sed 's/"pad": 64/"pad": 128/' "$MC_TMP/llama-qkv.json" >"$MC_TMP/other.json"
! "$mooncakefs" layout add "$MC_TMP/other.json" --remote "$remote" 2>/dev/null || fail 'a layout changed'

mount_start --dram 256MiB || fail 'mount'

[ "$(ls "$mnt/views/acme" | grep -c @)" = $(($(wc -w <<<"$models") + 2)) ] || fail 'the list of models'
[ "$(readlink "$mnt/views/acme/llama")" = llama@r1 ] || fail 'the link to the newest revision'
for model in $models; do
	for mesh in $(views meshes "$model"); do
		views check "$model" "$mesh" "$mnt/views/acme/$model@r1/$mesh" || fail "check $model $mesh"
	done
done
for model in mixtral deepseek-v3; do
	diff -r "$mnt/views/acme/$model@r1/tp4/rank-00002" "$mnt/checkpoints/acme/$model-tp4@r1/rank-00002" ||
		fail "reshard $model differs from its view"
done
for mesh in tp1 tp2-pp2; do
	views check mixtral "$mesh" "$mnt/views/acme/mixtral-tp4@r1/$mesh" || fail "from parts to $mesh"
done
for model in llama tied; do
	views sharded "$model" 4 "$mnt/views/acme/$model/tp4-vllm" || fail "sharded state of $model"
done
[ -f "$mnt/views/acme/llama/tp4-vllm/config.json" ] || fail 'files beside a sharded state'
! ls "$mnt/views/acme/mixtral/tp4-vllm" 2>/dev/null || fail 'sharded state without a profile'
cmp "$mnt/layouts/llama-qkv.json" "$MC_TMP/llama-qkv.json" || fail 'layouts/'
[ "$(ls "$mnt/layouts")" = llama-qkv.json ] || fail 'list of layouts/'
grep -q self_attn.qkv_proj.weight "$mnt/views/acme/llama/llama-qkv/rank-00001/model.safetensors" ||
	fail 'view by a registered layout'
ls "$mnt/views/acme/llama" >"$MC_TMP/list" || fail 'list of layouts'
grep -qx tp8 "$MC_TMP/list" && grep -qx llama-qkv "$MC_TMP/list" || fail 'layouts that fit are listed'
! grep -q ep8 "$MC_TMP/list" || fail 'a layout that does not fit is listed'
views hot "$mnt/views/acme/wide/tp2/rank-00001/model.safetensors" >"$MC_TMP/out" 2>&1 || fail "a second pass: $(cat "$MC_TMP/out")"
grep -q 'passthrough=off' "$MC_TMP/log" || grep -qx 'served by passthrough' "$MC_TMP/out" || fail "a hot view is $(cat "$MC_TMP/out")"
views blocks "$mnt/views/acme/wide/tp4/rank-00001/model.safetensors" || fail 'reads'
[ "$(getfattr --only-values -n user.mooncake.kind "$mnt/views/acme/llama/tp2/rank-00000/model.safetensors")" = view ] ||
	fail 'kind'
[ ! -e "$mnt/views/acme/llama/tp3x" ] || fail 'a name that is no layout'
[ ! -e "$mnt/views/acme/llama/tp2/rank-00002" ] || fail 'a rank beyond the mesh'
stat "$mnt/views/acme/llama/tp7" 2>"$MC_TMP/err" && fail 'a layout that does not fit'
grep -q 'Invalid argument' "$MC_TMP/err" || fail "a layout that does not fit: $(cat "$MC_TMP/err")"
mount_stop || fail "stop: $mount_rc"
