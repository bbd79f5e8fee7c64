"""Quantiles of Student's t, which intervals over seeds need; scipy takes a quarter of a second to load for them."""

from __future__ import annotations

import math


def t_quantile(level: float, df: int) -> float:
    """Half-width of a two-sided interval in standard errors: t with P(|T| < t) = `level` at `df` degrees of freedom.

    P(|T| < t) is a finite sum in theta = atan(t / sqrt(df)); theta is found by bisection.

    Parameters
    ----------
    level : float
        Between 0 and 1, both excluded.
    df : int
        At least 1.

    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    low, high = 0.0, math.pi / 2
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return math.tan(middle) * math.sqrt(df)
        low, high = (middle, high) if _inside(middle, df) < level else (low, middle)


def _inside(theta: float, df: int) -> float:
    """P(|T| < sqrt(df) tan(theta))."""
    sine, cosine = math.sin(theta), math.cos(theta)
    term = cosine if df % 2 else 1.0
    total = term if df > 1 else 0.0
    for k in range(2 + df % 2, df - 1, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    return 2 / math.pi * (theta + sine * total) if df % 2 else sine * total
