"""Checks of views in a mount against the independent slicer; called by it-views.sh.

view_checks.py make MODEL DIR          writes a small patterned checkpoint of that make
view_checks.py meshes MODEL            prints the meshes it is checked on
view_checks.py check MODEL MESH VIEW   every rank of VIEW/ has the slicer's tensors, byte for byte
view_checks.py sharded MODEL TP VIEW   the same for vLLM's sharded state
view_checks.py reader MODEL MESH RANK FILE   what another reader says of the rank's tensors (JSON)
view_checks.py hot FILE                what is read again gets an image, and the same bytes
view_checks.py blocks FILE             pread at random places, mmap and read give the same bytes
"""
import hashlib
import json
import mmap
import os
import random
import struct
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]
import checkpoints  # noqa: E402
import models  # noqa: E402
import slicer  # noqa: E402

LLAMA = {"hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 16,
         "num_key_value_heads": 4, "head_dim": 4, "vocab_size": 200}
MOE = dict(LLAMA, moe_intermediate_size=32, vocab_size=192)
MLA = {"hidden_size": 128, "intermediate_size": 2048, "moe_intermediate_size": 1024,
       "vocab_size": 250, "num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": 64,
       "kv_lora_rank": 64, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 64}
OSS = {"hidden_size": 64, "intermediate_size": 5 * 32, "num_attention_heads": 16,
       "num_key_value_heads": 4, "head_dim": 4, "vocab_size": 128}
WIDE = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 1000}

# Make, layers, experts, what is smaller in config.json; meshes.
CASES = {
    "llama": ("llama-3-8b", 3, None, LLAMA, ["tp1", "tp2", "tp8", "tp16", "tp4-pp3", "dp2-tp2"]),
    "wide": ("llama-3-8b", 1, None, WIDE, ["tp4"]),
    "tied": ("qwen2-0.5b", 2, None, LLAMA, ["tp4", "tp2-pp2"]),
    "qwen-moe": ("qwen-moe", 2, 8, MOE, ["tp8", "tp4-pp2", "ep4", "tp4-ep2"]),
    "mixtral": ("mixtral-8x7b", 2, 6, dict(MOE, intermediate_size=64),
                ["tp4", "tp2-pp2", "ep4", "dp2-tp2-ep4"]),
    "deepseek-v3": ("deepseek-v3-mtp", 3, 6, dict(MLA, first_k_dense_replace=1),
                    ["tp8", "tp4-pp2", "tp2-pp2-ep2", "ep4"]),
    "kimi-k2": ("kimi-k2", 2, 8, MLA, ["tp8", "ep8"]),
    "gpt-oss": ("gpt-oss-20b", 2, 5, OSS, ["tp1", "tp4", "tp4-ep2", "ep4"]),
}


def model_of(name):
    make, layers, experts, smaller, _meshes = CASES[name]
    m = models.resized(models.MODELS[make], layers, 1, experts)
    m.config.update(smaller)
    return m


def mesh_of(name):
    sizes = {part[:2]: int(part[2:]) for part in name.split("-")}
    ep, tp = sizes.get("ep", 1), sizes.get("tp", 1)
    if ep > 1 and "dp" not in sizes and not ("tp" in sizes and tp % ep == 0):
        sizes["dp"] = ep // tp
    return slicer.Mesh(**sizes)


def header(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
    assert os.stat(path).st_size == 8 + n + max((t["data_offsets"][1] for k, t in head.items()
                                                 if k != "__metadata__"), default=0), path
    return head, 8 + n


class Rank:
    """The tensors of a rank's directory: one file, or several and an index."""

    def __init__(self, folder):
        self.tensors = {}
        names = [n for n in os.listdir(folder) if n.endswith(".safetensors")]
        for name in sorted(names):
            path = os.path.join(folder, name)
            head, start = header(path)
            self.metadata = head.pop("__metadata__")
            for tensor, t in head.items():
                assert tensor not in self.tensors, tensor
                self.tensors[tensor] = (path, t["dtype"], t["shape"], start + t["data_offsets"][0],
                                        start + t["data_offsets"][1])
        index = os.path.join(folder, "model.safetensors.index.json")
        if len(names) > 1 or os.path.exists(index):
            with open(index, encoding="utf-8") as f:
                listed = json.load(f)["weight_map"]
            assert listed == {k: os.path.basename(t[0]) for k, t in self.tensors.items()}, folder

    def read(self, tensor):
        path, _dtype, _shape, start, end = self.tensors[tensor]
        with open(path, "rb") as f:
            f.seek(start)
            data = f.read(end - start)
        assert len(data) == end - start, (path, tensor, len(data))
        return data


def cut(data, shape, size, indices):
    """The bytes of a tensor (elements of size bytes) at these indices; None is zeros."""
    strides, at = [], size
    for n in reversed(shape):
        strides.insert(0, at)
        at *= n
    rows = [0]
    for index, stride in zip(indices[:-1], strides[:-1]):
        rows = [None if r is None or i is None else r + i * stride for r in rows for i in index]
    runs, last = [], indices[-1] if indices else [0]
    for i in last:  # consecutive elements are one run
        if i is not None and runs and runs[-1][0] is not None and runs[-1][0] + runs[-1][1] == i:
            runs[-1][1] += 1
        else:
            runs.append([i, 1])
    out = bytearray()
    for r in rows:
        for first, n in runs:
            if r is None or first is None:
                out += bytes(n * size)
            else:
                out += data[r + first * size:r + (first + n) * size]
    return bytes(out)


def check(name, mesh, view):
    model = model_of(name)
    table = [(n, d, list(s)) for n, d, s in models.tensors(model.config)]
    dtype = {n: d for n, d, _s in table}
    size = {n: checkpoints.nbytes(d, []) for n, d, _s in table}
    want, ranks, source = {}, {}, {}
    sliced = slicer.Model(model.config, table)
    for rank, tensor, of, indices, zero in sliced.slices(mesh_of(mesh)):
        want.setdefault(rank, {})[tensor] = (of, indices, zero)
    assert sorted(os.listdir(view)) == [f"rank-{r:05d}" for r in sorted(want)], os.listdir(view)
    for rank, tensors in want.items():
        got = ranks[rank] = Rank(os.path.join(view, f"rank-{rank:05d}"))
        assert got.metadata["mooncake.rank"] == str(rank), got.metadata
        missing = set(tensors) ^ set(got.tensors)
        assert not missing, (rank, sorted(missing)[:5])
        for tensor, (of, indices, zero) in tensors.items():
            shape = [len(i) for i in indices]
            assert got.tensors[tensor][1:3] == (dtype[of], shape), (rank, tensor, got.tensors[tensor])
            if of not in source:
                source[of] = checkpoints.pattern(of, 0, checkpoints.nbytes(dtype[of], sliced.shape[of]))
            data = cut(source[of], sliced.shape[of], size[of], indices)
            if zero:
                data = bytes(len(data))
            mine = got.read(tensor)
            if mine != data:
                at = next(i for i, (a, b) in enumerate(zip(mine, data)) if a != b)
                raise AssertionError(f"rank {rank} {tensor} {shape}: byte {at} of {len(data)} differs")
    with open(os.path.join(view, "rank-00000", "config.json"), encoding="utf-8") as f:
        assert json.load(f) == model.config, "config.json"
    count = sum(len(t) for t in want.values())
    print(f"{name} {mesh}: {count} tensors of {len(want)} ranks")


def sharded(name, tp, view):
    """vLLM's sharded state of a dense model: fused tensors are the slicer's parts one after the other."""
    model, tp = model_of(name), int(tp)
    table = [(n, d, list(s)) for n, d, s in models.tensors(model.config)]
    sliced = slicer.Model(model.config, table)
    parts = {}
    for rank, tensor, of, indices, _zero in sliced.slices(slicer.Mesh(tp=tp)):
        data = checkpoints.pattern(of, 0, checkpoints.nbytes("BF16", sliced.shape[of]))
        parts[rank, tensor] = cut(data, sliced.shape[of], 2, indices)
    for rank in range(tp):
        path = os.path.join(view, f"model-rank-{rank}-part-0.safetensors")
        head, start = header(path)
        head.pop("__metadata__")
        with open(path, "rb") as f:
            data = f.read()
        for i in range(model.config["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            for fused, names in (("self_attn.qkv_proj.weight", "self_attn.%s_proj.weight"),
                                 ("mlp.gate_up_proj.weight", "mlp.%s_proj.weight")):
                of = ("q", "k", "v") if "attn" in fused else ("gate", "up")
                begin, end = (start + x for x in head.pop(layer + fused)["data_offsets"])
                want = b"".join(parts[rank, layer + names % x] for x in of)
                assert data[begin:end] == want, (rank, layer + fused)
            for scale in ("_k_scale", "_prob_scale", "_q_scale", "_v_scale"):
                t = head.pop(layer + "self_attn.attn." + scale)
                begin, end = (start + x for x in t["data_offsets"])
                assert (t["dtype"], t["shape"]) == ("F32", []), t
                assert data[begin:end] == struct.pack("<f", 1.0), (rank, scale)
        begin, end = (start + x for x in head["lm_head.weight"]["data_offsets"])
        tied = model.config["tie_word_embeddings"]
        assert ("model.embed_tokens.weight" in head) == (not tied), sorted(head)
        assert data[begin:end] == parts[rank, "model.embed_tokens.weight" if tied else "lm_head.weight"]


def reader(name, mesh, rank, path):
    """Names, dtypes, shapes and sizes are the slicer's."""
    model = model_of(name)
    table = [(n, d, list(s)) for n, d, s in models.tensors(model.config)]
    dtype = {n: d for n, d, _s in table}
    want = {}
    for r, tensor, of, indices, _zero in slicer.Model(model.config, table).slices(mesh_of(mesh)):
        if r == int(rank):
            shape = [len(i) for i in indices]
            want[tensor] = {"dtype": dtype[of], "shape": shape,
                            "bytes": checkpoints.nbytes(dtype[of], shape)}
    with open(path, encoding="utf-8") as f:
        got = json.load(f)
    assert len(want) > 10, want
    assert got == want, sorted(set(got) ^ set(want))[:5] or [
        (n, got[n], want[n]) for n in want if got[n] != want[n]][:5]


def blocks(path):
    with open(path, "rb") as f:
        whole = f.read()
        assert len(whole) == os.stat(path).st_size
        seed = int.from_bytes(os.urandom(4), "little")
        print("seed", seed)
        rand = random.Random(seed)
        with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
            assert hashlib.sha256(m).digest() == hashlib.sha256(whole).digest(), "mmap"
        for _ in range(200):
            off = rand.randrange(len(whole))
            n = rand.choice((1, 7, 4096, 100000, 1 << 20, 3 << 20))
            assert os.pread(f.fileno(), n, off) == whole[off:off + n], (off, n)


def hot(path):
    """The first pass leaves nothing in the tiers, the second the whole file; then the kernel reads alone."""
    def attribute(name):
        return os.getxattr(path, f"user.mooncake.{name}").decode()

    digests, resident = set(), []
    for _ in range(3):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        resident.append(int(attribute("resident.dram")))
        with os.fdopen(fd, "rb", buffering=0) as f:
            digests.add(hashlib.sha256(b"".join(iter(lambda: f.read(1 << 20), b""))).hexdigest())
    size = os.stat(path).st_size
    assert resident == [0, 0, size], (resident, size)
    assert len(digests) == 1, digests
    print("served by", attribute("io"))


def make(name, dest):
    model = model_of(name)
    checkpoints.write(model, list(models.tensors(model.config)), dest, "pattern", "main")


def main():
    command, args = sys.argv[1], sys.argv[2:]
    if command == "meshes":
        print("\n".join(CASES[args[0]][4]))
    elif command == "models":
        print("\n".join(CASES))
    else:
        {"make": make, "check": check, "sharded": sharded, "reader": reader, "hot": hot,
         "blocks": blocks}[command](*args)


if __name__ == "__main__":
    main()
