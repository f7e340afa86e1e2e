#!/bin/bash
# The headers of views as another program reads them: the safetensors reader of @huggingface/hub.
set -uo pipefail
. "$(dirname "$0")/lib/mount.sh"
mount_need

command -v npm >/dev/null || { echo 'needs npm'; exit 77; }
mkdir "$MC_TMP/reader"
if ! (cd "$MC_TMP/reader" && timeout 120 npm install --no-audit --no-fund --ignore-scripts --no-save \
	--prefix . @huggingface/hub@2 >"$MC_TMP/npm.log" 2>&1); then
	tail -n 3 "$MC_TMP/npm.log"
	echo 'npm cannot install @huggingface/hub'
	exit 77
fi
cp "$mount_lib/safetensors_reader.mjs" "$MC_TMP/reader"
views() { python3 -B "$mount_lib/view_checks.py" "$@"; }
# other_reader DIR [FILE]: what it says of the tensors there.
other_reader()
{
	node "$MC_TMP/reader/safetensors_reader.mjs" "$@" >"$MC_TMP/tensors.json" || fail "the reader refuses $1"
}

cases=(llama:tp8:5 qwen-moe:tp4-pp2:6 mixtral:ep4:3 deepseek-v3:tp8:7 kimi-k2:ep8:0 gpt-oss:tp4:2)
for case in "${cases[@]}"; do
	views make "${case%%:*}" "$MC_TMP/model" && mount_import "$MC_TMP/model" "acme/${case%%:*}@r1" ||
		fail "make ${case%%:*}"
	rm -rf "$MC_TMP/model"
done
mount_start --dram 128MiB || fail 'mount'
for case in "${cases[@]}"; do
	IFS=: read -r model mesh rank <<<"$case"
	other_reader "$mnt/views/acme/$model@r1/$mesh/rank-$(printf %05d "$rank")"
	views reader "$model" "$mesh" "$rank" "$MC_TMP/tensors.json" || fail "$case"
done
# Whole tensors with an index, and one directory for all ranks.
cat >"$mnt/layouts/stages.json" <<'JSON' || fail 'a layout'
{"format": "reshard-layout", "version": 1, "name": "stages", "mesh": {"axes": [["tp", 1]]},
 "rules": [{"match": "**", "replicate": true}], "emit": {"style": "subset"}}
JSON
other_reader "$mnt/views/acme/qwen-moe@r1/stages/rank-00000"
views reader qwen-moe tp1 0 "$MC_TMP/tensors.json" || fail 'subset'
other_reader "$mnt/views/acme/llama@r1/tp4-vllm" model-rank-3-part-0.safetensors
grep -q '"model.layers.0.self_attn.qkv_proj.weight":{"dtype":"BF16","shape":\[24,128\]' "$MC_TMP/tensors.json" ||
	fail "sharded state: $(cat "$MC_TMP/tensors.json")"
mount_stop || fail "stop: $mount_rc"
