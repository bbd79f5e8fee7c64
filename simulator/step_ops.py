"""The operations of one engine step, added up by name and split into what binds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.arch import MoeMlp
from costmodel.counts import head_params, layer_groups
from costmodel.deployment import Deployment
from costmodel.ops import Op
from costmodel.products import expert_matrix_params, products
from costmodel.roof import touched_experts
from costmodel.spans import Span, decode_span, prefill_span, run_sum
from costmodel.step import StepModel

BYTES: tuple[str, ...] = ("weights", "kv", "state", "activations", "interconnect")
"""Kinds of bytes, in the order of `_FIELDS`."""

PARTS: tuple[str, ...] = ("compute", "memory", "link", "overhead")
"""What seconds are spent on."""

ROOFS: tuple[str, ...] = ("compute", "memory", "link")
_FIELDS = ("weight_bytes", "kv_bytes", "state_bytes", "activation_bytes", "interconnect_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCost:
    """One kind of operation over all layers and devices.

    Parameters
    ----------
    count : how often it occurs in the step (on each device)
    time_s : seconds of all of them; `parts_s` splits it into compute, memory, link and overhead
    flops, bytes : work of all devices, bytes by kind
    roofs_s : seconds at the compute, memory and link roof alone
    """

    name: str
    count: int
    time_s: float
    flops: float
    bytes: Mapping[str, float]
    parts_s: Mapping[str, float]
    roofs_s: Mapping[str, float]

    @property
    def bound(self) -> str:
        """The largest part of the time: compute, memory, link or overhead."""
        return max(self.parts_s, key=lambda part: self.parts_s[part])


def touched_params(dep: Deployment, rows: float) -> float:
    """Distinct parameters a step with `rows` tokens reads, whatever the number of devices.

    head + sum over layers of products + N(rows) * parameters of one expert, where the factor `expert_correlation`
    (kappa) lowers N: fewer distinct experts than independent routing would touch. At one row N = top_k for any kappa.
    """
    arch = dep.model
    kappa = dep.efficiency.factors["expert_correlation"].value
    total = float(head_params(arch))
    for layer, count in layer_groups(arch):
        own = float(sum(p.params for p in products(layer, arch.hidden)))
        mlp = layer.mlp
        if isinstance(mlp, MoeMlp):
            experts = min(float(touched_experts(mlp.n_experts, mlp.top_k, rows, kappa)), rows * mlp.top_k)
            own += experts * expert_matrix_params(mlp, arch.hidden)
        total += count * own
    return total


def step_ops(
    model: StepModel, passes: Sequence[tuple[int, int]], runs: Sequence[tuple[int, int]]
) -> list[tuple[Op, int]]:
    """Operations of one step that holds all passes (new, context) and all decoding sequences (sequences, context)."""
    windows = dict.fromkeys([*model.windows, None])
    pre = dec = None
    if passes:
        new, context = (np.array(x, dtype=float) for x in zip(*passes, strict=True))
        each = {w: prefill_span(new, context, w) for w in windows}
        pre = {w: Span(*(float(np.sum(x)) for x in span)) for w, span in each.items()}
    n_decode = float(sum(n for n, _ in runs))
    if runs:
        seen = {w: sum(n * float(run_sum(float(c), 1.0, w, model.tokens)) for n, c in runs) for w in windows}
        dec = {w: decode_span(x, n_decode, model.tokens) for w, x in seen.items()}
    checked = model.tokens * n_decode
    rows = float(sum(n for n, _ in passes)) + checked
    return model.ops(rows, float(len(passes)) + checked, pre, dec)


def merged(model: StepModel, ops: Sequence[tuple[Op, int]]) -> tuple[OpCost, ...]:
    """Operations of one name added up, in order of first appearance."""
    by_name: dict[str, list[tuple[Op, int]]] = {}
    for op, count in ops:
        by_name.setdefault(op.name, []).append((op, count))
    return tuple(_added(model, name, found) for name, found in by_name.items())


def _added(model: StepModel, name: str, found: Sequence[tuple[Op, int]]) -> OpCost:
    n = model.rank.n
    parts = dict.fromkeys(PARTS, 0.0)
    for op, count in found:
        for part, seconds in _split(op).items():
            parts[part] += count * seconds
    return OpCost(
        name=name,
        count=sum(count for _, count in found),
        time_s=float(sum(count * op.seconds for op, count in found)),
        flops=float(n * sum(count * op.flops for op, count in found)),
        bytes={
            kind: float(n * sum(count * getattr(op, field) for op, count in found))
            for kind, field in zip(BYTES, _FIELDS, strict=True)
        },
        parts_s=parts,
        roofs_s={roof: float(sum(count * getattr(op, f"{roof}_s") for op, count in found)) for roof in ROOFS},
    )


def _split(op: Op) -> dict[str, float]:
    """Seconds of an operation: the smooth roof (stretched by the power limit) to its larger side, the rest overhead."""
    work = float(op.work_s)
    larger = "compute" if op.compute_s > op.memory_s else "memory"
    link = float(op.link_s)
    return {larger: work, "link": link, "overhead": max(0.0, float(op.seconds) - work - link)}


def host(seconds: float) -> OpCost:
    """The host's part of a step: all of it overhead."""
    return OpCost(
        name="host",
        count=1,
        time_s=seconds,
        flops=0.0,
        bytes=dict.fromkeys(BYTES, 0.0),
        parts_s={"compute": 0.0, "memory": 0.0, "link": 0.0, "overhead": seconds},
        roofs_s={"compute": 0.0, "memory": 0.0, "link": 0.0},
    )
