"""Attention operations of one device in one step: softmax over a cache, its indexer, and gated delta."""

from __future__ import annotations

import numpy as np

from costmodel.arch import Attention, AttentionSpec, LatentAttention, LinearAttention
from costmodel.counts import kv_bytes_per_token_of, product_dtype
from costmodel.ops import Op, Rank
from costmodel.products import Product
from costmodel.shares import kv_heads_per_rank, state_bytes_per_rank
from costmodel.spans import Num, Span


def attention_ops(rank: Rank, a: AttentionSpec, span: Span, full: Span, *, decode: bool) -> list[Op]:
    """Attention of one layer over `span` (clipped to its window) and, for sparse attention, the indexer over `full`.

    prefill flops 4 heads d sum(context); KV is read once per sequence and pass. Decode of latent attention, and all of
    sparse attention, runs in absorbed form, 2 heads (2 kv_rank + d_rope) per context token; prefill projects the cached
    part up again, 2 kv_rank heads (d_nope + d_value) per cached token. New tokens of a sparse prefill choose different
    ones, so it reads as many as they can choose, at most all. Gated delta: 7 V dk dv flops per token, the state is
    read once per sequence and pass and written once, in decode once per token.
    """
    f = rank.factors
    peak, present = rank.half_flops_per_s, np.minimum(span.n_seqs, 1.0)
    if isinstance(a, LinearAttention):
        flops = 7.0 * a.n_value_heads * a.d_key * a.d_value / rank.n * span.new_tokens
        # read once per sequence and pass; written once, or after every token of a decode pass that may be undone
        state = state_bytes_per_rank(a, rank.n) * (span.n_seqs + (span.new_tokens if decode else span.n_seqs))
        return [
            rank.op(
                "linear_attention",
                tc=flops / (peak * f["linear_attention_compute"]),
                tm=state / (rank.bandwidth * f["attention_decode_memory"]),
                fixed_s=f["linear_attention_s"] * present,
                flops=flops,
                state=state,
            )
        ]
    if isinstance(a, Attention):
        flops = 4.0 * a.d_head * a.n_heads / rank.n * span.context_tokens
        token_bytes = 2.0 * kv_heads_per_rank(a, rank.n) * a.d_head * rank.kv_each
        row_bytes = 4.0 * a.d_head * a.n_heads / rank.n
    else:
        absorbed = decode or a.index_topk > 0
        per = (2 * a.kv_rank + a.d_rope) if absorbed else (a.d_nope + a.d_rope + a.d_value)
        flops = 2.0 * a.n_heads / rank.n * per * span.context_tokens
        token_bytes = (a.kv_rank + a.d_rope) * rank.kv_each
        row_bytes = 2.0 * a.n_heads / rank.n * per
        if a.index_topk and not decode:
            span = span._replace(touched_tokens=np.minimum(full.touched_tokens, span.context_tokens))
    ops = [_softmax(rank, "attention", flops, token_bytes, row_bytes, span, decode=decode)]
    if isinstance(a, LatentAttention) and not absorbed:
        up = Product("kv_b", a.kv_rank, a.n_heads * (a.d_nope + a.d_value))
        dtype = product_dtype(rank.model, rank.weight_dtype, up)
        cached = span.touched_tokens - span.new_tokens
        ops.append(rank.product("kv_b_cached", cached, up.k, up.n / rank.n, dtype, 0.0))
    if isinstance(a, LatentAttention) and a.index_heads:
        flops = 2.0 * a.index_heads * a.index_d_head * full.context_tokens
        key = kv_bytes_per_token_of(a, rank.kv_dtype) - token_bytes
        ops.append(_softmax(rank, "indexer", flops, key, 2.0 * a.index_heads * a.index_d_head, full, decode=decode))
    return ops


def _softmax(
    rank: Rank, name: str, flops: Num, token_bytes: float, row_bytes: float, span: Span, *, decode: bool
) -> Op:
    """Scores and values over a cache; `row_bytes` are query and output of one new token, `token_bytes` of its KV."""
    f = rank.factors
    kv = token_bytes * span.touched_tokens
    rows = row_bytes * span.new_tokens
    bandwidth = rank.bandwidth * f["attention_decode_memory"]
    present = np.minimum(span.n_seqs, 1.0)
    if decode:  # what does not grow with context stays outside the roof, which keeps a step affine in context
        return rank.op(
            f"{name}_decode",
            tc=flops / rank.half_flops_per_s,
            tm=kv / bandwidth,
            fixed_s=f["attention_decode_s"] * present + rows / bandwidth,
            flops=flops,
            kv=kv,
        )
    tile = 1.0 + f["attention_tile_tokens"] * span.new_tokens / np.maximum(span.context_tokens, 1.0)
    return rank.op(
        f"{name}_prefill",
        tc=flops * tile / (rank.half_flops_per_s * f["attention_prefill_compute"]),
        tm=(kv + rows + 2.0 * token_bytes * span.new_tokens) / bandwidth,
        fixed_s=f["attention_prefill_s"] * present,
        flops=flops,
        kv=kv,
        activation=rows,
    )
