#!/usr/bin/env python3
"""Executed plans against the independent slicer, over models × meshes.

test-reshard.py RESHARD_RUN [MODEL …]
"""
import array
import json
import os
import subprocess
import sys
import tempfile
import zlib

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "lib")]
import models  # noqa: E402
import slicer  # noqa: E402

RUN = sys.argv[1]


def small(name, layers, experts=None, **config):
    """A model of the same make with small widths."""
    c = dict(models.resized(models.MODELS[name], layers, 1, experts).config)
    c.update(config)
    return c


LLAMA = {"hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 16,
         "num_key_value_heads": 4, "head_dim": 4, "vocab_size": 200}
MOE = dict(LLAMA, moe_intermediate_size=32, vocab_size=192)
MLA = {"hidden_size": 128, "intermediate_size": 1024, "moe_intermediate_size": 1024, "vocab_size": 250,
       "num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": 64, "kv_lora_rank": 64,
       "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 64}
OSS = {"hidden_size": 64, "intermediate_size": 5 * 32, "num_attention_heads": 16,
       "num_key_value_heads": 4, "head_dim": 4, "vocab_size": 128}

DENSE = ["tp1", "tp2", "tp4", "tp8", "tp16", "pp2", "tp4-pp3", "dp2-tp2"]
EXPERTS = ["tp1", "tp8", "tp4-pp2", "ep4", "tp4-ep2", "tp4-ep4", "dp2-tp2-ep4", "tp2-pp2-ep2"]
MODELS = {
    "llama": (small("llama-3-8b", 3, **LLAMA), DENSE),
    "qwen2": (small("qwen2-0.5b", 3, **LLAMA), DENSE),
    "qwen3": (small("qwen3-8b", 3, **LLAMA), ["tp16", "tp2-pp3"]),
    "qwen-moe": (small("qwen-moe", 2, 8, **MOE), EXPERTS),
    "mixtral": (small("mixtral-8x7b", 2, 6, **dict(MOE, intermediate_size=64)), EXPERTS),
    "deepseek-v3": (small("deepseek-v3-mtp", 2, 4, first_k_dense_replace=1, **MLA), EXPERTS),
    "kimi-k2": (small("kimi-k2", 2, 8, **dict(MLA, hidden_size=64)), ["tp8", "tp4-ep2", "ep8"]),
    "gpt-oss": (small("gpt-oss-20b", 2, 5, **OSS), EXPERTS),
}


def mesh_of(name):
    sizes = {part[:2]: int(part[2:]) for part in name.split("-")}
    ep, tp = sizes.get("ep", 1), sizes.get("tp", 1)
    inside = "dp" not in sizes and "tp" in sizes and tp % ep == 0
    if ep > 1 and "dp" not in sizes and not inside:
        sizes["dp"] = ep // tp
    return slicer.Mesh(**sizes)


def contents(number, shape, indices, zero):
    """The bytes of a rank's tensor as reshard-run encodes them."""
    if zero:
        n = 1
        for i in indices:
            n *= len(i)
        return bytes(8 * n)
    strides, at = [], 1
    for n in reversed(shape):
        strides.insert(0, at)
        at *= n
    base = (number + 1 << 40) + 1
    rows = [base]  # None = padding
    for i, stride in zip(indices[:-1], strides[:-1]):
        rows = [None if r is None or k is None else r + k * stride for r in rows for k in i]
    out = array.array("Q")
    last = indices[-1]
    step = last and last[0] is not None and last[-1] is not None and last[-1] - last[0] == len(last) - 1
    for r in rows:
        if r is None:
            out.extend([0] * len(last))
        elif step:
            out.extend(range(r + last[0], r + last[-1] + 1))
        else:
            out.extend(0 if k is None else r + k for k in last)
    return out.tobytes()


def wanted(config, table, mesh, cache):
    number = {t[0]: i for i, t in enumerate(table)}
    model = slicer.Model(config, table)
    out = set()
    for rank, name, source, indices, zero in model.slices(mesh):
        key = (source, zero, tuple(map(tuple, indices)))
        if key not in cache:
            cache[key] = zlib.crc32(contents(number[source], model.shape[source], indices, zero))
        shape = "x".join(str(len(i)) for i in indices)
        out.add(f"{rank} {name} {shape} {cache[key]:08x}")
    return out


def check(config, table, path, start, end, flags, cache):
    done = subprocess.run([RUN, path, start, end, *flags], stdout=subprocess.PIPE, text=True, check=False)
    got = set(done.stdout.splitlines())
    want = wanted(config, table, mesh_of(end), cache)
    if done.returncode != 0 or got != want:
        print(f"FAIL {config['model_type']} {start} -> {end} {flags}: exit {done.returncode}, "
              f"{len(got - want)} tensors differ, {len(want - got)} are missing")
        for line in sorted(got - want)[:3] + ["--"] + sorted(want - got)[:3]:
            print("  ", line)
        return 1
    return 0


def check_example(config, table, path):
    """The document in docs/LAYOUT.md is a layout for a Llama model."""
    with open(os.path.join(HERE, "..", "docs", "LAYOUT.md"), encoding="utf-8") as f:
        text = f.read().split("```json\n")[1].split("```")[0]
    example = os.path.join(os.path.dirname(path), "example.json")
    with open(example, "w", encoding="utf-8") as f:
        f.write(text)
    done = subprocess.run([RUN, path, "files", example], stdout=subprocess.PIPE, text=True, check=False)
    fused = [line for line in done.stdout.splitlines() if "qkv_proj" in line]
    want = 2 * config["num_hidden_layers"]
    if done.returncode != 0 or len(fused) != want:
        print(f"FAIL docs/LAYOUT.md: exit {done.returncode}, {len(fused)} fused tensors of {want}")
        print(done.stdout[:300])
        return 1
    return 0


def main():
    failed = runs = 0
    for name, (config, meshes) in MODELS.items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        table = [[n, d, list(s)] for n, d, s in models.tensors(config)]
        cache = {}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "table.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"config": config, "tensors": table}, f)
            if name == "llama":
                failed += check_example(config, table, path)
                runs += 1
            previous = meshes[-1]
            for i, mesh in enumerate(meshes):
                for start, flags in (("files", []), (previous, [[], ["same"], ["nodes"]][i % 3])):
                    failed += check(config, table, path, start, mesh, flags, cache)
                    runs += 1
                previous = mesh
    print(f"{runs - failed} of {runs} plans give every rank the slicer's bytes")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
