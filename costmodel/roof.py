"""The two formulas that operations share: the smooth roof, and how many experts a pass touches."""

from __future__ import annotations

from typing import Any

import numpy as np

Num = Any


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
