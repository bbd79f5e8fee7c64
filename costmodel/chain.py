"""Success and damage of a trajectory under draft and review, exact by dynamic programme over its steps.

A trajectory is clean or tainted; it succeeds when it ends clean. A round reviews the segment i .. i + n - 1 and keeps
its first a steps:

    V_i = sum_{a < n} (prod_{m < a} A_m) R_a V_{i+a+1}  +  (prod_{m < n} A_m) V_{i+n}

with 2 x 2 matrices on (clean, tainted): A_m for an accepted draft, R_a for a rejected one that the strong model
repairs. A write that is wrong does damage when it runs. A *hold failure* takes a write for a read: it runs while
drafting, and harms when it is wrong or discarded, which alone makes risk grow with the window:

    P(harm at offset m) = 1 - (1 - w) (1 - f) prod_{l < m} a_l
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from costmodel.trajectory import RUNS_FREELY, Effect
from hwprofiles.errors import InputError

Array = np.ndarray[Any, np.dtype[np.float64]]

MOST_TOOLS = 10
"""Distinct write tools of one trajectory whose sticky hold failures are enumerated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazards:
    """Per-step probabilities, numbers or arrays (n_difficulties,).

    Parameters
    ----------
    weak, strong : a step of that author is wrong
    detection, false_reject : a review rejects a wrong, a right step; or arrays (..., K, K) indexed [offset, length - 1]
    recovery_weak, recovery_strong : a tainted trajectory is mended by a committed step of that author
    irreversible : share of wrong writes that fail the trajectory at once
    hold_failure : a write is taken for a read
    sticky : hold failure is a property of a tool for the whole trajectory; False draws it anew per call
    """

    weak: Any
    strong: Any
    detection: Any
    false_reject: Any
    recovery_weak: Any
    recovery_strong: Any
    irreversible: float = 0.0
    hold_failure: float = 0.0
    sticky: bool = True

    def __post_init__(self) -> None:
        for name in ("weak", "strong", "detection", "false_reject", "recovery_weak", "recovery_strong"):
            values = np.asarray(getattr(self, name), dtype=float)
            if not np.all((values >= -1e-12) & (values <= 1 + 1e-12)):
                raise InputError(f"{name}: a probability must be from 0 to 1, got {values.min():g} to {values.max():g}")
        for name in ("irreversible", "hold_failure"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} must be from 0 to 1, got {getattr(self, name):g}")

    def review(self, offset: int, length: int) -> tuple[Any, Any]:
        """Detection and false rejection at an offset of a segment of some length."""
        return tuple(
            x[..., min(offset, x.shape[-2] - 1), min(length, x.shape[-1]) - 1] if np.ndim(x) >= 2 else x
            for x in (self.detection, self.false_reject)
        )


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a trajectory: arrays (n_difficulties,) or numbers; `events` is the expected number of harms."""

    success: Any
    damage: Any
    events: Any


@dataclass(frozen=True, slots=True)
class StepRisk:
    """What the chain knows of a step: its effect, and which tool a write calls (for sticky hold failures)."""

    effect: Effect
    tool: str = "write"


def alone(steps: Sequence[StepRisk], hazard: Any, recovery: Any, irreversible: float = 0.0) -> Fate:
    """One author writes and runs every step: strong-only and weak-only."""
    clean, tainted, damage, events = _end(hazard)
    for step in reversed(steps):
        write = step.effect is Effect.WRITE
        lost = hazard * irreversible if write else 0.0 * hazard
        clean, tainted = (
            (1 - hazard) * clean + (hazard - lost) * tainted,
            (1 - lost) * (recovery * clean + (1 - recovery) * tainted),
        )
        if write:
            damage, events = hazard + (1 - hazard) * damage, events + hazard
    return Fate(clean, damage, events)


def reviewed(steps: Sequence[StepRisk], window: int, h: Hazards) -> Fate:
    """SpecAgent with a window (1 is step verification).

    Raises
    ------
    InputError
        A window below 1, or more write tools than can be enumerated.
    """
    if window < 1:
        raise InputError(f"window must be >= 1, got {window}")
    if h.hold_failure == 0 or not h.sticky:
        return _reviewed(steps, window, h, None)
    tools = sorted({s.tool for s in steps if s.effect is Effect.WRITE})
    if len(tools) > MOST_TOOLS:
        raise InputError(
            f"{len(tools)} write tools in one trajectory; sticky hold failures are enumerated for at most "
            f"{MOST_TOOLS}; draw them per call instead"
        )
    total = [0.0, 0.0, 0.0]
    for fails in product((False, True), repeat=len(tools)):
        k = sum(fails)
        weight = h.hold_failure**k * (1 - h.hold_failure) ** (len(tools) - k)
        if weight == 0:
            continue
        fate = _reviewed(steps, window, h, frozenset(t for t, f in zip(tools, fails, strict=True) if f))
        total = [a + weight * b for a, b in zip(total, (fate.success, fate.damage, fate.events), strict=True)]
    return Fate(*total)


def _reviewed(steps: Sequence[StepRisk], window: int, h: Hazards, failing: frozenset[str] | None) -> Fate:
    """The programme with hold failures known by tool (`failing`), or drawn per call (None)."""
    n_steps = len(steps)
    end = _end(h.weak)
    after = [end] * (n_steps + 1)
    for i in reversed(range(n_steps)):
        sums: list[Any] = [0.0] * 4
        for weight, early in _segments(steps, i, window, h.hold_failure, failing):
            found = _round(steps, i, early, h, after)
            sums = [a + weight * b for a, b in zip(sums, found, strict=True)]
        after[i] = tuple(sums)
    clean, _, damage, events = after[0]
    return Fate(clean, damage, events)


def _segments(
    steps: Sequence[StepRisk], i: int, window: int, failure: float, failing: frozenset[str] | None
) -> list[tuple[float, tuple[bool, ...]]]:
    """Segments that a round from step `i` may draft: probability, and for each step whether it is a write run early."""
    found: list[tuple[float, tuple[bool, ...]]] = []
    weight = 1.0
    early: tuple[bool, ...] = ()
    last = min(i + window, len(steps)) - 1
    for j in range(i, last + 1):
        step = steps[j]
        if step.effect in RUNS_FREELY:
            early = (*early, False)
        elif step.effect is not Effect.WRITE:
            return [*found, (weight, (*early, False))]
        else:
            slips = failure if failing is None else float(step.tool in failing)
            if slips < 1:
                found.append((weight * (1 - slips), (*early, False)))
            if slips == 0:
                return found
            weight, early = weight * slips, (*early, True)
    return [*found, (weight, early)]


def _round(steps: Sequence[StepRisk], i: int, early: tuple[bool, ...], h: Hazards, after: Sequence[Any]) -> Any:
    """(success from clean, success from tainted, damage, expected events) of a round that drafts `early`'s steps."""
    n = len(early)
    w, u = h.weak, h.strong
    # weights of the paths on which all drafts so far were kept: from clean and from tainted to (clean, tainted)
    paths = np.array([[1.0 + 0 * w, 0 * w], [0 * w, 1.0 + 0 * w]])
    kept, intact, harmed, events = 1.0 + 0 * w, 1.0 + 0 * w, 0.0 * w, 0.0 * w
    clean = tainted = damage = count = 0.0 * w
    for m in range(n):
        write = steps[i + m].effect is Effect.WRITE
        d, f = h.review(m, n)
        right, wrong = (1 - w) * (1 - f), w * (1 - d)
        rejected = w * d + (1 - w) * f
        harms = sum(early[m:])
        repair = _repair(u, h, write, harms)
        to = after[i + m + 1]
        value = _through(repair, to)
        clean = clean + rejected * (paths[0][0] * value[0] + paths[0][1] * value[1])
        tainted = tainted + rejected * (paths[1][0] * value[0] + paths[1][1] * value[1])
        bad = u if write else 0.0
        here = 1.0 if harms else bad
        damage = damage + rejected * (harmed + intact * (here + (1 - here) * to[2]))
        count = count + rejected * (events + kept * (harms + bad + to[3]))
        lost = wrong * h.irreversible if write else 0.0
        g = h.recovery_weak
        accept = ((right, wrong - lost), ((right + wrong - lost) * g, (right + wrong - lost) * (1 - g)))
        paths = np.array([[p[0] * accept[0][k] + p[1] * accept[1][k] for k in (0, 1)] for p in paths])
        harmed = harmed * (right + wrong) + (intact * wrong if write else 0.0)
        intact = intact * (right if write else right + wrong)
        events = events * (right + wrong) + (kept * wrong if write else 0.0)
        kept = kept * (right + wrong)
    to = after[i + n]
    return (
        clean + paths[0][0] * to[0] + paths[0][1] * to[1],
        tainted + paths[1][0] * to[0] + paths[1][1] * to[1],
        damage + harmed + intact * to[2],
        count + events + kept * to[3],
    )


def _repair(u: Any, h: Hazards, write: bool, harms: int) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Matrix of a rejected draft: early writes thrown away taint it, then the strong model writes the step."""
    lost = u * h.irreversible if write else 0.0 * u
    g = h.recovery_strong
    own = ((1 - u, u - lost), ((1 - lost) * g, (1 - lost) * (1 - g)))
    if not harms:
        return own
    stays = (1 - h.irreversible) ** harms
    return ((stays * own[1][0], stays * own[1][1]), (stays * own[1][0], stays * own[1][1]))


def _through(matrix: tuple[tuple[Any, Any], tuple[Any, Any]], to: Any) -> tuple[Any, Any]:
    return tuple(row[0] * to[0] + row[1] * to[1] for row in matrix)


def _end(like: Any) -> tuple[Any, Any, Any, Any]:
    """Behind the last step: clean succeeds, tainted fails, nothing more is damaged."""
    return 1.0 + 0 * like, 0.0 * like, 0.0 * like, 0.0 * like


def difficulties(heterogeneity: float, n_steps: int) -> tuple[Array, Array]:
    """Nodes z in (0, 1) and weights of a symmetric Beta difficulty: Gauss-Jacobi, exact for polynomials of 3 n_steps.

    z ~ Beta(c, c), c = (1 - rho) / (2 rho), so Var z = rho / 4;   nodes: ceil((3 n_steps + 1) / 2)

    Parameters
    ----------
    heterogeneity : float
        rho, from 0 (all tasks alike) to below 1 (each task surely easy or surely hard).

    Raises
    ------
    InputError
        rho out of range.
    """
    if not 0 <= heterogeneity < 1:
        raise InputError(f"heterogeneity must be from 0 to below 1, got {heterogeneity:g}")
    if heterogeneity == 0:
        return np.array([0.5]), np.array([1.0])
    from scipy.special import roots_jacobi

    c = (1 - heterogeneity) / (2 * heterogeneity)
    x, weight = roots_jacobi(math.ceil((3 * n_steps + 1) / 2), c - 1, c - 1)
    return (1 + x) / 2, weight / weight.sum()


def at_difficulty(h: Hazards, z: Array, correlation: float) -> Hazards:
    """Hazards of tasks of difficulty z, linear in z, with the given ones at z = 1/2.

    w(z) = 2 z w,   u(z) = 2 z u,   d(z) = d - (2 z - 1) correlation min(d, 1 - d)

    Hard tasks are hard for all: drafter, author and, to the degree of `correlation`, the reviewer share blind spots.

    Raises
    ------
    InputError
        A hazard above 1/2, which would pass 1 at z = 1, with more than one difficulty.
    """
    if len(z) == 1:
        return h
    for name in ("weak", "strong"):
        if np.max(getattr(h, name)) > 0.5:
            raise InputError(f"{name}: with heterogeneity a mean hazard must be <= 0.5, got {getattr(h, name):g}")
    d = np.asarray(h.detection, dtype=float)
    shift = (2 * z - 1).reshape(-1, *([1] * d.ndim)) * correlation * np.minimum(d, 1 - d)
    f = np.asarray(h.false_reject, dtype=float)
    return Hazards(
        weak=2 * z * h.weak,
        strong=2 * z * h.strong,
        detection=d - shift,
        false_reject=f if f.ndim < 2 else np.broadcast_to(f, (len(z), *f.shape)),
        recovery_weak=h.recovery_weak,
        recovery_strong=h.recovery_strong,
        irreversible=h.irreversible,
        hold_failure=h.hold_failure,
        sticky=h.sticky,
    )
