"""The formulas that operations share: the smooth roof, how many experts a pass touches, and how evenly over ranks."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

Num = Any
Array = np.ndarray[Any, np.dtype[np.float64]]


def smooth(x: Num, y: Num, p: Num) -> Num:
    """Smooth maximum `(x^p + y^p)^(1/p)`; between max(x, y) and x + y."""
    hi = np.maximum(x, y)
    lo = np.minimum(x, y)
    ratio = lo / np.where(hi > 0, hi, 1.0)
    return hi * (1.0 + ratio**p) ** (1.0 / p)


def touched_experts(n_experts: int, top_k: int, tokens: Num, correlation: Num = 1.0) -> Num:
    """Distinct experts a pass of `tokens` touches: k + (E - k)(1 - (1 - k/E)^(kappa (t - 1))).

    kappa = 1 is independent uniform routing, E (1 - (1 - k/E)^t); measured routing is correlated, kappa < 1.
    """
    miss = 1.0 - top_k / n_experts
    return (
        top_k + (n_experts - top_k) * (1.0 - miss ** (correlation * (tokens - 1.0))) if miss > 0 else tokens * 0 + top_k
    )


@lru_cache(maxsize=32)
def fullest_rank(n_experts: int, n_ranks: int) -> Array:
    """Expected number of touched experts on the fullest of `n_ranks`, for 0 .. n_experts touched ones in all.

    N touched experts are any N of the E with equal chance, G = E / ranks of them on each rank, so

        P(no rank holds more than x | N) = [z^N] (sum over i <= x of C(G, i) z^i)^ranks / C(E, N)
        E[max | N] = sum over x >= 0 of 1 - P(no rank holds more than x | N)

    Returns
    -------
    array (n_experts + 1,), read-only; entry N lies between N / n_ranks and min(N, G).
    """
    each = n_experts // n_ranks
    ways = np.ones(each + 1, dtype=np.longdouble)
    for i in range(each):
        ways[i + 1] = ways[i] * (each - i) / (i + 1)
    every = _power(ways, n_ranks)
    expected = np.zeros(n_experts + 1, dtype=np.longdouble)
    for x in range(each):
        held = np.zeros_like(every)
        within = _power(ways[: x + 1], n_ranks)
        held[: len(within)] = within
        expected += 1.0 - held / every
    found = expected.astype(float)
    found.setflags(write=False)
    return found


def _power(polynomial: Any, exponent: int) -> Any:
    """Coefficients of a polynomial's power, by squaring."""
    out = np.ones(1, dtype=polynomial.dtype)
    while exponent:
        if exponent & 1:
            out = np.convolve(out, polynomial)
        polynomial = np.convolve(polynomial, polynomial) if exponent > 1 else polynomial
        exponent >>= 1
    return out


def rank_skew(n_experts: int, n_ranks: int, touched: Num) -> Num:
    """Touched experts on the fullest rank relative to the mean, `E[max | N] ranks / N`; 1 on a single rank.

    Uniform routing at 512 experts, 10 per token, 8 ranks: 2.4 for one token, 1.65 for 4, 1.0 for 256.
    """
    if n_ranks == 1:
        return 1.0
    most = np.interp(touched, np.arange(n_experts + 1.0), fullest_rank(n_experts, n_ranks))
    return most * n_ranks / touched
