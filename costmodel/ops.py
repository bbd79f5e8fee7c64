"""The operations of one engine step, one device: FLOPs, bytes by kind, and seconds under a smooth roof.

Every size may be a number or a numpy array (many steps at once), every factor a number or an array with a leading
sample axis; shapes broadcast.

    t_o = smooth(tc, tm) + c,   smooth(x, y) = (x^p + y^p)^(1/p)
    tc = flops / (peak e_c),    tm = bytes / (bandwidth e_m)

and never below the time in which the operation's energy can be spent under the power limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from costmodel.arch import Attention, AttentionSpec, DenseMlp, Layer, MoeMlp
from costmodel.counts import head_dtype, product_dtype
from costmodel.deployment import Deployment
from costmodel.dtypes import compute_dtype, kv_bytes_each, weight_bytes_each
from costmodel.products import Product, prediction_product, products
from costmodel.roof import rank_skew, smooth, touched_experts
from costmodel.shares import kv_heads_per_rank
from costmodel.spans import Num

_ALLREDUCE_EXPONENT = 0.44
"""L(n) = L(2) (n/2)^0.44 reproduces the fitted 6, 8 and 11 microseconds at 2, 4 and 8 devices."""
_LEAST_WIDTH = 128.0
"""A product's losses to filling and narrow columns stop growing here: one tile of a kernel; the fitted products are
wider, and a gate of one column is a vector product that streams its rows once."""
_EXPERT_TILE_ROWS = 16
"""Rows a grouped product pads each expert to (a first fit of measured steps: 16 per touched expert)."""
_LOW_PRECISION = {"fp8": 0.5, "int8": 0.5, "fp4": 0.25}
"""Operand types below 16 bit, and their energy per FLOP relative to 16 bit (assumed)."""


class Op(NamedTuple):
    """One operation of one device: work, seconds, the two roofs `compute_s` and `memory_s` it is bound by.

    `work_s` are the seconds under both and the power limit, without fixed time; `exponent` is the roof's p, 0 for a
    hard maximum.
    """

    name: str
    flops: Num
    weight_bytes: Num = 0.0
    kv_bytes: Num = 0.0
    state_bytes: Num = 0.0
    activation_bytes: Num = 0.0
    interconnect_bytes: Num = 0.0
    dynamic_j: Num = 0.0
    seconds: Num = 0.0
    compute_s: Num = 0.0
    memory_s: Num = 0.0
    link_s: Num = 0.0
    work_s: Num = 0.0
    exponent: Num = 0.0


class Rank:
    """What one device of a deployment can do: peaks, bandwidth and factors, ready for the operations below."""

    def __init__(self, dep: Deployment, factors: Mapping[str, Num]) -> None:
        device = dep.hardware
        assert device.bandwidth_bytes_per_s is not None
        self.n = dep.n_devices
        self.expert_ranks = dep.expert_parallel
        self.model = dep.model
        self.weight_dtype = dep.weight_dtype
        self.factors = factors
        self.peaks = {dtype: fact.value for dtype, fact in device.peak_flops_per_s.items()}
        self.half_flops_per_s = self.peaks[compute_dtype("bf16", self.peaks)]
        self.bandwidth = device.bandwidth_bytes_per_s.value
        self.link = device.link.bandwidth_bytes_per_s.value if device.link else float("inf")
        self.kv_dtype = dep.kv_dtype
        self.kv_each = kv_bytes_each(dep.kv_dtype)
        tdp = device.tdp_w.value if device.tdp_w else None
        self.dynamic_w = tdp * (1.0 - factors["idle_w_share"]) if tdp else float("inf")

    def op(
        self,
        name: str,
        *,
        tc: Num,
        tm: Num,
        fixed_s: Num,
        energy_scale: float = 1.0,
        exponent: str | None = "roof_exponent",
        flops: Num = 0.0,
        weight: Num = 0.0,
        kv: Num = 0.0,
        state: Num = 0.0,
        activation: Num = 0.0,
    ) -> Op:
        """Price one operation under its roofs and the power limit."""
        f = self.factors
        joules = flops * (f["flop_j"] * energy_scale) + (weight + kv + state + activation) * f["byte_j"]
        p: Num = f[exponent] if exponent else 0.0
        work = smooth(tc, tm, p) if exponent else np.maximum(tc, tm)
        work = np.maximum(work, joules / self.dynamic_w)
        return Op(name, flops, weight, kv, state, activation, 0.0, joules, work + fixed_s, tc, tm, 0.0, work, p)

    def precision(self, dtype: str) -> tuple[float, bool, float]:
        """Peak FLOP/s of products with weights of `dtype`, whether they run below 16 bit, and their energy scale."""
        compute = compute_dtype(dtype, self.peaks)
        return self.peaks[compute], compute in _LOW_PRECISION, _LOW_PRECISION.get(compute, 1.0)

    def product(self, name: str, m: Num, k: float, n: float, dtype: str, present: Num = 1.0) -> Op:
        """Matrix product of m rows with k x n weights of `dtype` on this device; 0 rows (`present` 0) cost nothing."""
        f = self.factors
        peak, low, scale = self.precision(dtype)
        flops = 2.0 * m * k * n
        weight = k * n * weight_bytes_each(dtype) * present
        quantise = 3.0 * m * k if low else 0.0
        operands = weight + (1.0 if low else 2.0) * m * k + 2.0 * m * n
        deep, wide = np.maximum(k, _LEAST_WIDTH), np.maximum(n, _LEAST_WIDTH)
        fill = (1.0 + f["gemm_fill_k"] / deep) * (1.0 + f["gemm_fill_n"] / wide)
        stream_s = (
            operands
            * (1.0 + f["gemm_narrow_n"] / wide)
            / (self.bandwidth * f["gemm_memory_8bit" if low else "gemm_memory"])
        )
        return self.op(
            name,
            tc=flops * fill / (peak * f["gemm_compute_8bit" if low else "gemm_compute"]),
            tm=stream_s + quantise / (self.bandwidth * f["elementwise_memory"]),
            fixed_s=f["gemm_8bit_s" if low else "gemm_s"] * present,
            exponent="roof_exponent_8bit" if low else "roof_exponent",
            energy_scale=scale,
            flops=flops,
            weight=weight,
            activation=operands - weight + quantise,
        )

    def experts(self, mlp: MoeMlp, hidden: int, m: Num) -> Op:
        """All routed experts of a layer: N(m) of them are read, rows padded to a tile per touched expert.

        Work is the mean over devices; with expert parallelism time follows the rank that holds most of the N(m).
        """
        f = self.factors
        k, n_experts = mlp.top_k, mlp.n_experts
        touched = np.minimum(touched_experts(n_experts, k, m, f["expert_correlation"]), m * k)
        per_expert = 3.0 * hidden * mlp.width / self.n
        rows = touched * _EXPERT_TILE_ROWS * np.ceil(m * k / touched / _EXPERT_TILE_ROWS - 1e-9)
        peak, low, scale = self.precision(self.weight_dtype)
        flops = 2.0 * m * k * per_expert
        weight = touched * per_expert * weight_bytes_each(self.weight_dtype)
        inner = 3.0 * mlp.width * self.expert_ranks / self.n
        routed = m * k / self.expert_ranks
        activation = (1.0 if low else 2.0) * routed * (hidden + inner) + 2.0 * routed * hidden
        skew = rank_skew(n_experts, self.expert_ranks, touched)
        return self.op(
            "experts",
            tc=2.0 * rows * per_expert / (peak * f["expert_compute"]) * skew,
            tm=(weight + activation) / (self.bandwidth * f["expert_memory"]) * skew,
            fixed_s=f["expert_s"],
            energy_scale=scale,
            flops=flops,
            weight=weight,
            activation=activation,
        )

    def head(self, rows: Num) -> Op:
        """The output head: one row per sampled token, vocabulary split over devices."""
        arch = self.model
        dtype = head_dtype(arch, self.weight_dtype)
        return self.product("head", rows, arch.hidden, arch.vocab / self.n, dtype, np.minimum(rows, 1.0))

    def projection(self, m: Num) -> Op:
        """What a multi-token-prediction layer applies to hidden state and embedding before its layer."""
        p = prediction_product(self.model.hidden)
        return self.product(p.name, m, p.k, p.n / self.n, product_dtype(self.model, self.weight_dtype, p))

    def elementwise(self, name: str, n_bytes: Num, kernels: float) -> Op:
        """Norms, rotary embedding, activation: bytes over bandwidth plus launches."""
        f = self.factors
        tm = n_bytes / (self.bandwidth * f["elementwise_memory"])
        return self.op(
            name, tc=0.0 * tm, tm=tm, fixed_s=kernels * f["elementwise_s"], exponent=None, activation=n_bytes
        )

    def allreduce(self, m: Num, hidden: int, count: int) -> Op:
        """The `count` all-reduces of a layer, each L(n) + rows * hidden * 2 / (link e_link).

        Bytes sent are those of a ring, 2 (n-1)/n of the payload; measured steps at 2, 4 and 8 devices take the same
        time for the same payload, as where the switch adds up on the way.
        """
        payload = m * hidden * 2.0
        link_s = count * (self._latency_s() + payload / (self.link * self.factors["link_bandwidth"]))
        payload = payload * 2.0 * (self.n - 1) / self.n
        return Op("allreduce", 0.0 * m, interconnect_bytes=count * payload, seconds=link_s, link_s=link_s)

    def all_to_all(self, m: Num, hidden: int, mlp: MoeMlp) -> Op:
        """Dispatch to the ranks that hold a token's experts, and back: L(n) + 2 rows / n * others * hidden * 2 / link.

        others = (R - 1)(1 - (1 - 1/R)^k): ranks beside its own that a token's k experts lie on, R ranks in all. Both
        ways together take an all-reduce's latency, which is a reduce-scatter and a gather (assumed).
        """
        ranks = self.expert_ranks
        others = (ranks - 1) * (1.0 - (1.0 - 1.0 / ranks) ** mlp.top_k)
        sent = 2.0 * m / self.n * others * hidden * 2.0
        link_s = self._latency_s() + sent / (self.link * self.factors["link_bandwidth"])
        return Op("all_to_all", 0.0 * m, interconnect_bytes=sent, seconds=link_s, link_s=link_s)

    def _latency_s(self) -> Num:
        return self.factors["allreduce_s"] * (self.n / 2.0) ** _ALLREDUCE_EXPONENT


def dense_ops(rank: Rank, layer: Layer, m: Num) -> list[Op]:
    """The operations of one layer whose cost depends on the number of rows alone."""
    hidden, mlp, n = rank.model.hidden, layer.mlp, rank.n
    ops = []
    for p in products(layer, hidden):
        k, columns = _per_rank(p, layer.attention, n)
        ops.append(rank.product(p.name, m, k, columns, product_dtype(rank.model, rank.weight_dtype, p)))
    if isinstance(mlp, MoeMlp):
        ops.append(rank.experts(mlp, hidden, m))
    width = mlp.width if isinstance(mlp, DenseMlp) else mlp.top_k * mlp.width
    ops.append(rank.elementwise("elementwise", m * (8.0 * hidden + 3.0 * width / n) * 2.0, 3.0))
    routed = isinstance(mlp, MoeMlp) and rank.expert_ranks > 1
    if n > 1:
        ops.append(rank.allreduce(m, hidden, 1 if routed else 2))
    if isinstance(mlp, MoeMlp) and routed:
        ops.append(rank.all_to_all(m, hidden, mlp))
    return ops


def _per_rank(p: Product, attention: AttentionSpec, n: int) -> tuple[float, float]:
    """Rows and columns of a product on one device; KV heads fewer than devices are replicated."""
    if p.name == "qkv" and isinstance(attention, Attention):
        kv = 2 * attention.d_head
        own = (p.n - kv * attention.n_kv_heads) / n
        return p.k, own + kv * kv_heads_per_rank(attention, n)
    return (p.k / n if p.split == "k" else p.k), (p.n / n if p.split == "n" else p.n)
