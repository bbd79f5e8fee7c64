"""A `ModelArch` from a Hugging Face `config.json`.

One function per family builds the layers; where families differ from what a file says (defaults that published files
leave out, keys that are there but unused), the function says so. Facts are from the configuration classes of the
`transformers` library, version 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from costmodel import config_older
from costmodel.arch import Attention, AttentionSpec, LatentAttention, LinearAttention, MlpSpec, ModelArch, MoeMlp
from costmodel.config_fields import Fields
from costmodel.config_layers import (
    FULL,
    LINEAR,
    SLIDING,
    Layers,
    dense,
    experts,
    grouped_heads,
    layer_types,
    n_layers,
    stack,
    windowed,
)
from costmodel.config_quantisation import read_quantisation

_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def read_config(document: Mapping[str, Any], name: str, source: str) -> ModelArch:
    """`ModelArch` of a parsed `config.json`.

    Parameters
    ----------
    document : mapping
        The parsed file; multimodal ones nest the language model in `text_config`.
    name, source : str
        Name of the model (in messages too) and where the figures come from.

    Raises
    ------
    ProfileError
        Unknown `model_type`, missing or wrong key, unknown quantisation; the message names key and file.

    Limits
    ------
    Only the language model: vision towers and multi-token-prediction layers are left out.
    """
    return read_fields(Fields(document, f"model config {name}"), name, source)


def read_fields(outer: Fields, name: str, source: str) -> ModelArch:
    """As `read_config`, from `Fields`, which afterwards know the keys that were used."""
    family = outer.text("model_type", FAMILIES)
    inner = outer.child("text_config") if family in _NESTED else outer
    gemma = family.startswith("gemma3")
    layers = FAMILIES[family](inner)
    quantised = read_quantisation(inner, layers) or (read_quantisation(outer, layers) if inner is not outer else None)
    return ModelArch(
        name=name,
        family=family,
        hidden=inner.integer("hidden_size"),
        vocab=inner.integer("vocab_size", 262_208 if gemma else None),
        tied_embeddings=_tied(outer, inner, default=gemma),
        layers=layers,
        max_context_tokens=inner.maybe_integer("max_position_embeddings"),
        quantisation=quantised,
        source=source,
    )


def _tied(outer: Fields, inner: Fields, *, default: bool) -> bool:
    """Whether the head is the embedding; families differ in what an absent key means."""
    key = "tie_word_embeddings"
    said = {f.flag(key, default) for f in (outer, inner) if f.get(key) is not None}
    if len(said) > 1:
        raise outer.fail(key, "differs between the outer object and text_config")
    return said.pop() if said else default


def _optional_windows(f: Fields, attention: Attention) -> list[Attention]:
    """Qwen: `sliding_window` counts only with `use_sliding_window`, from layer `max_window_layers` on."""
    n = n_layers(f)
    if not f.flag("use_sliding_window", False) or (f.has("sliding_window") and f.get("sliding_window") is None):
        return [attention] * n
    first = f.integer("max_window_layers", 28, low=0)
    return windowed(f, attention, layer_types(f, [FULL if i < first else SLIDING for i in range(n)]), 4096)


def _llama(f: Fields) -> Layers:
    """A file without `num_key_value_heads` (the first Llama) has one KV head per head."""
    bias = f.flag("attention_bias", False)
    attention = replace(grouped_heads(f, kv_heads=f.integer("num_attention_heads")), qkv_bias=bias, out_bias=bias)
    n = n_layers(f)
    return stack([attention] * n, [dense(f, bias=f.flag("mlp_bias", False))] * n)


def _everywhere_windowed(f: Fields, default_window: int | None = None) -> list[Attention]:
    """Mistral, Mixtral, Phi-3: a `sliding_window` that is not null holds on every layer."""
    window = f.maybe_integer("sliding_window") if f.has("sliding_window") else default_window
    return [replace(grouped_heads(f), window=window)] * n_layers(f)


def _mistral(f: Fields) -> Layers:
    return stack(_everywhere_windowed(f, default_window=4096), [dense(f)] * n_layers(f))


def _phi3(f: Fields) -> Layers:
    return stack(_everywhere_windowed(f), [dense(f)] * n_layers(f))


def _mixtral(f: Fields) -> Layers:
    return stack(_everywhere_windowed(f), [experts(f, "num_local_experts", "intermediate_size")] * n_layers(f))


def _qwen2(f: Fields) -> Layers:
    attention = replace(grouped_heads(f), qkv_bias=True)
    return stack(_optional_windows(f, attention), [dense(f)] * n_layers(f))


def _qwen3_attention(f: Fields) -> Attention:
    bias = f.flag("attention_bias", False)
    return replace(grouped_heads(f, d_head=128), qkv_bias=bias, out_bias=bias, qk_norm="head")


def _qwen3(f: Fields) -> Layers:
    return stack(_optional_windows(f, _qwen3_attention(f)), [dense(f)] * n_layers(f))


def _sparse_mlps(f: Fields, moe: MoeMlp) -> list[MlpSpec]:
    """Experts on every `decoder_sparse_step`-th layer that is not in `mlp_only_layers`."""
    step = f.integer("decoder_sparse_step", 1)
    dense_only = set(f.list_of("mlp_only_layers", int) or [])
    is_moe = [i not in dense_only and (i + 1) % step == 0 for i in range(n_layers(f))]
    return [moe if m else dense(f) for m in is_moe]


def _qwen3_moe(f: Fields) -> Layers:
    moe = experts(f, "num_experts", "moe_intermediate_size")
    return stack(_optional_windows(f, _qwen3_attention(f)), _sparse_mlps(f, moe))


def _qwen3_5_attentions(f: Fields) -> list[AttentionSpec]:
    """Gated delta net, every `full_attention_interval`-th layer softmax attention with a gated output."""
    n = n_layers(f)
    interval = f.integer("full_attention_interval", 4)
    types = layer_types(f, [LINEAR if (i + 1) % interval else FULL for i in range(n)], (FULL, LINEAR))
    full = replace(_qwen3_attention(f), output_gate=f.flag("attn_output_gate", True))
    linear = LinearAttention(
        n_key_heads=f.integer("linear_num_key_heads"),
        n_value_heads=f.integer("linear_num_value_heads"),
        d_key=f.integer("linear_key_head_dim"),
        d_value=f.integer("linear_value_head_dim"),
        conv_width=f.integer("linear_conv_kernel_dim"),
        state_bytes_each=_STATE_BYTES[f.text("mamba_ssm_dtype", _STATE_BYTES, "float32")],
    )
    if linear.n_value_heads % linear.n_key_heads:
        raise f.fail("linear_num_value_heads", f"must be a multiple of linear_num_key_heads {linear.n_key_heads}")
    return [linear if t == LINEAR else full for t in types]


def _qwen3_5(f: Fields) -> Layers:
    return stack(_qwen3_5_attentions(f), [dense(f)] * n_layers(f))


def _qwen3_5_moe(f: Fields) -> Layers:
    shared = f.integer("shared_expert_intermediate_size")
    moe = experts(f, "num_experts", "moe_intermediate_size", shared_width=shared, shared_gate=True)
    return stack(_qwen3_5_attentions(f), _sparse_mlps(f, moe))


def _gemma3(f: Fields) -> Layers:
    """Published files leave out what equals the class defaults: 8 heads, 4 KV heads, head_dim 256, pattern 5 : 1."""
    bias = f.flag("attention_bias", False)
    attention = replace(grouped_heads(f, 8, 4, 256), qk_norm="head", qkv_bias=bias, out_bias=bias)
    pattern = f.integer("sliding_window_pattern", 6)
    n = n_layers(f)
    types = layer_types(f, [SLIDING if (i + 1) % pattern else FULL for i in range(n)])
    return stack(windowed(f, attention, types, 4096), [dense(f)] * n, n_norms=4)


def _gpt_oss(f: Fields) -> Layers:
    bias = f.flag("attention_bias", True)
    attention = replace(grouped_heads(f, d_head=64), qkv_bias=bias, out_bias=bias, sinks=True)
    n = n_layers(f)
    types = layer_types(f, [FULL if i % 2 else SLIDING for i in range(n)])
    moe = experts(f, "num_local_experts", "intermediate_size", router_bias=True, expert_bias=True)
    if f.integer("experts_per_token", moe.top_k) != moe.top_k:
        raise f.fail("experts_per_token", f"differs from num_experts_per_tok {moe.top_k}")
    return stack(windowed(f, attention, types, 128), [moe] * n)


def _first_dense_mlps(f: Fields) -> list[MlpSpec]:
    """GLM and DeepSeek: dense layers first, then experts with a correction bias in the router and a shared expert."""
    n = n_layers(f)
    first = f.integer("first_k_dense_replace", low=0, high=n)
    every = f.integer("moe_layer_freq", 1)
    width = f.integer("moe_intermediate_size")
    shared = f.integer("n_shared_experts", 0, low=0) * width
    moe = experts(f, "n_routed_experts", "moe_intermediate_size", shared_width=shared, router_bias=True)
    return [moe if i >= first and i % every == 0 else dense(f) for i in range(n)]


def _glm4_moe(f: Fields) -> Layers:
    norm: Literal["head", "none"] = "head" if f.flag("use_qk_norm", False) else "none"
    attention = replace(grouped_heads(f), qkv_bias=f.flag("attention_bias", False), qk_norm=norm)
    return stack([attention] * n_layers(f), _first_dense_mlps(f))


def _latent(f: Fields, **index: int) -> LatentAttention:
    """Latent attention; `head_dim` and `num_key_value_heads` of these files mean nothing for it."""
    if f.flag("attention_bias", False):
        raise f.fail("attention_bias", "must be false: no published latent-attention model has these biases")
    return LatentAttention(
        n_heads=f.integer("num_attention_heads"),
        q_rank=f.maybe_integer("q_lora_rank"),
        kv_rank=f.integer("kv_lora_rank"),
        d_nope=f.integer("qk_nope_head_dim"),
        d_rope=f.integer("qk_rope_head_dim"),
        d_value=f.integer("v_head_dim"),
        **index,
    )


def _deepseek(f: Fields) -> Layers:
    return stack([_latent(f)] * n_layers(f), _first_dense_mlps(f))


def _deepseek_sparse(f: Fields) -> Layers:
    """Layers that `indexer_types` calls shared reuse the choice of an earlier layer and have no indexer."""
    n = n_layers(f)
    index = {"index_heads": "index_n_heads", "index_d_head": "index_head_dim", "index_topk": "index_topk"}
    latent = _latent(f, **{field: f.integer(key) for field, key in index.items()})
    if latent.q_rank is None:
        raise f.fail("q_lora_rank", "is missing: the indexer reads the compressed query")
    kinds = f.list_of("indexer_types", str, n)
    if kinds is None and f.integer("index_topk_freq", 1) > 1:
        raise f.fail("indexer_types", "is missing, and index_topk_freq says that layers share indexers")
    if set(kinds or ()) - {"full", "shared"}:
        raise f.fail("indexer_types", "must hold full and shared only")
    shared = replace(latent, index_heads=0, index_d_head=0)
    latents = [shared if kind == "shared" else latent for kind in kinds or ["full"] * n]
    return stack(latents, _first_dense_mlps(f))


def _minimax_m2(f: Fields) -> Layers:
    """The router's correction bias is there by `use_routing_bias`; q and k are normalised over all heads."""
    kinds = f.list_of("attn_type_list", int, n_layers(f)) or [1]
    if set(kinds) != {1}:
        raise f.fail("attn_type_list", "must be all 1 (softmax attention)")
    f.text("qk_norm_type", ("per_layer",), "per_layer")
    if f.integer("shared_intermediate_size", 0, low=0):
        raise f.fail("shared_intermediate_size", "must be 0 in this family")
    norm: Literal["full", "none"] = "full" if f.flag("use_qk_norm", False) else "none"
    moe = experts(f, "num_local_experts", "intermediate_size", router_bias=f.flag("use_routing_bias", False))
    return stack([replace(grouped_heads(f), qk_norm=norm)] * n_layers(f), [moe] * n_layers(f))


FAMILIES: Mapping[str, Callable[[Fields], Layers]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "qwen3_5": _qwen3_5,
    "qwen3_5_text": _qwen3_5,
    "qwen3_5_moe": _qwen3_5_moe,
    "qwen3_5_moe_text": _qwen3_5_moe,
    "gemma3": _gemma3,
    "gemma3_text": _gemma3,
    "gpt_oss": _gpt_oss,
    "glm4_moe": _glm4_moe,
    "deepseek_v3": _deepseek,
    "kimi_k2": _deepseek,
    "deepseek_v32": _deepseek_sparse,
    "glm_moe_dsa": _deepseek_sparse,
    "minimax_m2": _minimax_m2,
    "bloom": config_older.bloom,
    "opt": config_older.opt,
    "gptj": config_older.gptj,
    "phi": config_older.phi,
    "falcon": config_older.falcon,
    "gemma2": config_older.gemma2,
    "cohere": config_older.cohere,
    "llama4_text": config_older.llama4,
    "deci": config_older.deci,
}
"""`model_type` of a configuration to the function that builds its layers."""

_NESTED = frozenset({"qwen3_5", "qwen3_5_moe", "gemma3"})
