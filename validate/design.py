"""Which measurements to take: a greedy D-optimal choice under a time budget.

Gain of a point with slopes g = d log t / d z and noise sigma, under the covariance C of what is known:

    gain = log(1 + g C g / sigma^2) / 2;   afterwards C <- C - (C g)(C g)^T / (sigma^2 + g C g)

The point with the most gain per square root of its cost comes next, until nothing gains or nothing is affordable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.deployment import Deployment
from costmodel.step import StepModel
from costmodel.step_parts import BUSY
from validate.calibrate_model import Point, Pricer
from validate.calibrate_prior import Prior
from validate.fit_layout import Array

SIGMA = 0.04
"""Log noise of one point: repeats on a quiet server scatter by 1 to 4 %, and the step model misses as much."""
STEP = 1e-3
LEAST_GAIN = 0.01
MOST_POINTS = 40
DECODE_TOKENS = 24
"""Tokens each sequence of a decode point generates."""
LEAST_REPEATS, MOST_REPEATS, REPEATED_S = 3, 9, 0.6
"""A point is timed until it has taken so long altogether, within these numbers: short ones are disturbed most."""

_PREFILLS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_WARM = tuple((new, context) for context in (512, 2048, 8192, 32768) for new in (16, 64, 256, 1024))
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_CONTEXTS = (64, 512, 2048, 8192, 32768)
_OVERHEAD_S = 0.02
_KV_SHARE = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a server takes: tokens of one request, tokens of its KV cache, requests at once."""

    max_model_tokens: int
    kv_tokens: int
    max_seqs: int = 64


def candidates(limits: Limits) -> tuple[Point, ...]:
    """Every point that the server has room for."""
    points = [Point(kind="prefill", batch=1, new_tokens=n, context_tokens=0) for n in _PREFILLS]
    points += [Point(kind="warm", batch=1, new_tokens=n, context_tokens=c) for n, c in _WARM]
    points += [Point(kind="decode", batch=b, new_tokens=1, context_tokens=c) for c in _CONTEXTS for b in _BATCHES]
    return tuple(p for p in points if fits(p, limits))


def fits(point: Point, limits: Limits) -> bool:
    """Whether the server has room for a point."""
    more = DECODE_TOKENS if point.kind == "decode" else 1
    each = point.context_tokens + point.new_tokens + more
    held = each * point.batch
    return each <= limits.max_model_tokens and held <= _KV_SHARE * limits.kv_tokens and point.batch <= limits.max_seqs


def slopes(pricer: Pricer, prior: Prior, z: Array) -> tuple[Array, Array]:
    """log t (n,) of a pricer's points at `z`, and its derivatives by the factors' scales, (n, n_factors)."""
    at = np.vstack([z, z + STEP * np.eye(len(z))])
    logs = np.log(pricer.seconds(prior.values(at)))
    return logs[0], ((logs[1:] - logs[0]) / STEP).T


def repeats_of(once_s: float) -> int:
    """How often something that takes so long is timed."""
    return round(min(MOST_REPEATS, max(LEAST_REPEATS, REPEATED_S / max(once_s, 1e-6))))


def costs(dep: Deployment, points: Sequence[Point], seconds: Array) -> Array:
    """Seconds it takes to time each point as often as it is, preparations of the cache included."""
    model = StepModel(dep)
    found = np.empty(len(points))
    for i, p in enumerate(points):
        once = seconds[i] * (DECODE_TOKENS if p.kind == "decode" else 1)
        chunks = np.arange(0.0, max(1.0, p.context_tokens), model.rule.chunk_tokens)
        new = np.minimum(model.rule.chunk_tokens, np.maximum(1.0, p.context_tokens - chunks))
        warm = float(model.prefill(new, chunks, np.ones(len(chunks)))[BUSY].sum()) * p.batch
        found[i] = repeats_of(once) * (once + _OVERHEAD_S) + (warm if p.context_tokens else 0.0)
    return found


def choose(dep: Deployment, prior: Prior, limits: Limits, budget_s: float) -> tuple[Point, ...]:
    """The points worth their time, in the order of the choice.

    Parameters
    ----------
    budget_s : float
        Predicted seconds of all of them together.
    """
    points = candidates(limits)
    if not points:
        return ()
    logs, grad = slopes(Pricer(dep, points), prior, prior.mean)
    cost = costs(dep, points, np.exp(logs))
    covariance = prior.covariance.copy()
    chosen: list[int] = []
    left_s = budget_s
    while len(chosen) < min(MOST_POINTS, len(points)):
        spread = np.einsum("ij,jk,ik->i", grad, covariance, grad)
        gain = 0.5 * np.log1p(spread / SIGMA**2)
        gain[chosen] = 0.0
        gain[cost > left_s] = 0.0
        best = int(np.argmax(gain / np.sqrt(cost)))
        if gain[best] < LEAST_GAIN:
            break
        chosen.append(best)
        left_s -= cost[best]
        moved = covariance @ grad[best]
        covariance -= np.outer(moved, moved) / (SIGMA**2 + spread[best])
    return tuple(points[i] for i in chosen)
