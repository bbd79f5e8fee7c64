"""Damage by drawing trajectories, rare hazards raised and each trajectory weighed by its likelihood ratio.

    P(damage) = E*[1{harm} prod p / p*]      p*: a failed hold, a wrong write and a missed one are raised to `raised`

A trajectory is given up at its first harm, so a weight holds only what led there. It checks the dynamic programme of
`costmodel.chain`, whose protocol it plays anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from costmodel.chain import StepRisk
from costmodel.hazards import Hazards
from costmodel.trajectory import RUNS_FREELY, Effect
from hwprofiles.errors import InputError
from simulator.case import Case
from simulator.risk_patterns import pattern
from simulator.success_chain import odds

if TYPE_CHECKING:
    from simulator.risk import Cell

RAISED = 0.3
"""Probability that rare hazards are raised to, and at most: enough harms in a few thousand tasks; no result depends
on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnDamage:
    """An estimate over `n` trajectories, its standard error, and how many plain harms its weights are worth."""

    damage: float
    standard_error: float
    n: int
    effective_harms: float

    def to_dict(self) -> dict[str, float]:
        """Plain values, for JSON."""
        return {k: getattr(self, k) for k in ("damage", "standard_error", "n", "effective_harms")}


class _Coin:
    """Draws events at raised probabilities and keeps the weight."""

    def __init__(self, rng: np.random.Generator, raised: float) -> None:
        self._drawn: Iterator[float] = iter(())
        self._rng, self._raised = rng, raised
        self.weight = 1.0

    def _uniform(self) -> float:
        for u in self._drawn:
            return u
        self._drawn = iter(self._rng.random(4096).tolist())
        return next(self._drawn)

    def plain(self, p: float) -> bool:
        """An event of probability p."""
        return self._uniform() < p

    def rare(self, p: float, share: float = 1.0) -> bool:
        """The same, drawn with max(p, raised * share) where p is neither 0 nor 1."""
        q = max(p, self._raised * share) if 0 < p < 1 else p
        happens = self._uniform() < q
        if q != p:
            self.weight *= p / q if happens else (1 - p) / (1 - q)
        return happens


def drawn_damage(
    steps: Sequence[StepRisk], window: int, h: Hazards, *, n: int, seed: int, raised: float = RAISED, weight: Any = None
) -> DrawnDamage:
    """P(damage) of a task under `spec_agent`.

    Parameters
    ----------
    h : hazards at points; `weight` (n_points,) are their probabilities, None: one point
    n : trajectories
    raised : 0 draws plainly

    Raises
    ------
    InputError
        Fewer than two trajectories, or `raised` outside 0 .. 1.
    """
    if n < 2 or not 0 <= raised < 1:
        raise InputError(f"need at least 2 trajectories and 0 <= raised < 1, got {n} and {raised:g}")
    rng = np.random.default_rng([seed, window, n])
    n_points = 1 if weight is None else len(weight)
    points = [_Point.at(h, k, window) for k in range(n_points)]
    chosen = rng.choice(n_points, size=n, p=weight) if n_points > 1 else np.zeros(n, dtype=int)
    n_writes = max(1, sum(s.effect is Effect.WRITE for s in steps))
    coin = _Coin(rng, raised)
    values = np.zeros(n)
    for t in range(n):
        coin.weight = 1.0
        if _harmed(steps, window, points[int(chosen[t])], h.sticky, coin, 1.0 / n_writes):
            values[t] = coin.weight
    total, squares = float(values.sum()), float((values**2).sum())
    return DrawnDamage(
        damage=total / n,
        standard_error=float(values.std(ddof=1)) / n**0.5,
        n=n,
        effective_harms=total**2 / squares if squares else 0.0,
    )


@dataclass(frozen=True, slots=True)
class _Point:
    """Hazards of one task as plain numbers; reviews by offset and length."""

    weak: float
    strong: float
    hold_failure: float
    review: tuple[tuple[tuple[float, float], ...], ...]

    @classmethod
    def at(cls, h: Hazards, k: int, window: int) -> _Point:
        def one(x: Any) -> float:
            flat = np.ravel(x)
            return float(flat[0] if len(flat) == 1 else flat[k])

        def judged(m: int, length: int) -> tuple[float, float]:
            d, f = h.review(np.array([m]), np.array([length]))
            return one(d), one(f)

        table = tuple(tuple(judged(m, n) for m in range(n)) for n in range(1, window + 1))
        return cls(one(h.weak), one(h.strong), float(np.ravel(h.hold_failure)[0]), table)


def _harmed(steps: Sequence[StepRisk], window: int, p: _Point, sticky: bool, coin: _Coin, share: float) -> bool:
    """Whether one trajectory does any harm; leaves its weight with the coin."""
    tools = sorted({s.tool for s in steps if s.effect is Effect.WRITE})
    fails = {t: coin.rare(p.hold_failure) for t in tools} if sticky else {}
    i = 0
    while i < len(steps):
        segment: list[tuple[bool, bool, bool]] = []  # writes, runs early, is wrong
        for step in steps[i : i + window]:
            write = step.effect is Effect.WRITE
            early = write and (fails[step.tool] if sticky else coin.rare(p.hold_failure, share))
            segment.append((write, early, coin.rare(p.weak, share) if write else coin.plain(p.weak)))
            if step.effect not in RUNS_FREELY and not early:
                break
        kept = 0
        for write, _, wrong in segment:
            d, f = p.review[len(segment) - 1][kept]
            rejected = not coin.rare(1 - d) if wrong and write else coin.plain(d if wrong else f)
            if rejected:
                break
            if wrong and write:
                return True
            kept += 1
        if any(early for _, early, _ in segment[kept:]):
            return True
        i += kept
        if kept < len(segment):
            if segment[kept][0] and coin.rare(p.strong, share):
                return True
            i += 1
    return False


def checked(case: Case, cell: Cell, n: int) -> dict[str, Any]:
    """A cell's damage drawn anew, beside the exact one: `z` is their difference in standard errors."""
    steps = pattern(case, int(cell.steps))
    o = odds(case, None, cell.window, n_steps=len(steps), hold_failure=cell.hold_failure)
    found = drawn_damage(steps, cell.window, o.hazards, n=n, seed=case.scenario.run.seed, weight=o.weight)
    off = found.damage - cell.damage.value
    return {
        "steps": cell.steps,
        "window": cell.window,
        "hold_failure": cell.hold_failure,
        "exact": cell.damage.value,
        **found.to_dict(),
        "z": off / found.standard_error if found.standard_error else 0.0,
    }
