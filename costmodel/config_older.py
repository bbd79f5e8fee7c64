"""Families of `config.json` from before gated feed-forward layers were common, and those with a layout of their own.

Facts are from the configuration classes of the `transformers` library and the published configurations.
"""

from __future__ import annotations

from dataclasses import replace

from costmodel.arch import Attention, DenseMlp, MoeMlp
from costmodel.config_fields import Fields
from costmodel.config_layers import FULL, SLIDING, Layers, dense, grouped_heads, layer_types, n_layers, stack, windowed


def _plain(f: Fields, attention: Attention, width: int, *, bias: bool, n_norms: int = 2) -> Layers:
    """Equal layers with two products in the feed-forward part."""
    n = n_layers(f)
    return stack([attention] * n, [DenseMlp(width=width, gated=False, bias=bias)] * n, n_norms=n_norms)


def _one_kv_head_each(f: Fields) -> Attention:
    return grouped_heads(f, kv_heads=f.integer("num_attention_heads"))


def bloom(f: Fields) -> Layers:
    """BLOOM: one KV head per head, biases everywhere, feed-forward of 4 hidden."""
    attention = replace(_one_kv_head_each(f), qkv_bias=True, out_bias=True)
    return _plain(f, attention, 4 * f.integer("hidden_size"), bias=True)


def opt(f: Fields) -> Layers:
    """OPT: as BLOOM, with a width of its own."""
    attention = replace(_one_kv_head_each(f), qkv_bias=True, out_bias=True)
    return _plain(f, attention, f.integer("ffn_dim"), bias=True)


def gptj(f: Fields) -> Layers:
    """GPT-J: attention and feed-forward side by side behind one norm; biases in the feed-forward part only."""
    return _plain(f, _one_kv_head_each(f), 4 * f.integer("hidden_size"), bias=True, n_norms=1)


def phi(f: Fields) -> Layers:
    """Phi-1 and Phi-2: attention and feed-forward side by side behind one norm, biases everywhere."""
    attention = replace(_one_kv_head_each(f), qkv_bias=True, out_bias=True)
    return _plain(f, attention, f.integer("intermediate_size"), bias=True, n_norms=1)


def falcon(f: Fields) -> Layers:
    """Falcon with grouped KV heads (40B, 180B): no biases, feed-forward of 4 hidden."""
    return _plain(f, grouped_heads(f), 4 * f.integer("hidden_size"), bias=False)


def gemma2(f: Fields) -> Layers:
    """Gemma 2: every other layer slides, four norms a layer."""
    n = n_layers(f)
    types = layer_types(f, [FULL if i % 2 else SLIDING for i in range(n)])
    return stack(windowed(f, grouped_heads(f, d_head=256), types, 4096), [dense(f)] * n, n_norms=4)


def cohere(f: Fields) -> Layers:
    """Command-R: attention and feed-forward side by side behind one norm."""
    return stack([grouped_heads(f)] * n_layers(f), [dense(f)] * n_layers(f), n_norms=1)


def llama4(f: Fields) -> Layers:
    """Llama 4 (text): chunked attention but for every fourth layer; experts with a shared one.

    A chunk is priced as a window of its length. Interleaved dense layers have `intermediate_size_mlp`.
    """
    n = n_layers(f)
    attention = grouped_heads(f)
    chunked = replace(attention, window=f.integer("attention_chunk_size", 8192))
    step = f.integer("interleave_moe_layer_step", 1)
    moe = MoeMlp(
        n_experts=f.integer("num_local_experts"),
        top_k=f.integer("num_experts_per_tok"),
        width=f.integer("intermediate_size"),
        shared_width=f.integer("intermediate_size"),
    )
    plain = None if step == 1 else DenseMlp(width=f.integer("intermediate_size_mlp"))
    mlps = [moe if (i + 1) % step == 0 or plain is None else plain for i in range(n)]
    return stack([attention if (i + 1) % 4 == 0 else chunked for i in range(n)], mlps)


def deci(f: Fields) -> Layers:
    """DeciLM-7B: a number of KV heads per layer."""
    n = n_layers(f)
    heads = f.list_of("num_key_value_heads_per_layer", int, n) or []
    attention = grouped_heads(f, kv_heads=f.integer("num_attention_heads"))
    return stack([replace(attention, n_kv_heads=h) for h in heads], [dense(f)] * n)
