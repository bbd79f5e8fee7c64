"""Success of simulated trajectories: errors drawn for every committed step given its fate, the chain to the end.

    P(wrong | accepted) = w (1 - d) / p,   P(wrong | written by the strong model) = u,   by the weak one: w

with p the acceptance that the run drew the verdict with. Verdicts of a run know no difficulty z, so a trajectory's z is
drawn given its verdicts, and the trajectory weighs what they were likelier by for tasks of all difficulties:

    p_z = expit(logit p + logit a(z) - logit a(1/2)),   weight = E_z[prod p_z / p] over verdicts (1 - p where rejected)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.acceptance import expit, logit
from costmodel.hazards import Hazards
from costmodel.pricing import Pricing
from costmodel.quality import implied_acceptance
from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from simulator.case import Case
from simulator.load import uniforms
from simulator.results import RunResult
from simulator.run import acceptance_shift
from simulator.success_chain import Odds, odds
from simulator.uncertain import Z95

Array = np.ndarray[Any, np.dtype[np.float64]]

SUCCESS_STREAM = 7
"""First spawn key of the uniforms behind errors: of one trajectory number, the same for all strategies and loads."""

_DRAWS = 3  # per step: wrong, mended, cannot be undone


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSuccess:
    """A mean with its 90 % interval (Wilson's) over `n` trajectories; `values` are theirs, 0 or their weight."""

    value: float
    low: float
    high: float
    n: int
    values: Array

    def to_dict(self) -> dict[str, float]:
        """The numbers, for JSON."""
        return {"value": self.value, "low": self.low, "high": self.high, "n": self.n}


@dataclass(frozen=True, slots=True)
class _Step:
    """A committed or rejected step as the records tell it; `offset` and `length` are those of its drafted segment."""

    step: int
    author: str
    fate: str
    effect: Effect
    offset: int
    length: int


def drawn_success(case: Case, runs: Sequence[RunResult]) -> DrawnSuccess:
    """Success over the counted trajectories of runs of one strategy, each of its own seed.

    Raises
    ------
    InputError
        No counted trajectory, runs without step records, or holds that fail, which a simulated run has none of.

    Limits
    ------
    Its interval is of the draws alone; bands of [quality] are in the plan. Where acceptance depends on the position or
    the effect, what it lacks or has beyond the mean is put down to right steps. Steps that the pipelined strategy
    drafts ahead have their offset in the round that drafted them.
    """
    q = case.scenario.quality
    if q.hold_failure:
        raise InputError("quality.hold_failure: the holds of a simulated run work; `plan` and `risk` know of failures")
    longest = max(len(t.steps) for t in case.tasks)
    o = odds(case, None, case.scenario.protocol.window, n_steps=longest)
    shift = acceptance_shift(case, Pricing(case.sites))
    lives: list[tuple[float, bool]] = []
    for run in runs:
        seed = int(run.meta["seed"])
        lives += [_lived(case, o, shift, steps, seed, number) for number, steps in _trajectories(run)]
    if not lives:
        raise InputError("no counted trajectory has step records, so there is no success to draw")
    weight, clean = (np.array(x, dtype=float) for x in zip(*lives, strict=True))
    values = weight * clean
    low, high = _wilson(float(values.mean()), float(weight.sum() ** 2 / (weight**2).sum()))
    return DrawnSuccess(value=float(values.mean()), low=low, high=high, n=len(lives), values=values)


def _wilson(mean: float, n: float) -> tuple[float, float]:
    """The 90 % interval of a share of `n` cases, widened to hold a weighted mean beyond 1."""
    p = min(1.0, mean)
    middle = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * (p * (1 - p) / n + Z95**2 / (4 * n * n)) ** 0.5
    return max(0.0, middle - half), max(mean, min(1.0, middle + half))


def _trajectories(run: RunResult) -> Iterator[tuple[int, list[_Step]]]:
    """Counted, finished trajectories with the steps that were committed or rejected, in order."""
    heads, rows = run.columns("trajectories"), run.columns("steps")
    wanted = {
        int(t)
        for t, counted, status in zip(heads["trajectory"], heads["counted"], heads["status"], strict=True)
        if counted and status == "finished"
    }
    keys = ("trajectory", "round", "step", "author", "fate", "effect")
    by_number: dict[int, list[tuple[int, int, str, str, str]]] = {}
    for number, *row in zip(*(rows[k] for k in keys), strict=True):
        if int(number) in wanted:
            by_number.setdefault(int(number), []).append((int(row[0]), int(row[1]), row[2], row[3], row[4]))
    for number in sorted(by_number):
        yield number, list(_in_order(by_number[number]))


def _in_order(rows: list[tuple[int, int, str, str, str]]) -> Iterator[_Step]:
    first: dict[int, int] = {}
    drafted: dict[int, int] = {}
    for round_, step, _, fate, _ in rows:
        if fate in ("accepted", "discarded"):
            first[round_] = min(step, first.get(round_, step))
            drafted[round_] = drafted.get(round_, 0) + 1
    for round_, step, author, fate, effect in sorted(rows, key=lambda r: r[1]):
        if fate in ("written", "accepted", "repaired"):
            start = first.get(round_, step)
            yield _Step(step, author, fate, Effect(effect), step - start, drafted.get(round_, 1))


def _lived(case: Case, o: Odds, shift: float, steps: list[_Step], seed: int, number: int) -> tuple[float, bool]:
    """A trajectory's weight, and whether it ends clean."""
    h = o.hazards
    u = uniforms(seed, number, 1 + _DRAWS * (1 + max(s.step for s in steps)), stream=SUCCESS_STREAM)
    likely = o.weight.copy()
    kept: dict[int, float] = {}
    for s in steps:
        if s.fate != "written":
            kept[s.step] = float(expit(shift + case.law.offset(s.offset, s.effect)))
            likely *= _tilt(h, o, s, kept[s.step])
    weight = float(likely.sum())
    z = min(int(np.searchsorted(np.cumsum(likely), u[0] * weight)), len(likely) - 1)
    clean = True
    for s in steps:
        wrong_u, mended_u, undone_u = u[1 + _DRAWS * s.step : 1 + _DRAWS * (s.step + 1)]
        weak = s.author == "weak"
        g = float(_at(h.recovery_weak if weak else h.recovery_strong, z))
        wrong = wrong_u < _wrong(h, o, s, z, kept)
        if wrong and s.effect is Effect.WRITE and undone_u < h.irreversible:
            return weight, False
        mended = mended_u < g
        clean = (not wrong or (h.immediate and mended)) if clean else (mended and not h.immediate)
    return weight, clean


def _wrong(h: Hazards, o: Odds, s: _Step, z: int, kept: dict[int, float]) -> float:
    """Probability that a committed step is wrong, given its fate and the difficulty."""
    if s.fate != "accepted":
        return float(_at(h.weak if s.author == "weak" else h.strong, z))
    d = _detection(h, s)
    p_z = kept[s.step] * float(_at(_tilt(h, o, s, kept[s.step]), z))
    return min(1.0, float(_at(h.weak, z)) * (1 - float(_at(d, z))) / p_z) if p_z > 0 else 0.0


def _tilt(h: Hazards, o: Odds, s: _Step, p: float) -> Array:
    """p_z / p of an accepted step, (1 - p_z) / (1 - p) of a rejected one, at every difficulty."""
    if len(o.weight) == 1:
        return np.ones(1)
    tilt = _logits(h, s) - _logits(o.middle, s)
    p_z = expit(logit(p) + tilt)
    return np.asarray(p_z / p if s.fate == "accepted" else (1 - p_z) / (1 - p))


def _logits(h: Hazards, s: _Step) -> Array:
    """Logit of the acceptance that the hazards imply where the step stands."""
    d, f = (np.ravel(x) for x in h.review(np.array([s.offset]), np.array([s.length])))
    a = np.clip(implied_acceptance(h.weak, d, f), 1e-12, 1 - 1e-12)
    return np.asarray(np.log(a / (1 - a)))


def _detection(h: Hazards, s: _Step) -> Array:
    return np.ravel(h.review(np.array([s.offset]), np.array([s.length]))[0])


def _at(values: Any, z: int) -> Any:
    x = np.ravel(values)
    return x[0] if len(x) == 1 else x[z]
