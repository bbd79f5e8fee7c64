"""Shares of accepted cases with their intervals: Wilson's, and a bootstrap over tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from costmodel.trajectory import Effect

LEVEL = 0.90
_RESAMPLES = 2000
METHOD = "90 % bootstrap over tasks (seed 0, 2000 resamples), at least as wide as Wilson's"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share with its 90 % interval and the number of cases behind it."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRate:
    """The share at one position, from 0."""

    position: int
    rate: Rate


@dataclass(frozen=True, slots=True)
class Trial:
    """One comparison: task number, position, effect, outcome."""

    task: int
    position: int
    effect: str
    accepted: bool


def wilson(accepted: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's interval for a share of independent cases (E. B. Wilson, 1927)."""
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + level / 2)
    p = accepted / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)


def rate(trials: Sequence[Trial]) -> Rate:
    """The share accepted; cases of one task are not independent, so tasks are resampled."""
    accepted, n = sum(t.accepted for t in trials), len(trials)
    low, high = wilson(accepted, n)
    tasks = sorted({t.task for t in trials})
    if len(tasks) > 1:
        import numpy as np

        index = {task: i for i, task in enumerate(tasks)}
        sums = np.zeros((len(tasks), 2))
        for t in trials:
            sums[index[t.task]] += (t.accepted, 1)
        picks = np.random.default_rng(0).integers(0, len(tasks), (_RESAMPLES, len(tasks)))
        totals = sums[picks].sum(axis=1)
        edge = 50 * (1 - LEVEL)
        lower, upper = np.percentile(totals[:, 0] / totals[:, 1], [edge, 100 - edge])
        low, high = min(low, float(lower)), max(high, float(upper))
    return Rate(value=accepted / n, low=low, high=high, n=n)


def by_position(trials: Sequence[Trial]) -> tuple[PositionRate, ...]:
    """Rates of the positions that have cases."""
    places = sorted({t.position for t in trials})
    return tuple(PositionRate(position=p, rate=rate([t for t in trials if t.position == p])) for p in places)


def by_effect(trials: Sequence[Trial]) -> dict[str, Rate]:
    """Rates of the effects that have cases."""
    order = [e.value for e in Effect]
    present = sorted({t.effect for t in trials}, key=order.index)
    return {effect: rate([t for t in trials if t.effect == effect]) for effect in present}
