"""A strategy against strong-only over two axes: exact at knots, interpolated between them.

Acceptance, whole-number axes with few values, and axes with few values are exact at every value; other axes are
evaluated at Chebyshev knots and interpolated in the logarithm of cost (shape-preserving cubic, no overshoot).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwprofiles.errors import InputError
from simulator.axis import Axis
from simulator.nodes import ACCEPTANCE, NodeMaker
from simulator.scenario import Scenario

Array = np.ndarray[Any, np.dtype[np.float64]]

KNOTS = 5
"""Knots of an axis that is interpolated."""

FEW = 9
"""An axis with at most this many values is evaluated at each."""

_WORK = 60
_BAND_KNOTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """Costs of a strategy (`mine`) and of strong-only (`theirs`) on a grid (ny, nx).

    `terms` (name -> (mine, theirs)) sum to the objective; `low` and `high` bound the log ratio, relative to its central
    value; `error` is what interpolation may add.
    """

    mine: Array
    theirs: Array
    terms: Mapping[str, tuple[Array, Array]]
    low: Array
    high: Array
    n_tasks: int
    n_all_tasks: int
    error: float


def knots_of(axis: Axis) -> Array:
    """Values at which an axis is evaluated exactly."""
    values = np.array(axis.values)
    if axis.key == ACCEPTANCE or len(values) <= FEW or (axis.whole and len(values) <= 2 * FEW):
        return values
    low, high = values[0], values[-1]
    log = low > 0 and high / low > 4
    ends = (math.log(low), math.log(high)) if log else (low, high)
    mid, half = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
    found = mid - half * np.cos(np.pi * np.arange(KNOTS) / (KNOTS - 1))
    found = np.exp(found) if log else found
    found[0], found[-1] = low, high
    return np.unique(np.round(found)) if axis.whole else found


def surface(scenario: Scenario, x: Axis, y: Axis, objective: str, strategy: str, window: int | None = None) -> Surface:
    """Evaluate both strategies over the grid of two axes.

    Parameters
    ----------
    window : int or None
        In place of the scenario's.

    Raises
    ------
    InputError
        A value out of range, an objective that is not known, or axes that are one and the same.

    Limits
    ------
    Where more than one tape is needed, a sample of tasks evenly spread over their length stands for the workload. How
    verdict length, verbosity and thinking spread the ratio is taken from the scenario's own point.
    """
    if x.key == y.key:
        raise InputError(f"axes: both are {x.key}; give two different ones")
    axes = (y, x)
    knots = [knots_of(a) for a in axes]
    free = [i for i, a in enumerate(axes) if a.key != ACCEPTANCE]
    n_nodes = math.prod(len(knots[i]) for i in free)
    maker = NodeMaker(scenario, objective, strategy, window, {a.key for a in axes}, _WORK // n_nodes)
    shape = tuple(len(k) for k in knots)
    coarse = [
        np.unique(np.linspace(0, n - 1, _BAND_KNOTS).astype(int)) if i in free else np.arange(n)
        for i, n in enumerate(shape)
    ]
    table: dict[str, tuple[Array, Array]] = {}
    low, high = np.zeros(shape), np.zeros(shape)
    for where in np.ndindex(*(len(knots[i]) for i in free)):
        change: dict[str, Any] = {}
        at: list[Any] = [slice(None), slice(None)]
        for i, j in zip(free, where, strict=True):
            at[i] = j
            change |= axes[i].setting(float(knots[i][j]))
        along = next((knots[i] for i in (0, 1) if i not in free), None)
        node = maker.node(
            maker.case(change, along), along, banded=all(j in coarse[i] for i, j in zip(free, where, strict=True))
        )
        place = tuple(at)
        for name, pair in node.terms.items():
            both = table.setdefault(name, (np.zeros(shape), np.zeros(shape)))
            for full, part in zip(both, pair, strict=True):
                full[place] = part if along is not None else part[0]
        low[place] = node.low if along is not None else node.low[0]
        high[place] = node.high if along is not None else node.high[0]
    return _fill(table, (low, high), knots, coarse, axes, maker)


def _fill(
    table: Mapping[str, tuple[Array, Array]],
    band: tuple[Array, Array],
    knots: Sequence[Array],
    coarse: Sequence[Any],
    axes: tuple[Axis, Axis],
    maker: NodeMaker,
) -> Surface:
    def spread(values: Array) -> Array:
        for i, axis in enumerate(axes):
            values = _along(knots[i], values, np.array(axis.values), i)
        return values

    def spread_band(values: Array) -> Array:
        values = values[np.ix_(*coarse)]
        for i, axis in enumerate(axes):
            values = _along(knots[i][coarse[i]], values, np.array(axis.values), i)
        return values

    mine, theirs = (np.sum([t[i] for t in table.values()], axis=0) for i in (0, 1))
    terms = {name: (spread(a), spread(b)) for name, (a, b) in table.items()}
    return Surface(
        mine=np.exp(spread(np.log(mine))),
        theirs=np.exp(spread(np.log(theirs))),
        terms=terms,
        low=spread_band(band[0]),
        high=spread_band(band[1]),
        n_tasks=maker.n_tasks,
        n_all_tasks=maker.n_all_tasks,
        error=_leave_out(np.log(mine / theirs), knots, axes),
    )


def _along(knots: Array, values: Array, at: Array, axis: int) -> Array:
    """Interpolate along one axis; nothing to do where every value is a knot."""
    if len(knots) == len(at) and np.array_equal(knots, at):
        return values
    if len(knots) == 1:
        return np.repeat(values, len(at), axis=axis)
    from scipy.interpolate import PchipInterpolator

    logs = knots[0] > 0 and knots[-1] / knots[0] > 4
    scale = np.log if logs else np.asarray
    return np.asarray(PchipInterpolator(scale(knots), values, axis=axis)(scale(at)))


def _leave_out(log_ratio: Array, knots: Sequence[Array], axes: tuple[Axis, Axis]) -> float:
    """An eighth of the largest error at an inner knot that is left out: a cubic's error falls with distance cubed."""
    worst = 0.0
    for i, axis in enumerate(axes):
        if len(knots[i]) == len(axis.values) or len(knots[i]) < 4:
            continue
        for j in range(1, len(knots[i]) - 1):
            kept = np.delete(np.arange(len(knots[i])), j)
            guess = _along(knots[i][kept], np.take(log_ratio, kept, axis=i), knots[i][j : j + 1], i)
            worst = max(worst, float(np.max(np.abs(guess - np.take(log_ratio, [j], axis=i)))))
    return worst / 8.0
