"""Names, shapes and dtypes of the tensors of real models, from their public config.json.

tensors(config) yields (name, dtype, shape) in the order of the model's modules; MODELS maps the
names that tests use to configurations. Tensor counts that are public knowledge are checked by
tests/test-checkpoints.py.
"""
import copy

FP8 = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
       "weight_block_size": [128, 128]}


class Model:
    """One model: its config.json, and how its publisher cut it into files."""

    def __init__(self, repo, config, max_shard=5 * 10**9, shard_name="model-%05d-of-%05d",
                 by_layer=False):
        self.repo = repo                # organisation/name, as published
        self.config = config            # dict, as in config.json
        self.max_shard = max_shard      # bytes of tensors in one file, at most
        self.shard_name = shard_name    # printf format of (number, count)
        self.by_layer = by_layer        # one file per layer instead


def _llama(repo, hidden, inter, layers, heads, kv, vocab, rope=500000.0, **more):
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "intermediate_size": inter, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "head_dim": hidden // heads, "vocab_size": vocab,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "rope_theta": rope,
        "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False,
        "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16"}
    return Model(repo, config, **more)


def _qwen2(repo, hidden, inter, layers, heads, kv, vocab, tied):
    m = _llama(repo, hidden, inter, layers, heads, kv, vocab, 1000000.0)
    m.config.update(architectures=["Qwen2ForCausalLM"], model_type="qwen2",
                    tie_word_embeddings=tied, rms_norm_eps=1e-06)
    return m


def _qwen3(repo, hidden, inter, layers, heads, kv, tied, **config):
    m = _llama(repo, hidden, inter, layers, heads, kv, 151936, 1000000.0)
    m.config.update(architectures=["Qwen3ForCausalLM"], model_type="qwen3", head_dim=128,
                    tie_word_embeddings=tied, rms_norm_eps=1e-06, **config)
    return m


def _qwen_moe():
    m = _qwen3("Qwen/Qwen3-30B-A3B", 2048, 6144, 48, 32, 4, False, num_experts=128,
               num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1,
               mlp_only_layers=[], norm_topk_prob=True)
    m.config.update(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe")
    m.max_shard = 4 * 10**9
    return m


def _mixtral():
    m = _llama("mistralai/Mixtral-8x7B-v0.1", 4096, 14336, 32, 32, 8, 32000, 1000000.0)
    m.config.update(architectures=["MixtralForCausalLM"], model_type="mixtral",
                    num_local_experts=8, num_experts_per_tok=2, bos_token_id=1, eos_token_id=2)
    return m


def _deepseek(repo, heads, experts, dense, vocab, model_type, mtp, **more):
    config = {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": model_type, "hidden_size": 7168,
        "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
        "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": vocab,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "n_routed_experts": experts, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "first_k_dense_replace": dense, "moe_layer_freq": 1,
        "num_nextn_predict_layers": mtp, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
        "norm_topk_prob": True, "hidden_act": "silu", "rms_norm_eps": 1e-06,
        "rope_theta": 10000, "max_position_embeddings": 163840, "tie_word_embeddings": False,
        "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16",
        "quantization_config": FP8}
    return Model(repo, config, **more)


def _gpt_oss(repo, layers, experts):
    config = {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880,
        "intermediate_size": 2880, "num_hidden_layers": layers, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088,
        "num_local_experts": experts, "num_experts_per_tok": 4, "sliding_window": 128,
        "attention_bias": True, "hidden_act": "silu", "rms_norm_eps": 1e-05,
        "rope_theta": 150000, "max_position_embeddings": 131072, "tie_word_embeddings": False,
        "eos_token_id": 200002, "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
            "lm_head"]}}
    return Model(repo, config)


MODELS = {
    "tiny": _llama("mooncake/tiny-llama", 512, 1408, 4, 8, 2, 8192, max_shard=16 * 10**6),
    "llama-3-8b": _llama("meta-llama/Meta-Llama-3-8B", 4096, 14336, 32, 32, 8, 128256),
    "llama-3-70b": _llama("meta-llama/Meta-Llama-3-70B", 8192, 28672, 80, 64, 8, 128256),
    "qwen2-0.5b": _qwen2("Qwen/Qwen2-0.5B", 896, 4864, 24, 14, 2, 151936, True),
    "qwen2-7b": _qwen2("Qwen/Qwen2-7B", 3584, 18944, 28, 28, 4, 152064, False),
    "qwen3-8b": _qwen3("Qwen/Qwen3-8B", 4096, 12288, 36, 32, 8, False),
    "qwen-moe": _qwen_moe(),
    "mixtral-8x7b": _mixtral(),
    "deepseek-v3": _deepseek("deepseek-ai/DeepSeek-V3", 128, 256, 3, 129280, "deepseek_v3", 0,
                             max_shard=4270 * 10**6, shard_name="model-%05d-of-%06d"),
    "deepseek-v3-mtp": _deepseek("deepseek-ai/DeepSeek-V3", 128, 256, 3, 129280, "deepseek_v3", 1,
                                 max_shard=4270 * 10**6, shard_name="model-%05d-of-%06d"),
    "kimi-k2": _deepseek("moonshotai/Kimi-K2-Instruct", 64, 384, 1, 163840, "kimi_k2", 0,
                         by_layer=True, shard_name="model-%d-of-%d"),
    "gpt-oss-20b": _gpt_oss("openai/gpt-oss-20b", 24, 32),
    "gpt-oss-120b": _gpt_oss("openai/gpt-oss-120b", 36, 128),
}

# What --scale divides. Head counts stay, so that every layout still divides.
_SCALED = ("hidden_size", "intermediate_size", "moe_intermediate_size", "vocab_size", "head_dim",
           "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")


def resized(model, layers=None, scale=1, experts=None):
    """A copy of model with fewer layers or experts, or with its widths divided by scale."""
    m = copy.copy(model)
    m.config = c = copy.deepcopy(model.config)
    if layers is not None:
        c["num_hidden_layers"] = layers
    for key in _EXPERT_KEYS:
        if experts is not None and key in c:
            c[key] = experts
    for key in _SCALED if scale > 1 else ():
        if key in c:
            c[key] = max(1, c[key] // scale)
    if scale > 1:
        m.max_shard = max(1 << 20, model.max_shard // scale**2)
    return m


def tensors(config):
    """Yields (name, dtype, shape) for all tensors of a model with this config.json."""
    kind = config["model_type"]
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    yield "model.embed_tokens.weight", "BF16", (vocab, hidden)
    for i in range(config["num_hidden_layers"]):
        yield from _LAYERS[kind](config, f"model.layers.{i}.", i)
    yield "model.norm.weight", "BF16", (hidden,)
    if not config.get("tie_word_embeddings"):
        yield "lm_head.weight", "BF16", (vocab, hidden)
    for i in range(config.get("num_nextn_predict_layers") or 0):
        yield from _mtp_layer(config, config["num_hidden_layers"] + i)


def _norms(c, p):
    yield p + "input_layernorm.weight", "BF16", (c["hidden_size"],)
    yield p + "post_attention_layernorm.weight", "BF16", (c["hidden_size"],)


def _attention(c, p, bias=(), qk_norm=False):
    hidden, d = c["hidden_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    for name, out, into in (("q", q, hidden), ("k", kv, hidden), ("v", kv, hidden),
                            ("o", hidden, q)):
        yield f"{p}self_attn.{name}_proj.weight", "BF16", (out, into)
        if name in bias:
            yield f"{p}self_attn.{name}_proj.bias", "BF16", (out,)
    if qk_norm:
        yield p + "self_attn.q_norm.weight", "BF16", (d,)
        yield p + "self_attn.k_norm.weight", "BF16", (d,)


def _mlp(hidden, inter, p, names=("gate_proj", "up_proj", "down_proj")):
    gate, up, down = names
    yield f"{p}{gate}.weight", "BF16", (inter, hidden)
    yield f"{p}{up}.weight", "BF16", (inter, hidden)
    yield f"{p}{down}.weight", "BF16", (hidden, inter)


def _dense_layer(c, p, _i, bias=(), qk_norm=False):
    yield from _attention(c, p, bias, qk_norm)
    yield from _mlp(c["hidden_size"], c["intermediate_size"], p + "mlp.")
    yield from _norms(c, p)


def _qwen_moe_layer(c, p, _i):
    yield from _attention(c, p, qk_norm=True)
    yield p + "mlp.gate.weight", "BF16", (c["num_experts"], c["hidden_size"])
    for e in range(c["num_experts"]):
        yield from _mlp(c["hidden_size"], c["moe_intermediate_size"], f"{p}mlp.experts.{e}.")
    yield from _norms(c, p)


def _mixtral_layer(c, p, _i):
    yield from _attention(c, p)
    p_moe = p + "block_sparse_moe."
    yield p_moe + "gate.weight", "BF16", (c["num_local_experts"], c["hidden_size"])
    for e in range(c["num_local_experts"]):
        yield from _mlp(c["hidden_size"], c["intermediate_size"], f"{p_moe}experts.{e}.",
                        ("w1", "w3", "w2"))
    yield from _norms(c, p)


def _fp8(pairs):
    """Follows each two-dimensional weight by its scales, one for every 128 × 128 block."""
    for name, _dtype, shape in pairs:
        yield name, "F8_E4M3", shape
        yield name + "_scale_inv", "F32", tuple(-(-n // 128) for n in shape)


def _deepseek_layer(c, p, i):
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    q_rank, kv_rank, a = c["q_lora_rank"], c["kv_lora_rank"], p + "self_attn."
    yield from _fp8([
        (a + "q_a_proj.weight", None, (q_rank, hidden)),
        (a + "q_b_proj.weight", None, (heads * (nope + rope), q_rank)),
        (a + "kv_a_proj_with_mqa.weight", None, (kv_rank + rope, hidden)),
        (a + "kv_b_proj.weight", None, (heads * (nope + v), kv_rank)),
        (a + "o_proj.weight", None, (hidden, heads * v))])
    yield a + "q_a_layernorm.weight", "BF16", (q_rank,)
    yield a + "kv_a_layernorm.weight", "BF16", (kv_rank,)
    if i < c["first_k_dense_replace"]:
        yield from _fp8(_mlp(hidden, c["intermediate_size"], p + "mlp."))
    else:
        inter, experts = c["moe_intermediate_size"], c["n_routed_experts"]
        yield p + "mlp.gate.weight", "BF16", (experts, hidden)
        yield p + "mlp.gate.e_score_correction_bias", "F32", (experts,)
        for e in range(experts):
            yield from _fp8(_mlp(hidden, inter, f"{p}mlp.experts.{e}."))
        yield from _fp8(_mlp(hidden, inter * c["n_shared_experts"], p + "mlp.shared_experts."))
    yield from _norms(c, p)


def _mtp_layer(c, i):
    """DeepSeek's multi-token prediction layer: it has its own embedding and head."""
    hidden, p = c["hidden_size"], f"model.layers.{i}."
    yield p + "embed_tokens.weight", "BF16", (c["vocab_size"], hidden)
    yield p + "enorm.weight", "BF16", (hidden,)
    yield p + "hnorm.weight", "BF16", (hidden,)
    yield p + "eh_proj.weight", "BF16", (hidden, 2 * hidden)
    yield from _deepseek_layer(c, p, i)
    yield p + "shared_head.norm.weight", "BF16", (hidden,)
    yield p + "shared_head.head.weight", "BF16", (c["vocab_size"], hidden)


def _gpt_oss_layer(c, p, _i):
    hidden, inter, n = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    x = p + "mlp.experts."
    yield from _attention(c, p, bias=("q", "k", "v", "o"))
    yield p + "self_attn.sinks", "BF16", (c["num_attention_heads"],)
    yield p + "mlp.router.weight", "BF16", (n, hidden)
    yield p + "mlp.router.bias", "BF16", (n,)
    for name, out, into in (("gate_up", 2 * inter, hidden), ("down", hidden, inter)):
        blocks = -(-into // 32)
        yield f"{x}{name}_proj_blocks", "U8", (n, out, blocks, 16)
        yield f"{x}{name}_proj_scales", "U8", (n, out, blocks)
        yield f"{x}{name}_proj_bias", "BF16", (n, out)
    yield from _norms(c, p)


_LAYERS = {
    "llama": _dense_layer,
    "qwen2": lambda c, p, i: _dense_layer(c, p, i, bias=("q", "k", "v")),
    "qwen3": lambda c, p, i: _dense_layer(c, p, i, qk_norm=True),
    "qwen3_moe": _qwen_moe_layer,
    "mixtral": _mixtral_layer,
    "deepseek_v3": _deepseek_layer,
    "kimi_k2": _deepseek_layer,
    "gpt_oss": _gpt_oss_layer,
}
