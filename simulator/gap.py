"""How much of the gap between weak-only and strong-only success a strategy recovers, and how many trials would tell.

    gap recovered = (S - S_weak) / (S_strong - S_weak)

It is never clipped: a good reviewer of independent errors recovers more than the gap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from costmodel.prediction import Prediction, predict
from hwprofiles.errors import InputError
from simulator.case import Case
from simulator.success import success_of
from simulator.success_chain import fate_of, odds, step_risks

Array = np.ndarray[Any, np.dtype[np.float64]]

ALPHA, POWER = 0.05, 0.8
WITHIN, WORSE = 0.01, 0.02
"""Drops in success to be told apart: within one point of strong-only, and two points worse."""


def gap_recovered(case: Case, strategy: str, samples: Mapping[str, Array]) -> Prediction | None:
    """Gap recovered with its 90 % interval over the inputs; None where weak-only and strong-only succeed alike.

    Limits
    ------
    Where the hazards' bands overlap the gap may close within them, and the interval is as wide as that makes it.
    """
    names = (strategy, "weak_only", "strong_only")
    mine, weak, strong = (float(success_of(case, n, None)[0]) for n in names)
    if abs(strong - weak) < 1e-12:
        return None
    spread = [success_of(case, n, samples) for n in names]
    gap = spread[2] - spread[1]
    open_ = np.abs(gap) > 1e-12
    if not np.any(open_):
        return None
    return predict((mine - weak) / (strong - weak), ((spread[0] - spread[1])[open_] / gap[open_]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Runs per strategy that tell a drop of `within` from one of `worse`; `paired`: both strategies on the same tasks.

    `covariance` is that of the two successes on one task, which is what pairing saves.
    """

    paired: int
    unpaired: int
    covariance: float
    within: float = WITHIN
    worse: float = WORSE
    alpha: float = ALPHA
    power: float = POWER

    def to_dict(self) -> dict[str, float]:
        """Plain values, for JSON."""
        return {k: getattr(self, k) for k in ("paired", "unpaired", "covariance", "within", "worse", "alpha", "power")}


def trials_needed(
    strong: float,
    covariance: float = 0.0,
    *,
    within: float = WITHIN,
    worse: float = WORSE,
    alpha: float = ALPHA,
    power: float = POWER,
) -> Trials:
    """Trials of a one-sided test of drop = worse at level alpha that has `power` when drop = within.

    n = ((z_{1 - alpha} s(worse) + z_power s(within)) / (worse - within))^2
    s(D)^2 = p (1 - p) + q (1 - q) - 2 covariance,   q = p - D;   covariance 0 where tasks are not shared

    Parameters
    ----------
    strong : float
        p, success of strong-only.
    covariance : float
        Of the two successes on one task.

    Raises
    ------
    InputError
        p outside 0 .. 1, drops not in order, or a level out of range.

    Limits
    ------
    Normal approximation; a covariance beyond what two shares allow is cut to it.
    """
    if not 0 <= strong <= 1:
        raise InputError(f"success must be from 0 to 1, got {strong:g}")
    if not 0 <= within < worse <= 1:
        raise InputError(f"drops must hold 0 <= within < worse <= 1, got {within:g} and {worse:g}")
    if not (0 < alpha < 1 and 0 < power < 1):
        raise InputError(f"alpha and power must be between 0 and 1, got {alpha:g} and {power:g}")
    z = NormalDist().inv_cdf

    def deviation(drop: float, shared: float) -> float:
        q = max(0.0, strong - drop)
        most = min(strong, q) - strong * q
        return math.sqrt(strong * (1 - strong) + q * (1 - q) - 2 * min(shared, most))

    def needed(shared: float) -> int:
        total = z(1 - alpha) * deviation(worse, shared) + z(power) * deviation(within, shared)
        return max(1, math.ceil((total / (worse - within)) ** 2))

    return Trials(
        paired=needed(covariance),
        unpaired=needed(0.0),
        covariance=covariance,
        within=within,
        worse=worse,
        alpha=alpha,
        power=power,
    )


def trials_for(case: Case, strategy: str) -> Trials:
    """Trials for a strategy of a case: what tasks share is their length, effects and difficulty."""
    steps = step_risks(case)
    window = case.scenario.protocol.window
    o = odds(case, None, window, n_steps=max(map(len, steps)))
    shared = np.zeros(2)
    product = 0.0
    patterns = {tuple((s.effect, s.tool) for s in task): (task, 0) for task in steps}
    for task in steps:
        key = tuple((s.effect, s.tool) for s in task)
        patterns[key] = (task, patterns[key][1] + 1)
    for task, n in patterns.values():
        both = [
            np.broadcast_to(fate_of(case, name, [task], o.hazards, window).success, o.difficulty.shape)
            for name in (strategy, "strong_only")
        ]
        share = n / len(steps)
        shared += share * np.array([float(o.mean(x)[0]) for x in both])
        product += share * float(o.mean(both[0] * both[1])[0])
    return trials_needed(float(shared[1]), product - float(shared[0] * shared[1]))
