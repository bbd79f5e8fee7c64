"""Success and damage of a trajectory under draft and review, exact by dynamic programme over its steps.

A trajectory is clean or tainted; it succeeds when it ends clean. With V_j the values before step j and W_jm those of a
review that has kept the m drafts of its segment before step j:

    W_jm = P(reject | m, n) R_j V_{j+1} + A_jm W_{j+1,m+1},   V_j = W_j0,   W = V behind a segment's end

with 2 x 2 matrices on (clean, tainted): A for an accepted draft, R for a rejected one that the strong model repairs.
A write that is wrong does damage when it runs. A *hold failure* takes a write for a read: it runs while drafting, and
harms when it is wrong or discarded, which alone makes risk grow with the window:

    P(harm at offset m) = 1 - (1 - w) (1 - f) prod_{l < m} a_l
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, product
from typing import Any

import numpy as np

from costmodel.hazards import Hazards
from costmodel.trajectory import RUNS_FREELY, Effect
from hwprofiles.errors import InputError

MOST_TOOLS = 10
"""Distinct write tools of one trajectory whose sticky hold failures are enumerated."""

_FREE, _HELD, _WRITE, _EARLY, _PERHAPS = range(5)
"""A read; a held step that writes nothing; a write held, run early, or early by a draw per call."""

Codes = tuple[int, ...]
Array4 = tuple[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a trajectory: arrays (..., n_points) or numbers; `events` is the expected number of harms."""

    success: Any
    damage: Any
    events: Any

    def mean(self, weight: Any) -> Fate:
        """The average over the last axis."""
        return Fate(*(np.asarray(x) @ weight for x in (self.success, self.damage, self.events)))


@dataclass(frozen=True, slots=True)
class StepRisk:
    """What the chain knows of a step: its effect, and which tool a write calls (for sticky hold failures)."""

    effect: Effect
    tool: str = "write"


def authored(steps: Sequence[StepRisk], weak_shares: Sequence[float], h: Hazards) -> Fate:
    """Steps written and run without review, each by the weak model with its own probability `weak_shares[j]`.

    All 0 is strong-only, all 1 weak-only; what lies between is a router that draws an author per step.
    """
    clean, tainted, damage, events = _end(h.shape)
    for step, share in zip(reversed(steps), reversed(weak_shares), strict=True):
        write = step.effect is Effect.WRITE
        rows = [[0.0, 0.0], [0.0, 0.0]]
        for part, hazard, recovery in ((share, h.weak, h.recovery_weak), (1 - share, h.strong, h.recovery_strong)):
            mine = _matrix(1 - hazard, hazard, recovery, h, write)
            rows = [[rows[i][k] + part * mine[i][k] for k in (0, 1)] for i in (0, 1)]
        clean, tainted = (row[0] * clean + row[1] * tainted for row in rows)
        if write:
            hazard = share * h.weak + (1 - share) * h.strong
            damage, events = hazard + (1 - hazard) * damage, events + hazard
    return Fate(clean, damage, events)


def reviewed(steps: Sequence[StepRisk], window: int, h: Hazards) -> Fate:
    """SpecAgent with a window (1 is step verification); see `reviewed_mean`."""
    return reviewed_mean([steps], window, h)


def reviewed_mean(
    tasks: Sequence[Sequence[StepRisk]], window: int, h: Hazards, known: dict[tuple[Codes, int], Any] | None = None
) -> Fate:
    """The mean over tasks; tasks of one pattern of effects are computed once.

    Parameters
    ----------
    known : dict or None
        Keeps what was computed, for further calls with the same `h`.

    Raises
    ------
    InputError
        A window below 1, or more write tools in a task than can be enumerated.
    """
    if window < 1:
        raise InputError(f"window must be >= 1, got {window}")
    patterns: dict[Codes, Any] = {}
    for steps in tasks:
        for codes, weight in _patterns(steps, h):
            patterns[codes] = patterns.get(codes, 0.0) + weight / len(tasks)
    total: list[Any] = [0.0, 0.0, 0.0]
    known = {} if known is None else known
    for codes, weight in patterns.items():
        key = codes, min(window, _longest(codes))
        if key not in known:
            known[key] = _programme(*key, h)
        total = [a + weight * b for a, b in zip(total, known[key], strict=True)]
    return Fate(*total)


def _patterns(steps: Sequence[StepRisk], h: Hazards) -> Iterable[tuple[Codes, Any]]:
    """Codes of the steps with their probability: one, or each way in which tools fail to be held."""
    plain = tuple(_FREE if s.effect in RUNS_FREELY else _WRITE if s.effect is Effect.WRITE else _HELD for s in steps)
    p = h.hold_failure
    if np.all(np.asarray(p) == 0):
        yield plain, 1.0
        return
    if not h.sticky:
        yield tuple(_PERHAPS if c == _WRITE else c for c in plain), 1.0
        return
    tools = sorted({s.tool for s in steps if s.effect is Effect.WRITE})
    if len(tools) > MOST_TOOLS:
        raise InputError(
            f"{len(tools)} write tools in one trajectory; sticky hold failures are enumerated for at most "
            f"{MOST_TOOLS}; draw them per call instead"
        )
    for fails in product((False, True), repeat=len(tools)):
        failing = {t for t, failed in zip(tools, fails, strict=True) if failed}
        codes = tuple(_EARLY if c == _WRITE and s.tool in failing else c for c, s in zip(plain, steps, strict=True))
        yield codes, p ** len(failing) * (1 - p) ** (len(tools) - len(failing))


@dataclass(frozen=True, slots=True)
class _Front:
    """The segments under review at one step, those that begin there first.

    Parameters
    ----------
    offset, length, harms, follows : (n_segments,) offset of the step, steps of the segment, early writes from here to
        the segment's end, and its place at the next step (-1 where it ends)
    slips, held : (n_begun,) a segment that begins here is drafted with probability h^slips (1 - h)^held
    """

    offset: Any
    length: Any
    harms: Any
    follows: Any
    slips: Any
    held: Any


def _segments(codes: Codes, i: int, window: int) -> list[tuple[int, int, int]]:
    """Segments that a round from step `i` may draft: steps, writes that slipped by a draw, and 1 if one then held."""
    found: list[tuple[int, int, int]] = []
    slips = 0
    last = min(window, len(codes) - i)
    for n in range(1, last + 1):
        code = codes[i + n - 1]
        if code in (_HELD, _WRITE):
            return [*found, (n, slips, 0)]
        if code == _PERHAPS:
            found.append((n, slips, 1))
            slips += 1
    return [*found, (last, slips, 0)]


def _longest(codes: Codes) -> int:
    """Steps of the longest segment that any window allows."""
    longest = run = 0
    for code in codes:
        run += 1
        longest = max(longest, run)
        if code in (_HELD, _WRITE):
            run = 0
    return max(1, longest)


@lru_cache(maxsize=4096)
def _fronts(codes: Codes, window: int) -> tuple[_Front, ...]:
    """What is under review at each step, the last step first."""
    begun = [_segments(codes, i, window) for i in range(len(codes))]
    early = [0, *accumulate(c in (_EARLY, _PERHAPS) for c in codes)]
    place: dict[tuple[int, int], int] = {}
    fronts = []
    for j in reversed(range(len(codes))):
        here = [
            (i, v, n, held)
            for i in range(j, max(-1, j - window), -1)
            for v, (n, _, held) in enumerate(begun[i])
            if i + n > j
        ]
        fronts.append(
            _Front(
                offset=np.array([j - i for i, *_ in here]),
                length=np.array([n for _, _, n, _ in here]),
                harms=np.array([early[i + n] - early[j] - held for i, _, n, held in here]),
                follows=np.array([place.get((i, v), -1) for i, v, *_ in here]),
                slips=np.array([s for _, s, _ in begun[j]]),
                held=np.array([e for *_, e in begun[j]]),
            )
        )
        place = {(i, v): at for at, (i, v, *_) in enumerate(here)}
    return tuple(fronts)


def _programme(codes: Codes, window: int, h: Hazards) -> tuple[Any, Any, Any]:
    """(success, damage, expected harms) of one pattern of steps."""
    per_call = _PERHAPS in codes
    shape = np.broadcast_shapes(h.shape, np.shape(h.hold_failure)) if per_call else h.shape
    after = _end(shape)
    under = after
    for j, front in zip(reversed(range(len(codes))), _fronts(codes, window), strict=True):
        going = front.follows >= 0
        behind = [np.broadcast_to(x, (len(going), *shape)).copy() for x in after]
        if np.any(going):
            for x, y in zip(behind, under, strict=True):
                x[going] = y[front.follows[going]]
        under = _step(codes[j] in (_WRITE, _EARLY, _PERHAPS), front, h, after, behind, len(shape))
        n = len(front.slips)
        if n == 1:
            after = _four(x[0] for x in under)
            continue
        k, e = (x.reshape(-1, *[1] * len(shape)) for x in (front.slips, front.held))
        weight = h.hold_failure**k * (1 - h.hold_failure) ** e
        after = _four((weight * x[:n]).sum(axis=0) for x in under)
    clean, _, damage, events = after
    return clean, damage, events


def _step(write: bool, front: _Front, h: Hazards, after: Array4, behind: Sequence[Any], n_axes: int) -> Array4:
    """(success from clean, from tainted, damage, expected harms) of every segment before one of its steps."""
    w, u, iota = h.weak, h.strong, h.irreversible

    def tall(x: Any) -> Any:
        return np.reshape(x, (len(x), *[1] * (n_axes - np.ndim(x) + 1), *np.shape(x)[1:]))

    d, f = (
        tall(x) if flat >= 2 else x
        for x, flat in zip(
            h.review(front.offset, front.length), (np.ndim(h.detection), np.ndim(h.false_reject)), strict=True
        )
    )
    right, wrong = (1 - w) * (1 - f), w * (1 - d)
    rejected = w * d + (1 - w) * f
    kept = _matrix(right, wrong, h.recovery_weak, h, write)
    own = _matrix(1 - u, u, h.recovery_strong, h, write)
    harms = tall(front.harms)
    thrown, stays = harms > 0, (1 - iota) ** harms
    fixed = [stays * (own[1][0] * after[0] + own[1][1] * after[1])]
    fixed.insert(0, np.where(thrown, fixed[0], own[0][0] * after[0] + own[0][1] * after[1]))
    bad = u if write else 0.0
    sure = np.where(thrown, 1.0, bad)
    slipped = wrong if write else 0.0
    return (
        rejected * fixed[0] + kept[0][0] * behind[0] + kept[0][1] * behind[1],
        rejected * fixed[1] + kept[1][0] * behind[0] + kept[1][1] * behind[1],
        rejected * (sure + (1 - sure) * after[2]) + (right + wrong - slipped) * behind[2] + slipped,
        rejected * (harms + bad + after[3]) + (right + wrong) * behind[3] + slipped,
    )


def _matrix(right: Any, wrong: Any, recovery: Any, h: Hazards, write: bool) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """From (clean, tainted) to (clean, tainted) by a step that is right or wrong with these joint probabilities."""
    stays = wrong - wrong * h.irreversible if write else wrong
    if h.immediate:
        return (right + stays * recovery, stays * (1 - recovery)), (0.0 * right, right + stays)
    return (right, stays), ((right + stays) * recovery, (right + stays) * (1 - recovery))


def _four(parts: Iterable[Any]) -> Array4:
    clean, tainted, damage, events = parts
    return clean, tainted, damage, events


def _end(shape: tuple[int, ...]) -> Array4:
    """Behind the last step: clean succeeds, tainted fails, nothing more is damaged."""
    return np.ones(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
