"""Points that a calibration's fit does not see, timed after it: predicted against measured, with bands."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel.deployment import Deployment
from validate.calibrate import Fitted
from validate.calibrate_model import Point, Pricer
from validate.calibrate_probe import Sample
from validate.design import Limits, fits

_PREFILL, _CONTEXT, _BATCH = (16, 2048), (64, 8192), (1, 16)
_DRAWS = 400


def random_points(room: Limits, n: int, seed: int) -> tuple[Point, ...]:
    """`n` points drawn at random, their sizes log-uniform: prefills cold and warm, and decodes, in turns."""
    rng = random.Random(seed)
    found: list[Point] = []
    for _ in range(200 * n):
        if len(found) == n:
            break
        kind = ("prefill", "warm", "decode")[len(found) % 3]
        new, context, batch = (_between(rng, *ends) for ends in (_PREFILL, _CONTEXT, _BATCH))
        if kind == "decode":
            point = Point(kind="decode", batch=batch, new_tokens=1, context_tokens=context)
        elif kind == "warm":
            point = Point(kind="warm", batch=1, new_tokens=min(new, 512), context_tokens=context)
        else:
            point = Point(kind="prefill", batch=1, new_tokens=new, context_tokens=0)
        if fits(point, room):
            found.append(point)
    return tuple(found)


def checked(dep: Deployment, fitted: Fitted, samples: Sequence[Sample], seed: int = 0) -> dict[str, Any]:
    """Measured and predicted seconds of points outside the fit.

    error = predicted / measured - 1;  band: 90 % of draws of the factors, each with the noise of one measured point

    Returns
    -------
    dict
        `n`, `median_error`, `in_band` (share; both None where nothing could be timed) and `points`.
    """
    rng = np.random.default_rng(seed)
    pricer = Pricer(dep, [s.point for s in samples])
    central = np.asarray(pricer.seconds(fitted.prior.values(fitted.z)))
    drawn = fitted.draws[rng.integers(len(fitted.draws), size=_DRAWS)]
    noise = np.array([s.sigma for s in samples]) * fitted.misfit
    times = np.asarray(pricer.seconds(fitted.prior.values(drawn))) * np.exp(
        noise * rng.standard_normal((_DRAWS, len(samples)))
    )
    low, high = np.quantile(times, (0.05, 0.95), axis=0)
    errors = [float(p / s.seconds - 1.0) for s, p in zip(samples, central, strict=True)]
    rows = [
        {
            "point": s.point.label,
            "measured_s": s.seconds,
            "predicted_s": float(p),
            "low_s": float(a),
            "high_s": float(b),
            "error": error,
        }
        for s, p, a, b, error in zip(samples, central, low, high, errors, strict=True)
    ]
    return {
        "n": len(rows),
        "median_error": float(np.median(np.abs(errors))) if errors else None,
        "in_band": float(np.mean([a <= s.seconds <= b for s, a, b in zip(samples, low, high, strict=True)]))
        if errors
        else None,
        "points": rows,
    }


def _between(rng: random.Random, low: int, high: int) -> int:
    drawn: float = low * (high / low) ** rng.random()
    return round(drawn)
