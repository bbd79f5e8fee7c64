"""Seconds of single measured operators: products, one layer's linear and element-wise parts, attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.arch import Attention
from costmodel.counts import layer_groups
from costmodel.deployment import Deployment
from costmodel.dtypes import weight_bytes_each
from costmodel.engines import engine
from costmodel.models import model
from costmodel.ops import Rank, dense_ops
from costmodel.ops_attention import attention_ops
from costmodel.spans import Span, prefill_span
from hwprofiles.load import efficiency
from validate.accuracy.kinds import Subject
from validate.accuracy.tables import Row

Num = Any
Pricer = Callable[[Mapping[str, Num]], Num]

_LINEAR = {
    "attn_pre_proj": "qkv",
    "attn_post_proj": "out",
    "mlp_up_proj": ("gate_up", "up"),
    "mlp_down_proj": "down",
    "elementwise": "elementwise",
}
_CACHE_ROOM_PRODUCT, _CACHE_ROOM_ATTENTION = 0.16, 0.8
"""Share of the cache that holds an operator's operands over its repetitions: weights are walked through several copies,
a KV cache is read again in place."""
_ANY_MODEL = "meta-llama/Llama-3.1-8B"
"""A rank needs a model; single products and attentions do not depend on it."""


def _rank(subject: Subject, factors: Mapping[str, Num]) -> Rank:
    dep = Deployment(
        hardware=subject.device,
        model=subject.model or model(_ANY_MODEL),
        n_devices=subject.n_devices,
        weight_dtype=subject.weight_dtype,
        kv_dtype=subject.kv_dtype,
        engine=engine("vllm-v1"),
        efficiency=efficiency(subject.device.device_class),
    )
    return Rank(dep, factors)


def _cached(subject: Subject, rank: Rank, n_bytes: Num, room: float) -> Rank:
    """The rank with the bandwidth a repeated operator sees: the cache's where all it moves stays in `room` of it."""
    cache = subject.device.cache_bytes
    if cache is not None:
        speed: Num = np.where(n_bytes <= room * cache.value, rank.factors["cache_speed"], 1.0)
        rank.bandwidth = rank.bandwidth * speed
    return rank


def _sizes(rows: Sequence[Row], key: str) -> Num:
    return np.array([float(row.note[key]) for row in rows])


def gemm(subject: Subject, rows: Sequence[Row]) -> Pricer:
    """Products of m rows with k x n weights."""
    m, n, k = (_sizes(rows, key) for key in ("m", "n", "k"))
    moved = weight_bytes_each(subject.weight_dtype) * (k * n + m * k) + 2.0 * m * n

    def price(factors: Mapping[str, Num]) -> Num:
        rank = _cached(subject, _rank(subject, factors), moved, _CACHE_ROOM_PRODUCT)
        return rank.product("gemm", m, k, n, subject.weight_dtype).seconds

    return price


def linear(subject: Subject, rows: Sequence[Row]) -> Pricer:
    """One of a layer's products, or its element-wise part, on one of `n_devices` without communication."""
    assert subject.model is not None
    layer = layer_groups(subject.model)[0][0]
    m = np.array([row.input_tokens for row in rows], dtype=float)
    wanted = _LINEAR[rows[0].note["op"].partition("(")[0]]

    def price(factors: Mapping[str, Num]) -> Num:
        return next(op.seconds for op in dense_ops(_rank(subject, factors), layer, m) if op.name in wanted)

    return price


def known_operator(row: Row) -> bool:
    """Whether `linear` knows the operator a row names."""
    return row.note.get("op", "").partition("(")[0] in _LINEAR


def attention(subject: Subject, rows: Sequence[Row]) -> Pricer:
    """One layer's attention: `kind=context` a prefill, else one new token per sequence."""
    note = rows[0].note
    heads = Attention(n_heads=int(note["heads"]), n_kv_heads=int(note["kv_heads"]), d_head=int(note["head_dim"]))
    decode = note["kind"] != "context"
    batch = np.array([row.batch for row in rows], dtype=float)
    new = np.ones_like(batch) if decode else np.array([row.input_tokens for row in rows], dtype=float)
    context = np.array([row.context_tokens or 0.0 for row in rows], dtype=float)
    one = prefill_span(new, context, None)
    if decode:
        seen = batch * (context + 1.0)
        span = Span(seen, seen, batch, batch)
    else:
        span = Span(one.context_tokens * batch, one.touched_tokens * batch, new * batch, batch)
    moved = 4.0 * heads.d_head * (heads.n_kv_heads * span.touched_tokens + heads.n_heads * span.new_tokens)

    def price(factors: Mapping[str, Num]) -> Num:
        rank = _rank(subject, factors)
        if decode:
            rank = _cached(subject, rank, moved, _CACHE_ROOM_ATTENTION)
        return attention_ops(rank, heads, span, span, decode=decode)[0].seconds

    return price
