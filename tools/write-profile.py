#!/usr/bin/env python3
"""Writes an engine's profile: what one rank's state dict holds when the engine loads a model.

usage: write-profile.py ENGINE MODEL [-o FILE]

ENGINE is vllm, sglang or transformers, or MODULE:FUNCTION, a function of one's own that is given MODEL and
returns a torch module or a state dict. MODEL is a directory with config.json; weights are not needed, for
the model is built on the meta device. For more than one rank run it under torchrun, one process a rank:

    torchrun --nproc-per-node 8 write-profile.py vllm /models/Llama-3.1-70B -o llama-70b-tp8.json

The profile is the same for every rank; ranks that differ are an error. 'mooncakefs layout check LAYOUT
--model MODEL --profile FILE' compares a layout with it, 'mooncakefs layout add FILE' registers it, and a
layout names it in emit.profile. docs/LAYOUT.md describes the format.
"""
import argparse
import importlib
import importlib.metadata
import json
import os
import sys

# torch's names of element types and those of safetensors.
DTYPES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3",
          "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
          "int16": "I16", "uint16": "U16", "float16": "F16", "bfloat16": "BF16", "int32": "I32",
          "uint32": "U32", "float32": "F32", "complex64": "C64", "float64": "F64", "int64": "I64",
          "uint64": "U64"}


def first_of(*places):
    """The first MODULE:NAME there is: names move between an engine's versions."""
    for place in places:
        module, name = place.split(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return sys.exit(f"write-profile.py: the engine has none of {', '.join(places)}; write a function of your own")


def ranks():
    """(rank, how many, rank on this machine) as torchrun says; alone without it."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    for name, value in alone.items():
        os.environ.setdefault(name, value)
    return tuple(int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))


def build_transformers(model):
    """Hugging Face's own class of the model, whole."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    config = AutoConfig.from_pretrained(model)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, torch_dtype=config.torch_dtype)


def build_vllm(model):
    """What ShardedStateLoader looks into: the module before weights are processed."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.engine.arg_utils import EngineArgs
    initialize_model = first_of("vllm.model_executor.model_loader.utils:initialize_model",
                                "vllm.model_executor.model_loader.loader:_initialize_model")
    default_dtype = first_of("vllm.utils.torch_utils:set_default_torch_dtype",
                             "vllm.model_executor.model_loader.utils:set_default_torch_dtype")
    rank, count, local = ranks()
    config = EngineArgs(model=model, tensor_parallel_size=count, enforce_eager=True).create_engine_config()
    with set_current_vllm_config(config):
        init_distributed_environment(count, rank, "env://", local, "gloo")
        initialize_model_parallel(count)
        with default_dtype(config.model_config.dtype), torch.device("meta"):
            return initialize_model(config)


def build_sglang(model):
    """What ShardedStateLoader looks into; unquantised models only, others change when they are loaded."""
    import torch
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed import init_distributed_environment, initialize_model_parallel
    initialize_model = first_of("sglang.srt.model_loader.loader:_initialize_model")
    default_dtype = first_of("sglang.srt.model_loader.utils:set_default_torch_dtype")
    rank, count, local = ranks()
    config = ModelConfig(model)
    init_distributed_environment(count, rank, "env://", local, "gloo")
    initialize_model_parallel(count)
    with default_dtype(config.dtype), torch.device("meta"):
        return initialize_model(config, LoadConfig())


ENGINES = {"vllm": build_vllm, "sglang": build_sglang, "transformers": build_transformers}


def engine_of(name):
    """(function, engine's name, its version)"""
    module, _, function = name.partition(":")
    build = getattr(importlib.import_module(module), function) if function else ENGINES.get(name)
    if build is None:
        sys.exit(f"write-profile.py: no engine \"{name}\": {', '.join(ENGINES)} or MODULE:FUNCTION")
    try:
        version = importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        version = getattr(importlib.import_module(module), "__version__", "unknown")
    return build, module, version


def extent(tensor):
    """Which storage a tensor lies in, and from which byte to which: on the meta device there are no
    addresses."""
    begin = tensor.storage_offset() * tensor.element_size()
    return tensor.untyped_storage()._cdata, begin, begin + tensor.numel() * tensor.element_size()


def is_hidden(name, tensor, others):
    """As the engines' savers do: of equal tensors the smallest name stays, parts of others do not."""
    storage, begin, end = extent(tensor)
    for other, o in others:
        place, b, e = extent(o)
        if other == name or place != storage or not o.is_contiguous() or b > begin or e < end:
            continue
        if (b, e) != (begin, end) or not tensor.is_contiguous() or other < name:
            return True
    return False


def tensors_of(state):
    """{name: {dtype, shape}} of a state dict, without names for what is there already, and without what is
    empty."""
    state = {name: tensor for name, tensor in state.items() if tensor.numel() > 0}
    sharing = {}
    for name, tensor in state.items():
        sharing.setdefault(extent(tensor)[0], []).append((name, tensor))
    out = {}
    for name, tensor in state.items():
        if is_hidden(name, tensor, sharing[extent(tensor)[0]]):
            continue
        dtype = DTYPES.get(str(tensor.dtype).replace("torch.", ""))
        if dtype is None:
            sys.exit(f"write-profile.py: {name}: safetensors has no type for {tensor.dtype}")
        out[name] = {"dtype": dtype, "shape": [int(n) for n in tensor.shape]}
    return out


def check_ranks(tensors):
    """Under torchrun: every rank holds the same. Returns whether this process writes."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return True
    import torch.distributed as dist
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, tensors)
    for rank, other in enumerate(everybody):
        if other != everybody[0]:
            name = min(n for n in {**other, **everybody[0]} if other.get(n) != everybody[0].get(n))
            sys.exit(f"write-profile.py: {name} is {other.get(name)} on rank {rank}, "
                     f"{everybody[0].get(name)} on rank 0: one profile cannot say both")
    return dist.get_rank() == 0


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("engine", metavar="ENGINE", help="vllm, sglang, transformers or MODULE:FUNCTION")
    p.add_argument("model", metavar="MODEL", help="a directory with config.json")
    p.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
    a = p.parse_args()
    build, engine, version = engine_of(a.engine)
    made = build(a.model)
    tensors = tensors_of(made.state_dict() if hasattr(made, "state_dict") else made)
    if not check_ranks(tensors):
        return
    text = json.dumps({"format": "engine-profile", "version": 1, "engine": engine, "engine_version": version,
                       "tensors": tensors}, indent=1, sort_keys=True) + "\n"
    if a.output is None:
        sys.stdout.write(text)
        return
    with open(a.output, "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main()
