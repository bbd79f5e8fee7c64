"""Model architectures as a tuple of layer specs, and what can be counted from them alone.

A `ModelArch` is built from a Hugging Face `config.json` by `costmodel.config_json`; everything here is exact counting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention with grouped heads; `window` tokens of context for a sliding layer, None for a full one.

    `output_gate` doubles the query projection (Qwen3.5); `sinks` adds one learned scalar per head (gpt-oss).
    `index_*` describe a sparse-attention indexer (DeepSeek-V3.2, GLM-5) on top of `LatentAttention`.
    """

    n_heads: int
    n_kv_heads: int
    d_head: int
    window: int | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    output_gate: bool = False
    sinks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one compressed KV of `kv_rank + d_rope` per token, shared by all heads.

    `index_topk` > 0: each token attends to at most that many others, chosen by an indexer with
    `index_heads` heads of `index_d_head` (no heads: by an earlier layer's indexer).
    """

    n_heads: int
    q_rank: int | None
    kv_rank: int
    d_nope: int
    d_rope: int
    d_value: int
    index_heads: int = 0
    index_d_head: int = 0
    index_topk: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """Gated delta net: a recurrent state of `n_value_heads * d_key * d_value` numbers instead of a KV cache."""

    n_key_heads: int
    n_value_heads: int
    d_key: int
    d_value: int
    conv_width: int
    state_bytes_each: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseMlp:
    """Gated feed-forward: three products of hidden x `width` (two when not `gated`)."""

    width: int
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeMlp:
    """Mixture of experts: `top_k` of `n_experts` per token, each gated with `width`, plus a shared expert.

    `shared_width` is the total width of the shared experts (0: none); `shared_gate` a gate vector of hidden.
    """

    n_experts: int
    top_k: int
    width: int
    shared_width: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False


AttentionSpec = Attention | LatentAttention | LinearAttention
MlpSpec = DenseMlp | MoeMlp


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer; `n_norms` vectors of hidden (2, Gemma: 4)."""

    attention: AttentionSpec
    mlp: MlpSpec
    n_norms: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """How a checkpoint stores its weights.

    `weight_dtype` applies to the layers' matrix products (`experts_only`: to experts alone); embedding, head, norms,
    routers and convolutions stay in 16 bit unless `head` is True.
    """

    weight_dtype: str
    experts_only: bool = False
    head: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArch:
    """A language model's dimensions (vision towers and multi-token-prediction layers left out).

    `layers` has one entry per decoder layer, in order.
    """

    name: str
    family: str
    hidden: int
    vocab: int
    tied_embeddings: bool
    layers: tuple[Layer, ...]
    max_context_tokens: int | None = None
    quantisation: Quantisation | None = None
    learned_positions: int = 0
    source: str = ""
