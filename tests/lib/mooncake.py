"""Mooncake's manifests as its own package writes them: canonical JSON, ids that are digests of it."""
import hashlib
import json
import os

TORCH = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E4M3": "float8_e4m3fn",
         "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "I16": "int16", "F16": "float16",
         "BF16": "bfloat16", "I32": "int32", "F32": "float32", "I64": "int64", "F64": "float64"}


def canonical(value, ascii_only):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=ascii_only)


def identity(schema, value):
    text = canonical(dict(value, schema=schema), True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def volume(shape):
    n = 1
    for dim in shape:
        n *= dim
    return n


def descriptor(name, dtype, shape, size):
    return {"tensor_id": name, "global_shape": list(shape), "dtype": dtype, "itemsize": size,
            "layer_id": None, "expert_id": None, "layout_fingerprint": "test:v1", "shard_dims": [],
            "parallel_axes": []}


def stored(tensors, fragments, group="weights/default/model/step-1"):
    """tensors: descriptors; fragments: (tensor, offset, shape, size, object, byte offset)."""
    out = []
    for i, (name, offset, shape, size, obj, at) in enumerate(fragments):
        out.append({"fragment_id": f"f{i}", "tensor_id": name, "global_offset": list(offset),
                    "local_shape": list(shape), "object_key": f"{group}/payload/{obj}",
                    "object_offset": at, "nbytes": volume(shape) * size, "aliases": []})
    return {"resource_kind": "model_weight", "namespace": "default", "resource_id": "model",
            "revision": "step-1", "weight_generation": 1, "group_id": group,
            "manifest_key": group + "/manifest", "tensors": tensors, "fragments": out,
            "created_at": "2026-08-01T00:00:00Z"}


def placement(tensors, parts):
    """parts: {participant: [(tensor, offset, shape, size)]}; each is a data-parallel rank of its own."""
    ranks = {p: {"dp": i, "ep": 0, "pp": 0, "tp": 0} for i, p in enumerate(sorted(parts))}
    topology = {"tp_size": 1, "pp_size": 1, "ep_size": 1, "dp_size": len(parts),
                "participants": [{"participant_id": p, "rank": r} for p, r in ranks.items()]}
    topology["topology_id"] = identity("weight-parallel-topology", topology)
    out = {"resource_id": "model", "revision": "step-1", "weight_generation": 1,
           "placement_set_id": "set-0", "topology": topology,
           "tensors": sorted(tensors, key=lambda t: t["tensor_id"]), "parts": []}
    for p, rank in ranks.items():
        fragments = []
        for name, offset, shape, size in parts[p]:
            f = {"tensor_id": name, "global_offset": list(offset), "local_shape": list(shape),
                 "nbytes": volume(shape) * size, "rank": rank, "aliases": []}
            f["placement_fragment_id"] = identity("weight-placement-fragment", f)
            fragments.append(f)
        fragments.sort(key=lambda f: f["placement_fragment_id"])
        out["parts"].append({"participant_id": p, "rank": rank, "fragments": fragments})
    out["placement_id"] = identity("complete-weight-placement", out)
    return dict(out, resource_kind="model_weight")


def write(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(canonical(value, False))
    return path
