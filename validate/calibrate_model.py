"""Seconds of the measurements a calibration takes, as functions of the factors.

prefill: t = request_s + request_token_s * prompt + sum over passes of t_step(new, context)
decode:  t = t_step(batch sequences at context), the time between two tokens
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from costmodel.deployment import Deployment, factor_values
from costmodel.request import plan_request
from costmodel.spans import clipped_sum, decode_span
from costmodel.step import StepModel
from costmodel.step_parts import BUSY
from validate.fit_layout import Array

Num = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One thing to time: a prefill of `new_tokens` on `context_tokens` cached ones, or a decode step.

    Parameters
    ----------
    batch : int
        Sequences that decode together; 1 for a prefill.
    new_tokens : int
        Of a prefill; 1 for a decode step.
    context_tokens : float
        Tokens in the cache of each sequence.
    """

    kind: Literal["prefill", "warm", "decode"]
    batch: int
    new_tokens: int
    context_tokens: float

    @property
    def label(self) -> str:
        """Short text such as `decode of 8 at 1024`."""
        if self.kind == "decode":
            return f"decode of {self.batch} at {self.context_tokens:.0f}"
        behind = f" behind {self.context_tokens:.0f} cached" if self.context_tokens else ""
        return f"prefill of {self.new_tokens}{behind}"


class Pricer:
    """Prices points of one deployment under factors: numbers, or arrays (k, 1) for k sets at once."""

    def __init__(self, dep: Deployment, points: Sequence[Point]) -> None:
        self.dep = dep
        self.rule = StepModel(dep).rule
        self.n = len(points)
        self.decodes = np.array([i for i, p in enumerate(points) if p.kind == "decode"], dtype=int)
        self.batch = np.array([points[i].batch for i in self.decodes], dtype=float)
        self.context = np.array([points[i].context_tokens for i in self.decodes], dtype=float)
        self.prefills = np.array([i for i, p in enumerate(points) if p.kind != "decode"], dtype=int)
        self.prompt = np.array([points[i].new_tokens + points[i].context_tokens for i in self.prefills], dtype=float)
        passes = [(k, part) for k, i in enumerate(self.prefills) for part in self._passes(points[i])]
        self.owner = np.array([k for k, _ in passes], dtype=int)
        self.new = np.array([part.new_tokens for _, part in passes], dtype=float)
        self.behind = np.array([part.context_tokens for _, part in passes], dtype=float)
        self.emits = np.array([part.emits for _, part in passes], dtype=float)

    def _passes(self, point: Point) -> tuple[Any, ...]:
        cached = int(point.context_tokens)
        exact = replace(self.rule, block_tokens=1, state_aligned=False)
        return plan_request(exact, cached + point.new_tokens, cached, 1).passes

    def seconds(self, factors: Mapping[str, Num]) -> Array:
        """Seconds of every point, (n,) or (k, n); factors that are not given have their central values."""
        model = StepModel(self.dep, {**factor_values(self.dep), **factors})
        k = max((np.shape(v)[0] for v in factors.values() if np.ndim(v)), default=0)
        found = np.empty((k, self.n) if k else self.n)
        if len(self.decodes):
            spans = {}
            for w in {*model.windows, None}:
                seen = self.batch * clipped_sum(self.context, float(model.tokens), w)
                spans[w] = decode_span(seen, self.batch, model.tokens)
            rows = model.tokens * self.batch
            found[..., self.decodes] = model.total(model.ops(rows, rows, None, spans), self.batch)[1]
        if len(self.prefills):
            each = np.asarray(model.prefill(self.new, self.behind, self.emits)[BUSY])
            member = (self.owner[:, None] == np.arange(len(self.prefills))[None, :]).astype(float)
            found[..., self.prefills] = each @ member + model.request_s(self.prompt)
        return found
