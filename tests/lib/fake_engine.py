"""Stand-ins for torch and an engine, for tools/write-profile.py: just the metadata of tensors.

write(folder) makes packages `torch`, `vllm` and `transformers` there. The model they build is vLLM's
dense Llama as its state dict is: fused attention and MLP, scales of attention, and a tied head.
"""
import os

TORCH = '''
import contextlib
__version__ = "0-fake"
_device = []

class dtype:
    def __init__(self, name, size):
        self.name, self.size = name, size
    def __repr__(self):
        return "torch." + self.name

bfloat16, float32, qint8 = dtype("bfloat16", 2), dtype("float32", 4), dtype("qint8", 1)

class _Storage:
    def __init__(self):
        self._cdata = id(self)

class Tensor:
    def __init__(self, shape, kind, of=None, offset=0):
        assert _device == ["meta"], "not on the meta device"
        self.shape, self.dtype, self._offset = tuple(shape), kind, offset
        self._storage = of._storage if of is not None else _Storage()
    def untyped_storage(self):
        return self._storage
    def storage_offset(self):
        return self._offset
    def element_size(self):
        return self.dtype.size
    def numel(self):
        n = 1
        for dim in self.shape:
            n *= dim
        return n
    def is_contiguous(self):
        return True

def empty(shape, kind, of=None, offset=0):
    return Tensor(shape, kind, of, offset)

@contextlib.contextmanager
def device(name):
    _device.append(name)
    yield
    _device.pop()
'''

MODEL = '''
import json
import torch

class Model:
    """A rank of ranks of a dense Llama."""
    def __init__(self, c, ranks):
        kind, d = torch.bfloat16, c["head_dim"]
        q, kv = c["num_attention_heads"] // ranks * d, max(c["num_key_value_heads"] // ranks, 1) * d
        hidden, inter = c["hidden_size"], c["intermediate_size"] // ranks
        rows = -(-c["vocab_size"] // 64) * 64 // ranks
        self._state = s = {}
        s["model.embed_tokens.weight"] = torch.empty((rows, hidden), kind)
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            s[p + "self_attn.qkv_proj.weight"] = torch.empty((q + 2 * kv, hidden), kind)
            s[p + "self_attn.o_proj.weight"] = torch.empty((hidden, q), kind)
            for scale in ("q", "k", "v", "prob"):
                s[p + f"self_attn.attn._{scale}_scale"] = torch.empty((), torch.float32)
            s[p + "mlp.gate_up_proj.weight"] = torch.empty((2 * inter, hidden), kind)
            s[p + "mlp.down_proj.weight"] = torch.empty((hidden, inter), kind)
            for norm in ("input", "post_attention"):
                s[p + norm + "_layernorm.weight"] = torch.empty((hidden,), kind)
        s["model.norm.weight"] = torch.empty((hidden,), kind)
        s["lm_head.weight"] = s["model.embed_tokens.weight"] if c["tie_word_embeddings"] else \\
            torch.empty((rows, hidden), kind)
        s["model.nothing"] = torch.empty((0, hidden), kind)
        # A view of the embedding's first row is not saved beside it.
        s["model.first_row"] = torch.empty((hidden,), kind, s["lm_head.weight"])

    def state_dict(self):
        return self._state

def config(model):
    with open(model + "/config.json", encoding="utf-8") as f:
        return json.load(f)
'''

VLLM = {
    "vllm/__init__.py": '__version__ = "0.8-fake"\n',
    "vllm/model.py": MODEL,
    "vllm/config.py": "import contextlib\nset_current_vllm_config = contextlib.nullcontext\n",
    "vllm/distributed.py": "def init_distributed_environment(count, rank, method, local, backend):\n"
                           "    assert 0 <= rank < count and (method, backend) == ('env://', 'gloo')\n"
                           "def initialize_model_parallel(ranks):\n    pass\n",
    "vllm/engine/__init__.py": "",
    "vllm/engine/arg_utils.py": """
class EngineArgs:
    def __init__(self, model, tensor_parallel_size, enforce_eager):
        self.model, self.ranks, self.model_config, self.dtype = model, tensor_parallel_size, self, "bfloat16"
    def create_engine_config(self):
        return self
""",
    "vllm/model_executor/__init__.py": "",
    "vllm/model_executor/model_loader/__init__.py": "",
    "vllm/model_executor/model_loader/utils.py": """
import contextlib
from vllm.model import Model, config
set_default_torch_dtype = contextlib.nullcontext
def initialize_model(c):
    return Model(config(c.model), c.ranks)
"""}
TRANSFORMERS = {"transformers/__init__.py": """
import torch
from vllm.model import Model, config
__version__ = "4-fake"
class AutoConfig:
    torch_dtype = "bfloat16"
    @classmethod
    def from_pretrained(cls, model):
        c = cls()
        c.of = config(model)
        return c
class AutoModelForCausalLM:
    @staticmethod
    def from_config(c, torch_dtype):
        return Model(c.of, 1)
"""}
# Under torchrun: what the other rank has is in the environment.
DISTRIBUTED = """
import os
def get_world_size():
    return int(os.environ["WORLD_SIZE"])
def get_rank():
    return int(os.environ["RANK"])
def all_gather_object(out, mine):
    out[:] = [mine for _ in out]
    if "OTHER_DTYPE" in os.environ:
        name = min(mine)
        out[-1] = dict(mine, **{name: dict(mine[name], dtype=os.environ["OTHER_DTYPE"])})
"""


def write(folder):
    for name, text in {"torch/__init__.py": TORCH, "torch/distributed.py": DISTRIBUTED, **VLLM,
                       **TRANSFORMERS}.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    return folder
