"""Which values of a simulated map's axes are simulated, and how what was found there is spread over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simulator.axis import Axis
from simulator.surface import FEW

Array = np.ndarray[Any, np.dtype[np.float64]]

KNOTS = 4
"""Simulated values of an axis with more than `surface.FEW`."""


def places_of(axis: Axis) -> Any:
    """Indices of the values that are simulated: all of a short axis, else those next to Chebyshev knots."""
    values = np.array(axis.values)
    if len(values) <= FEW:
        return np.arange(len(values))
    scale = np.log(values) if values[0] > 0 and values[-1] / values[0] > 4 else values
    at = (scale[0] + scale[-1]) / 2 - (scale[-1] - scale[0]) / 2 * np.cos(np.pi * np.arange(KNOTS) / (KNOTS - 1))
    return np.unique([int(np.argmin(np.abs(scale - v))) for v in at])


def through(place: Array, values: Array, axis: Axis) -> Array:
    """Values at indices `place` of an axis, interpolated to all of it; NaN between or beyond knots without one."""
    n = len(axis.values)
    if len(place) == n:
        return values
    from scipy.interpolate import PchipInterpolator

    at = np.array(axis.values)
    at = np.log(at) if at[0] > 0 and at[-1] / at[0] > 4 else at
    known = np.isfinite(values)
    out = np.full(n, np.nan)
    if known.sum() > 1:
        out = np.asarray(PchipInterpolator(at[place[known]], values[known], extrapolate=False)(at))
    for a, b, both in zip(place[:-1], place[1:], known[:-1] & known[1:], strict=True):
        if not both:
            out[a + 1 : b] = np.nan
    out[place] = values
    return out


def spread(values: Array, knots: Sequence[Array], axes: Sequence[Axis]) -> Array:
    """`through` along each axis of a grid in turn: (knots of y, knots of x) to (ny, nx)."""
    for i, (place, axis) in enumerate(zip(knots, axes, strict=True)):
        values = _each(values, i, place, axis)
    return values


def _each(values: Array, along: int, place: Array, axis: Axis) -> Array:
    lines = [through(place, line, axis) for line in np.moveaxis(values, along, -1)]
    return np.moveaxis(np.array(lines), -1, along)


def left_out(values: Array, knots: Sequence[Array], axes: Sequence[Axis]) -> float:
    """What interpolation may add: an eighth of the largest error at an inner knot that is left out.

    A cubic's error falls with distance cubed. Noise of simulation counts in it too.
    """
    worst = 0.0
    for i, axis in enumerate(axes):
        if len(knots[i]) == len(axis.values) or len(knots[i]) < 4:
            continue
        for j in range(1, len(knots[i]) - 1):
            kept = np.delete(knots[i], j)
            guess = np.take(_each(np.delete(values, j, axis=i), i, kept, axis), knots[i][j], axis=i)
            off = np.abs(guess - np.take(values, j, axis=i))
            worst = max(worst, *off[np.isfinite(off)].tolist(), 0.0)
    return worst / 8.0
