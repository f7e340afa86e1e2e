#!/bin/bash
# Fuzzes the parsers of untrusted formats with libFuzzer, FUZZ_SECONDS (20) each. A crash leaves its
# input in MC_TMP and prints it in base64.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
tmp=${MC_TMP:-$(mktemp -d)}
seconds=${FUZZ_SECONDS:-20}

command -v clang >/dev/null || { echo "no clang"; exit 77; }
build=$here/build-fuzz
if [ ! -f "$build/build.ninja" ]; then
	CC=clang meson setup "$build" "$here" -Dfuzz=true -Db_sanitize=address,undefined \
		-Db_lundef=false -Dc_args=-fsanitize=fuzzer-no-link >/dev/null
fi
names=(safetensors manifest control layout weights beside footer kv-log)
ninja -C "$build" "${names[@]/#/tests/fuzz/fuzz-}" >/dev/null

(cd "$tmp" && mkdir -p "${names[@]}")
echo '{"command":"warm","tier":"nvme","paths":["kv/a","checkpoints/o/m@v/f"],"bytes_per_second":1}' >"$tmp/control/warm"
cp "$here/tests/golden/manifest-v1.json" "$tmp/manifest/golden"
cp "$here/tests/golden/mooncake-stored.json" "$here/tests/golden/mooncake-placement.json" "$tmp/weights/"
cat >"$tmp/layout/small" <<'EOF'
{"format":"reshard-layout","version":1,"name":"x","mesh":{"axes":[["pp",2],["tp",2]],"derived":{"ep":{"from":["tp"],
"mod":2}}},"params":{"nh":"config:num_attention_heads"},"layers":{"count":"config:num_hidden_layers","split":"vllm",
"first":["model.embed_tokens.weight"],"last":["lm_head.weight"]},"rules":[{"match":"{lm_head,model.embed_tokens}.weight",
"split":[{"axis":"tp","dim":0,"pad":64}]},{"match":"**.q","split":[{"axis":"tp","dim":0,"units":"nh"}]},{"match":
"**.experts.*.w","replicate":true,"own":[{"axis":"ep","index":2,"count":2}]},{"match":"**.w_scale_inv","follow":{"strip":
"_scale_inv","block":[128,128]}},{"match":"**","replicate":true}],"const":[{"name":"{1}.one","dtype":"F32","shape":[2],
"value":1,"each":"**.q"}],"emit":{"style":"hf","stack":[{"name":"{1}.w13","from":"**.experts.*.w","index":2}]}}
EOF
cat >"$tmp/beside/index" <<'EOF'
{"metadata":{"total_size":8},"weight_map":{"a":"x-1.safetensors","b":"d/x-2.safetensors"}}
EOF
cat >"$tmp/beside/sharding" <<'EOF'
{"w":{"saved_offsets":[0,4],"global_shape":[8,8]}}
EOF
cat >"$tmp/beside/profile" <<'EOF'
{"format":"engine-profile","version":1,"engine":"e","engine_version":"1","tensors":{"w":{"dtype":"BF16","shape":[8,8]}}}
EOF
python3 - "$tmp" <<'EOF'
import json, struct, sys
tmp = sys.argv[1]
head = json.dumps({"__metadata__": {"format": "pt"},
                   "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
                   "b": {"dtype": "F4", "shape": [3, 2], "data_offsets": [16, 19]}}).encode()
open(f"{tmp}/safetensors/small", "wb").write(struct.pack("<Q", len(head)) + head + bytes(19))
key = b"a/key"
tail = struct.pack("<Qq16sIIII8s", 5, 1, bytes(range(16)), 1, len(key), 1, 0, b"MCKVOBJ")
open(f"{tmp}/footer/small", "wb").write(struct.pack("<Q", 70) + bytes(4 + 5) + key + tail)
def record(kind, body): return struct.pack("<BH", kind, len(body)) + body
def put(kind, segment, generation, off, size, n):
    front = struct.pack("<16sIIQQqIIII", bytes(16), segment, generation, off, size, 1, 0, n, 0, 0)
    return record(kind, front + bytes(4 * n) + b"k")
named = struct.pack("<16sI", bytes(16), 1)
open(f"{tmp}/kv-log/small", "wb").write(
    put(0, 1, 1, 0, 100, 1) + put(0, 0xffffffff, 1, 8192, 1 << 20, 1) + put(6, 2, 1, 0, 100, 1) +
    record(5, struct.pack("<II", 1, 2)) + record(2, named + b"kb") + record(3, bytes([2, 1]) + b"d") +
    record(4, named + b"k") + record(1, named + b"k"))
EOF

for name in "${names[@]}"; do
	dict=()
	[ -f "$here/tests/fuzz/$name.dict" ] && dict=("-dict=$here/tests/fuzz/$name.dict")
	if ! "$build/tests/fuzz/fuzz-$name" "${dict[@]}" -max_total_time="$seconds" -max_len=8192 \
		-rss_limit_mb=1024 -timeout=10 -artifact_prefix="$tmp/" "$tmp/$name" \
		>"$tmp/$name.log" 2>&1; then
		tail -n 60 "$tmp/$name.log"
		exit 1
	fi
	echo "$name: $(grep '^Done' "$tmp/$name.log")"
done
