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
ninja -C "$build" tests/fuzz/fuzz-safetensors tests/fuzz/fuzz-manifest tests/fuzz/fuzz-control >/dev/null

mkdir -p "$tmp/manifest" "$tmp/safetensors" "$tmp/control"
echo '{"command":"warm","tier":"nvme","paths":["kv/a","checkpoints/o/m@v/f"],"bytes_per_second":1}' >"$tmp/control/warm"
cp "$here/tests/golden/manifest-v1.json" "$tmp/manifest/golden"
python3 - "$tmp/safetensors/small" <<'EOF'
import json, struct, sys
head = json.dumps({"__metadata__": {"format": "pt"},
                   "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
                   "b": {"dtype": "F4", "shape": [3, 2], "data_offsets": [16, 19]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + bytes(19))
EOF

for name in safetensors manifest control; do
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
