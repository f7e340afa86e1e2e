"""Reports of others about layouts, as cases: view_cases.py make DIR | quantise DIR | check MOUNT.

One small model has all the shapes; each case is a layout of it, dropped into layouts/, and what must
come of it: the bytes of some rank's tensor, or EINVAL with the words of the reason.
"""
import errno
import json
import os
import struct
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import checkpoints  # noqa: E402

TENSORS = [("embed.weight", "BF16", [250, 16]), ("k.weight", "BF16", [16, 16]),
           ("fp.weight", "F8_E4M3", [384, 128]), ("fp.weight_scale_inv", "F32", [3, 1]),
           ("packed.qweight", "I32", [16, 16])] + [(f"experts.{i}.w", "BF16", [8, 16]) for i in range(5)]
SHAPE = {name: (dtype, shape) for name, dtype, shape in TENSORS}
CONFIG = {"architectures": ["OddForCausalLM"], "kv": 2}


def make(dest):
    os.makedirs(dest)
    checkpoints.write_safetensors(f"{dest}/model.safetensors", TENSORS, "pattern")
    checkpoints.write_json(f"{dest}/config.json", CONFIG)


def quantise(dest):
    checkpoints.write_json(f"{dest}/config.json", dict(CONFIG, quantization_config={
        "quant_method": "gptq", "bits": 4, "group_size": 16}))


def rows(name, first, end):
    """The bytes of some rows of a tensor."""
    dtype, shape = SHAPE[name]
    row = checkpoints.nbytes(dtype, shape[1:])
    return checkpoints.pattern(name, first * row, (end - first) * row)


def split(match, tp=2, dim=0, **how):
    """A layout that cuts what matches and drops the rest."""
    return {"mesh": {"axes": [["tp", tp]]}, "default": "drop",
            "rules": [{"match": match, "split": [dict(axis="tp", dim=dim, **how)]}]}


def fp8(edge=None):
    doc = split("fp.weight")
    follow = {"strip": "_scale_inv", "block": [128, 128]}
    doc["rules"].append({"match": "fp.weight_scale_inv", "follow": dict(follow, edge=edge) if edge else follow})
    return doc


EXPERTS = {"mesh": {"axes": [["ep", 2]]}, "default": "drop",
           "rules": [{"match": "experts.#.w", "replicate": True,
                      "own": [{"axis": "ep", "index": 1, "count": 5}]}]}
STAGES = {"mesh": {"axes": [["pp", 2]]}, "default": "drop", "rules": [{"match": "experts.#.w", "replicate": True}],
          "layers": {"prefix": "experts.", "count": 5, "split": [3, 2]}}
TIED = {"mesh": {"axes": [["pp", 2]]}, "default": "drop",
        "rules": [{"match": "experts.#.w", "replicate": True}, {"match": "embed.weight", "replicate": True}],
        "layers": {"prefix": "experts.", "count": 5, "split": [3, 2], "first": ["embed.weight"],
                   "last": ["head.weight"], "tied": [{"name": "head.weight", "of": "embed.weight"}]}}
KV = split("k.weight", 4, units="config:kv", over="replicate")

# The report, the layout, and {(rank, tensor): bytes}, all that these ranks hold.
SERVED = [
    ("transformers#48307: more ranks than heads", KV,
     {(r, "k.weight"): rows("k.weight", r // 2 * 8, r // 2 * 8 + 8) for r in range(4)}),
    ("sglang#31799: the vocabulary is padded on the destination", split("embed.weight", 4, pad=64),
     {(0, "embed.weight"): rows("embed.weight", 0, 64),
      (3, "embed.weight"): rows("embed.weight", 192, 250) + bytes(6 * 32)}),
    ("sglang#3345: cover takes whole blocks of scales", fp8("cover"),
     {(0, "fp.weight"): rows("fp.weight", 0, 192), (0, "fp.weight_scale_inv"): rows("fp.weight_scale_inv", 0, 2),
      (1, "fp.weight"): rows("fp.weight", 192, 384),
      (1, "fp.weight_scale_inv"): rows("fp.weight_scale_inv", 1, 3)}),
    ("vllm-gguf-plugin#103: ranks differ", split("k.weight"),
     {(0, "k.weight"): rows("k.weight", 0, 8), (1, "k.weight"): rows("k.weight", 8, 16)}),
    ("vllm#37136: a rank has its own experts", EXPERTS,
     {(r, f"experts.{i}.w"): rows(f"experts.{i}.w", 0, 8) for r in (0, 1) for i in ((0, 1, 2), (3, 4))[r]}),
    ("vllm#50961: a stage sees its own tensors only", STAGES,
     {(r, f"experts.{i}.w"): rows(f"experts.{i}.w", 0, 8) for r in (0, 1) for i in ((0, 1, 2), (3, 4))[r]}),
    ("sglang#15890: the last stage has the tied head", TIED,
     {(1, "experts.3.w"): rows("experts.3.w", 0, 8), (1, "experts.4.w"): rows("experts.4.w", 0, 8),
      (1, "head.weight"): rows("embed.weight", 0, 250)}),
]

# The report, the layout, words of the reason, and the model that it is asked of.
REFUSED = [
    ("TRT-LLM#6447: ranks are no multiple of heads",
     split("k.weight", 3, units="config:kv", over="replicate"), ["k.weight", "dimension 0", "axis tp"], "odd"),
    ("vllm#54178: a shard off the block grid", fp8(), ["fp.weight", "dimension 0", "192", "128"], "odd"),
    ("vllm#31474: the vocabulary does not divide", split("embed.weight", 4), ["embed.weight", "dimension 0"], "odd"),
    ("vllm#31474: pad none", split("embed.weight", 4, pad="none"), ["embed.weight", "dimension 0"], "odd"),
    ("edutelligence#762: packed weights", split("packed.qweight"), ["packed.qweight", "granule"], "odd"),
    ("edutelligence#762: quantised model", dict(split("k.weight"), quant=[""]), ["gptq"], "quantised"),
    ("vllm#41174: sharded state without a profile", dict(split("k.weight"), emit={"style": "sharded-state"}),
     ["profile"], "odd"),
    ("vllm#41174: sharded state with a profile that is not there",
     dict(split("k.weight"), emit={"style": "sharded-state", "profile": "no-such"}), ["no-such"], "odd"),
    ("a missing config key", split("k.weight", units="config:no.such"), ["k.weight", "no.such"], "odd"),
    ("padding without measure", split("k.weight", pad=1 << 50), ["rank-00000", "bytes"], "odd"),
    ("padding beyond all numbers", split("fp.weight", pad=(1 << 53) - 2), ["bytes"], "odd"),
]


def tensors(path):
    """{name: bytes} of a file."""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        head.pop("__metadata__")
        data = f.read()
    return {name: data[t["data_offsets"][0]:t["data_offsets"][1]] for name, t in head.items()}


def drop(mnt, name, doc):
    with open(f"{mnt}/layouts/{name}.json", "w", encoding="utf-8") as f:
        json.dump(dict({"format": "reshard-layout", "version": 1, "name": name}, **doc), f)


def check_served(mnt, name, doc, want):
    drop(mnt, name, doc)
    for rank in {r for r, _ in want}:
        got = tensors(f"{mnt}/views/acme/odd@r1/{name}/rank-{rank:05d}/model.safetensors")
        mine = {tensor: data for (r, tensor), data in want.items() if r == rank}
        assert sorted(got) == sorted(mine), sorted(got)
        for tensor, data in mine.items():
            assert got[tensor] == data, f"bytes of {tensor} on rank {rank}"


def check_refused(mnt, name, doc, words, model):
    """EINVAL, with the reason, wherever the view is asked for."""
    drop(mnt, name, doc)
    view = f"{mnt}/views/acme/{model}@r1"
    for path in f"{name}/rank-00000", f"{name}/rank-00000/model.safetensors":
        try:
            os.stat(f"{view}/{path}")
            raise AssertionError(f"{path} is there")
        except OSError as e:
            assert e.errno == errno.EINVAL, e
    why = os.getxattr(view, "user.mooncake.error").decode()
    assert all(w in why for w in words + [name]), why


def check(mnt):
    failed = []
    for i, (what, *rest) in enumerate(SERVED + REFUSED):
        try:
            (check_served if i < len(SERVED) else check_refused)(mnt, f"case{i}", *rest)
        except (AssertionError, OSError) as e:
            failed.append(f"{what}: {e!r}")
    print("\n".join(failed))
    assert not failed


if __name__ == "__main__":
    {"make": make, "quantise": quantise, "check": check}[sys.argv[1]](sys.argv[2])
