"""Pieces that the families of `costmodel.config_json` share: head counts, feed-forward layers, layer patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from costmodel.arch import Attention, AttentionSpec, DenseMlp, Layer, MlpSpec, MoeMlp
from costmodel.config_fields import MAX_LAYERS, Fields

Layers = tuple[Layer, ...]
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


def n_layers(f: Fields) -> int:
    """Number of decoder layers."""
    return f.integer("num_hidden_layers", high=MAX_LAYERS)


def grouped_heads(
    f: Fields, heads: int | None = None, kv_heads: int | None = None, d_head: int | None = None
) -> Attention:
    """Grouped heads; the arguments are the family's defaults.

    `head_dim` wins over hidden / heads, which is wrong for many families.
    """
    n_heads = f.integer("num_attention_heads", heads)
    n_kv_heads = f.integer("num_key_value_heads", kv_heads)
    if n_heads % n_kv_heads:
        raise f.fail("num_key_value_heads", f"must divide num_attention_heads {n_heads}, got {n_kv_heads}")
    width = f.maybe_integer("head_dim") or d_head
    if width is None:
        width, rest = divmod(f.integer("hidden_size"), n_heads)
        if rest or not width:
            raise f.fail("head_dim", f"is missing, and hidden_size is no multiple of num_attention_heads {n_heads}")
    return Attention(n_heads=n_heads, n_kv_heads=n_kv_heads, d_head=width)


def dense(f: Fields, *, bias: bool = False) -> DenseMlp:
    """A gated feed-forward layer of `intermediate_size`."""
    return DenseMlp(width=f.integer("intermediate_size"), bias=bias)


def experts(f: Fields, count_key: str, width_key: str, **more: Any) -> MoeMlp:
    """Experts; their count has three names across families, their width two."""
    n_experts = f.integer(count_key)
    top_k = f.integer("num_experts_per_tok")
    if top_k > n_experts:
        raise f.fail("num_experts_per_tok", f"must be at most {count_key} {n_experts}, got {top_k}")
    return MoeMlp(n_experts=n_experts, top_k=top_k, width=f.integer(width_key), **more)


def layer_types(f: Fields, default: Sequence[str], allowed: tuple[str, ...] = (FULL, SLIDING)) -> list[str]:
    """Attention kind of each layer: `layer_types` where the file has it, else `default`."""
    types = f.list_of("layer_types", str, len(default)) or list(default)
    for kind in types:
        if kind not in allowed:
            raise f.fail("layer_types", f"holds the unknown kind {kind!r:.60}; known: {', '.join(allowed)}")
    return types


def stack(attentions: Sequence[AttentionSpec], mlps: Sequence[MlpSpec], n_norms: int = 2) -> Layers:
    """One `Layer` per pair; equal layers are one object, which makes counting fast."""
    unique: dict[tuple[AttentionSpec, MlpSpec], Layer] = {}
    pairs = zip(attentions, mlps, strict=True)
    return tuple(unique.setdefault((a, m), Layer(attention=a, mlp=m, n_norms=n_norms)) for a, m in pairs)


def windowed(f: Fields, attention: Attention, types: Sequence[str], default: int | None = None) -> list[Attention]:
    """`attention` once per layer, with `sliding_window` (or the `default`) on sliding layers."""
    if SLIDING not in types:
        return [attention] * len(types)
    sliding = replace(attention, window=f.integer("sliding_window", default))
    return [sliding if t == SLIDING else attention for t in types]
