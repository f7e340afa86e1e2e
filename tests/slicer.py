"""What each rank of an inference engine holds, computed independently of the product.

Only Python's standard library, and the engines' own way of thinking: a class a layer type with a rank
and a size, not rules. slices(config, tensors, mesh) yields, for every rank, (name, indices), where
indices is one list a dimension of the tensor's own indices, None standing for padding.

Sources of the rules: vLLM's VocabParallelEmbedding (padding to 64), QKVParallelLinear (surplus ranks
share a key/value head), RowParallelLinear, FusedMoE (linear expert map, TP inside the experts),
get_pp_indices; the fp8 block scales of DeepSeek-V3; gpt-oss' MXFP4 experts dealt out in blocks of 32.
"""
import re

VOCAB_PAD = 64
BLOCK = 128
MX_BLOCK = 32


class Mesh:
    """Ranks in the order dp, pp, tp; experts lie over dp × tp, or inside tp."""

    def __init__(self, dp=1, pp=1, tp=1, ep=1):
        self.dp, self.pp, self.tp, self.ep = dp, pp, tp, ep
        self.inside = ep > 1 and dp == 1 and tp % ep == 0
        if ep > 1 and not self.inside:
            assert ep == dp * tp
        self.world = dp * pp * tp

    def ranks(self):
        for rank in range(self.world):
            tp = rank % self.tp
            pp = rank // self.tp % self.pp
            dp = rank // (self.tp * self.pp)
            if self.ep == 1:
                ep, moe, n = 0, tp, self.tp
            elif self.inside:
                n = self.tp // self.ep
                ep, moe = tp // n, tp % n
            else:
                ep, moe, n = dp * self.tp + tp, 0, 1
            yield rank, pp, tp, ep, moe, n


def chunk(items, rank, size):
    """Equal consecutive chunks."""
    assert len(items) % size == 0, (len(items), size)
    n = len(items) // size
    return items[rank * n:(rank + 1) * n]


def vocab(n, rank, size):
    padded = -(-n // VOCAB_PAD) * VOCAB_PAD
    return chunk(list(range(n)) + [None] * (padded - n), rank, size)


def heads(n, count, rank, size):
    """n rows of count heads; with more ranks than heads, neighbours share one."""
    width = n // count
    if size >= count:
        mine = [rank // (size // count)]
    else:
        mine = chunk(list(range(count)), rank, size)
    return [h * width + i for h in mine for i in range(width)]


def up_to_blocks(n, unit, rank, size):
    """Blocks of unit, as many as the ceiling on each rank, the last ranks get what is left."""
    blocks = -(-n // unit)
    per = -(-blocks // size)
    lo, hi = min(rank * per, blocks), min((rank + 1) * per, blocks)
    return list(range(lo * unit, min(hi * unit, n)))


def stage_of_layer(layers, pp):
    """vLLM: the rest goes to the stages before the last, from the back."""
    counts = [layers // pp] * pp
    for i in range(layers % pp):
        counts[-2 - i] += 1
    return [s for s, n in enumerate(counts) for _ in range(n)]


def expert_rank(e, count, size):
    """Linear: the first count mod size ranks hold one more."""
    first = 0
    for rank in range(size):
        n = count // size + (rank < count % size)
        if first <= e < first + n:
            return rank
        first += n
    raise AssertionError


def scale_rows(rows):
    """The 128-blocks that a list of consecutive rows touches."""
    return sorted({r // BLOCK for r in rows})


class Model:
    def __init__(self, config, tensors):
        self.c = config
        self.shape = {name: tuple(shape) for name, _dtype, shape in tensors}
        self.experts = next((config[k] for k in ("num_experts", "num_local_experts", "n_routed_experts")
                             if k in config), 0)

    def linear(self, name, place):
        """Row and column indices of an ordinary weight (or only rows of a bias)."""
        _rank, _pp, tp, _ep, moe, moe_n = place
        size, shape = self.mesh.tp, self.shape[name]
        rows, columns = list(range(shape[0])), list(range(shape[-1]))
        q = self.c["num_attention_heads"]
        kv = self.c.get("num_key_value_heads", q)
        if re.search(r"self_attn\.(q_proj|q_b_proj|kv_b_proj)\.(weight|bias)$", name) or \
                name.endswith("self_attn.sinks"):
            rows = heads(shape[0], q, tp, size)
        elif re.search(r"self_attn\.[kv]_proj\.(weight|bias)$", name):
            rows = heads(shape[0], kv, tp, size)
        elif name.endswith("self_attn.o_proj.weight"):
            columns = heads(shape[1], q, tp, size)
        elif re.search(r"(embed_tokens|lm_head)\.weight$", name):
            rows = vocab(shape[0], tp, size)
        elif re.search(r"\.experts\.\d+\.(gate_proj|up_proj|w1|w3)\.weight$", name):
            rows = chunk(rows, moe, moe_n)
        elif re.search(r"\.experts\.\d+\.(down_proj|w2)\.weight$", name):
            columns = chunk(columns, moe, moe_n)
        elif re.search(r"\.(mlp|shared_experts?)\.(gate|up)_proj\.weight$", name):
            rows = chunk(rows, tp, size)
        elif re.search(r"\.(mlp|shared_experts?)\.down_proj\.weight$", name):
            columns = chunk(columns, tp, size)
        return [rows] if len(shape) == 1 else [rows, columns]

    def fused_experts(self, name, place):
        """gpt-oss: all experts in one tensor; gate and up rows alternate."""
        _rank, _pp, _tp, ep, moe, n = place
        shape = self.shape[name]
        out = [list(range(k)) for k in shape]
        out[0] = [e for e in out[0] if expert_rank(e, shape[0], self.mesh.ep) == ep]
        if "gate_up" in name:
            inner = up_to_blocks(shape[1] // 2, MX_BLOCK, moe, n)
            out[1] = [2 * i + k for i in inner for k in range(2)]
        elif name.endswith(("_blocks", "_scales")):
            out[2] = up_to_blocks(shape[2], 1, moe, n)
        elif moe > 0:
            return out, True
        return out, False

    def one(self, name, place):
        """(indices, zero) of a tensor at a rank, or None."""
        _rank, pp, _tp, ep, _moe, _n = place
        layer = re.match(r"model\.layers\.(\d+)\.", name)
        if layer and int(layer[1]) >= self.c["num_hidden_layers"]:
            return None
        if layer and self.stages[int(layer[1])] != pp:
            return None
        if name == "model.embed_tokens.weight" and pp != 0:
            return None
        if name in ("model.norm.weight", "lm_head.weight") and pp != self.mesh.pp - 1:
            return None
        expert = re.search(r"\.experts\.(\d+)\.", name)
        if expert and expert_rank(int(expert[1]), self.experts, self.mesh.ep) != ep:
            return None
        if ".mlp.experts." in name and not expert:
            return self.fused_experts(name, place)
        if name.endswith("_scale_inv"):
            return [scale_rows(i) for i in self.linear(name[:-len("_scale_inv")], place)], False
        return self.linear(name, place), False

    def slices(self, mesh):
        """Yields (rank, name of the rank's tensor, source name, indices, zero)."""
        self.mesh = mesh
        self.stages = stage_of_layer(self.c["num_hidden_layers"], mesh.pp)
        tied = self.c.get("tie_word_embeddings") and "lm_head.weight" not in self.shape
        for place in mesh.ranks():
            for name in self.shape:
                got = self.one(name, place)
                if got is not None:
                    yield (place[0], name, name) + got
            if tied and mesh.pp > 1 and place[1] == mesh.pp - 1:
                source = "model.embed_tokens.weight"
                yield place[0], "lm_head.weight", source, self.linear(source, place), False
