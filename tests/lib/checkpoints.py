"""Writes generated checkpoints: real names, shapes, dtypes and sharding, cheap data.

Data is sparse (holes), patterned, or dots: the first 512 bytes of each tensor patterned and the
rest a hole, so that every tensor of a huge checkpoint has a stored chunk. In patterned data the 64-bit little-endian word w of a tensor
(bytes [8w, 8w+8) of its data, the last word cut short) is

    (seed + w * 0x00009E3779B97F4B) mod 2^64,   seed = first 8 bytes of SHA-256(name), little-endian

so that any slice of any tensor can be checked without the file it came from.
"""
import array
import hashlib
import json
import os
import random
import sys

STEP = 0x00009E3779B97F4B
MASK = (1 << 64) - 1
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I16": 16,
        "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64,
        "F64": 64}
DOT = 512
_WRITE_WORDS = 1 << 17


def nbytes(dtype, shape):
    """Bytes of a tensor's data."""
    n = BITS[dtype] // 8
    for dim in shape:
        n *= dim
    return n


def seed(name):
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def pattern(name, offset, length):
    """Bytes [offset, offset + length) of the patterned data of tensor name."""
    first, end = offset // 8, -(-(offset + length) // 8)
    words = array.array("Q")
    at, left = (seed(name) + first * STEP) & MASK, end - first
    while left > 0:
        n = min(left, (MASK - at) // STEP + 1)  # words until the sum wraps
        words.extend(range(at, at + n * STEP, STEP))
        at, left = (at + n * STEP) & MASK, left - n
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()[offset % 8:offset % 8 + length]


def shards(model, named):
    """Cuts a list of (name, dtype, shape) into the lists that go into one file each."""
    out, size, layer = [[]], 0, None
    for t in named:
        n = nbytes(t[1], t[2])
        part = t[0].split(".")
        here = part[2] if part[:2] == ["model", "layers"] else layer
        full = here != layer and layer is not None if model.by_layer else size + n > model.max_shard
        if full and out[-1]:
            out.append([])
            size = 0
        out[-1].append(t)
        size, layer = size + n, here
    return out


def header(named, metadata=None):
    """The safetensors header (length field included) and {name: (begin, end)} in the file."""
    entries, place, at = {"__metadata__": metadata or {"format": "pt"}}, {}, 0
    # The reference writer's order: widest dtype first, then by name.
    for name, dtype, shape in sorted(named, key=lambda t: (-BITS[t[1]], t[0])):
        n = nbytes(dtype, shape)
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + n]}
        place[name] = (at, at + n)
        at += n
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    base = 8 + len(text)
    return (len(text).to_bytes(8, "little") + text,
            {name: (base + b, base + e) for name, (b, e) in place.items()}, base + at)


def write_safetensors(path, named, fill="sparse"):
    """One file; returns its size in bytes."""
    head, place, size = header(named)
    with open(path, "wb") as f:
        f.write(head)
        for name, (begin, end) in sorted(place.items(), key=lambda p: p[1]):
            if fill == "dots":
                f.seek(begin)
                f.write(pattern(name, 0, min(DOT, end - begin)))
            elif fill == "pattern":
                for at in range(0, end - begin, 8 * _WRITE_WORDS):
                    f.write(pattern(name, at, min(8 * _WRITE_WORDS, end - begin - at)))
        f.truncate(size)
    return size


def write_json(path, value, **how):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2, **how)
        f.write("\n")


def _write_small_files(dest, model, rev):
    """What lies beside the weights: config, tokenizer, a subfolder, an empty file."""
    rng = random.Random(f"{model.repo}@{rev}")
    vocab = min(model.config["vocab_size"], 8000)
    words = {f"<{i}>" if i < 256 else "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=5))
             + str(i): i for i in range(vocab)}
    write_json(os.path.join(dest, "config.json"), model.config)
    write_json(os.path.join(dest, "generation_config.json"),
               {"do_sample": True, "temperature": 0.6, "top_p": 0.9})
    write_json(os.path.join(dest, "tokenizer.json"),
               {"version": "1.0", "model": {"type": "BPE", "vocab": words, "merges": []}})
    write_json(os.path.join(dest, "tokenizer_config.json"),
               {"model_max_length": model.config["max_position_embeddings"],
                "tokenizer_class": "PreTrainedTokenizerFast"})
    write_json(os.path.join(dest, "special_tokens_map.json"),
               {"bos_token": "<0>", "eos_token": "<1>"})
    with open(os.path.join(dest, "README.md"), "w", encoding="utf-8") as f:
        f.write(f"# {model.repo}\n\nGenerated for tests: no trained weights in here.\n")
    os.makedirs(os.path.join(dest, "original"), exist_ok=True)
    write_json(os.path.join(dest, "original", "params.json"),
               {"dim": model.config["hidden_size"], "n_layers": model.config["num_hidden_layers"]})
    open(os.path.join(dest, ".gitattributes"), "w", encoding="utf-8").close()


def write(model, named, dest, fill="sparse", rev="main"):
    """Writes a whole checkpoint into the directory dest; returns a summary."""
    named = list(named)
    cut = shards(model, named)
    weight_map, sizes, files = {}, 0, []
    os.makedirs(dest, exist_ok=True)
    for i, part in enumerate(cut):
        name = "model.safetensors" if len(cut) == 1 else \
            model.shard_name % (i + 1, len(cut)) + ".safetensors"
        sizes += write_safetensors(os.path.join(dest, name), part, fill)
        files.append(name)
        weight_map.update((t[0], name) for t in part)
    total = sum(nbytes(t[1], t[2]) for t in named)
    if len(cut) > 1:
        write_json(os.path.join(dest, "model.safetensors.index.json"),
                   {"metadata": {"total_size": total}, "weight_map": weight_map}, sort_keys=True)
    _write_small_files(dest, model, rev)
    return {"repo": model.repo, "tensors": len(named), "files": files, "tensor_bytes": total,
            "weight_file_bytes": sizes}


def to_hub_cache(plain, cache, repo, rev):
    """Moves a plain directory into the shape of a Hugging Face cache: a snapshot of symlinks."""
    root = os.path.join(cache, "models--" + repo.replace("/", "--"))
    snapshot = os.path.join(root, "snapshots", rev)
    os.makedirs(os.path.join(root, "blobs"), exist_ok=True)
    os.makedirs(os.path.join(root, "refs"), exist_ok=True)
    with open(os.path.join(root, "refs", "main"), "w", encoding="utf-8") as f:
        f.write(rev)
    for folder, _dirs, names in os.walk(plain):
        inside = os.path.relpath(folder, plain)
        target = os.path.normpath(os.path.join(snapshot, inside))
        os.makedirs(target, exist_ok=True)
        for name in names:
            blob = hashlib.sha256(os.path.join(repo, rev, inside, name).encode()).hexdigest()
            os.replace(os.path.join(folder, name), os.path.join(root, "blobs", blob))
            link = os.path.join(target, name)
            if os.path.lexists(link):
                os.unlink(link)
            os.symlink(os.path.relpath(os.path.join(root, "blobs", blob), target), link)
    return snapshot
