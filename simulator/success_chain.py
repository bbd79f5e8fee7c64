"""Success and damage of a strategy in a case by the exact chain, averaged over tasks and their difficulty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from costmodel.chain import Fate, StepRisk, authored, reviewed_mean
from costmodel.hazards import Hazards, at_difficulty, difficulties
from costmodel.strategies import FOLLOWS
from costmodel.trajectory import Effect
from simulator.case import Case
from simulator.review_curves import curves
from simulator.sampling import sampled
from simulator.scenario_goals import HAZARDS, Quality

Array = np.ndarray[Any, np.dtype[np.float64]]
Steps = tuple[StepRisk, ...]

STRONG_WRITES = ("strong_only", "token_speculation", "step_speculation")
"""Strategies whose every step the strong model writes."""

_NODES_OF_BANDS = 12
"""Difficulties of each sampled point of a band; central values take all that make them exact."""
_KNOWN: dict[tuple[Any, ...], Array] = {}
"""Successes of late: a plan asks for each of them several times."""
_MOST_KNOWN = 64
_TRIED = StepRisk(Effect.READ)
_WRITES = (Effect.WRITE, Effect.UNKNOWN)


def is_extended(q: Quality) -> bool:
    """Whether the hazards alone, and with them the closed form, do not tell the whole story."""
    usual = Quality(**{name: getattr(q, name) for name in HAZARDS})
    return replace(usual, hold_failure_sticky=q.hold_failure_sticky) != q


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """Hazards at points of difficulty (n * n_nodes,), of n samples, averaged by `weight` (n_nodes,).

    `middle` are those of tasks of mean difficulty, at as many points.
    """

    hazards: Hazards
    middle: Hazards
    weight: Array
    difficulty: Array

    def mean(self, values: Any) -> Array:
        """Average over difficulty: (..., n)."""
        n_nodes = len(self.weight)
        x = np.broadcast_to(values, (*np.shape(values)[:-1], len(self.difficulty)))
        return np.asarray(x.reshape(*x.shape[:-1], -1, n_nodes) @ self.weight)

    def fate(self, found: Fate) -> Fate:
        """The same of a fate."""
        return Fate(*(self.mean(x) for x in (found.success, found.damage, found.events)))


def odds(
    case: Case,
    samples: Mapping[str, Array] | None,
    window: int,
    *,
    n_steps: int,
    hold_failure: Any = None,
) -> Odds:
    """Hazards of [quality], central or sampled, at the nodes of the tasks' difficulty.

    A stated acceptance a says how often the strong model writes: false rejection is then
    1 - (a - w (1 - d)) / (1 - w), from 0 to 1.

    Parameters
    ----------
    window : longest segment
    n_steps : longest task
    hold_failure : (n_rates, 1) or None
        In place of the scenario's.
    """
    q = case.scenario.quality

    def drawn(name: str) -> Array:
        value = getattr(q, name).value
        return np.array([value]) if samples is None else sampled(samples, name, value)

    w, u, d, f = (drawn(name) for name in HAZARDS[:4])
    by_author = [drawn(n if getattr(q, n) is not None else "recovery") for n in ("recovery_weak", "recovery_strong")]
    given = case.scenario.protocol.acceptance
    if given is not None:
        a = np.array([given.value]) if samples is None else sampled(samples, "acceptance", given.value)
        f = np.clip(1 - (a - w * (1 - d)) / np.maximum(1 - w, 1e-12), 0.0, 1.0)
    if q.heterogeneity:
        w, u = np.minimum(w, 0.5), np.minimum(u, 0.5)
    nodes = n_steps if samples is None else min(n_steps, (2 * _NODES_OF_BANDS - 1) // 3)
    z, weight = difficulties(q.heterogeneity, nodes)
    d, f = curves(q, d, f, window)
    w, u, d, f, g_weak, g_strong = (np.repeat(x, len(z), axis=0) for x in (w, u, d, f, *by_author))
    difficulty = np.tile(z, len(w) // len(z))
    mean = Hazards(
        weak=w,
        strong=u,
        detection=d,
        false_reject=f,
        recovery_weak=g_weak,
        recovery_strong=g_strong,
        irreversible=q.irreversible,
        hold_failure=q.hold_failure if hold_failure is None else hold_failure,
        sticky=q.hold_failure_sticky,
        immediate=q.recovery_mode == "immediate",
    )
    moved = at_difficulty(mean, difficulty, q.reviewer_correlation)
    return Odds(hazards=moved, middle=mean, weight=weight, difficulty=difficulty)


def step_risks(case: Case) -> tuple[Steps, ...]:
    """Effects of the tasks' steps, with the tool that a write calls: the first, of several; unknown counts as write."""
    recorded = {t.id: t for t in case.workload.trajectories}
    found = []
    for task in case.tasks:
        seen = recorded[task.id].steps if task.id in recorded else ()
        same = [s.effect for s in seen] == [s.effect for s in task.steps]
        tools = [next((t.name for t in s.tools if t.effect in _WRITES), "write") for s in seen]
        names = tools if same else ["write"] * len(task.steps)
        effects = [Effect.WRITE if s.effect in _WRITES else s.effect for s in task.steps]
        found.append(tuple(map(StepRisk, effects, names)))
    return tuple(found)


def fate_of(case: Case, strategy: str, steps: Sequence[Steps], h: Hazards, window: int) -> Fate:
    """The mean fate of tasks under a strategy: a value per point of `h`.

    Limits
    ------
    `spec_agent_pipelined` and `spec_agent_adaptive` count as `spec_agent` at the scenario's window. The former drafts
    up to a second window ahead of a review, so where holds fail its damage lies between those of one window and two.
    """
    if strategy in STRONG_WRITES:
        return _authored(steps, [[0.0] * len(s) for s in steps], h)
    if strategy == "weak_only":
        return _authored(steps, [[1.0] * len(s) for s in steps], h)
    if strategy == "task_router":
        return _task_router(case, steps, h)
    if strategy == "step_router":
        shares = dict.fromkeys(FOLLOWS, 0.0) | dict(case.scenario.protocol.router_shares)
        follows = [("start", *(s.effect.value for s in task.steps[:-1])) for task in case.tasks]
        return _authored(steps, [[shares[x] for x in task] for task in follows], h)
    return reviewed_mean(steps, 1 if strategy == "step_verification" else window, h)


def chain_success(case: Case, strategy: str, samples: Mapping[str, Array] | None) -> Array:
    """Success by the chain: (n_samples,), or (1,) at the central values."""
    window = case.scenario.protocol.window
    o = odds(case, samples, window, n_steps=max(len(t.steps) for t in case.tasks))
    h = o.hazards
    steps = step_risks(case)
    if h.is_flat and not np.any(h.hold_failure):
        window = 1  # success is then alike for all windows
        if not h.irreversible and strategy != "step_router":
            steps = tuple((_TRIED,) * len(s) for s in steps)
    if strategy.endswith("router"):
        return o.mean(fate_of(case, strategy, steps, h, window).success)
    key = (strategy, window, steps, _content(h))
    if key not in _KNOWN:
        while len(_KNOWN) >= _MOST_KNOWN:
            del _KNOWN[next(iter(_KNOWN))]
        _KNOWN[key] = o.mean(fate_of(case, strategy, steps, h, window).success)
    return _KNOWN[key].copy()


def _content(h: Hazards) -> tuple[Any, ...]:
    """What tells hazards apart."""
    arrays = [np.ascontiguousarray(getattr(h, f.name)) for f in fields(h)]
    return tuple((x.shape, x.tobytes()) for x in arrays)


def _authored(steps: Sequence[Steps], shares: Sequence[Sequence[float]], h: Hazards) -> Fate:
    """Mean over tasks written without review; tasks alike are computed once."""
    plain = [tuple(s if s.effect is Effect.WRITE else _TRIED for s in task) for task in steps]
    alike = Counter((tuple(s.effect for s in task), tuple(mine)) for task, mine in zip(plain, shares, strict=True))
    total: list[Any] = [0.0, 0.0, 0.0]
    for (effects, mine), n in alike.items():
        fate = authored([StepRisk(e) for e in effects], mine, h)
        parts = (fate.success, fate.damage, fate.events)
        total = [x + n / len(steps) * y for x, y in zip(total, parts, strict=True)]
    return Fate(*total)


def _task_router(case: Case, steps: Sequence[Steps], h: Hazards) -> Fate:
    """A mixture by share whatever the task, or each task the model's that its length says."""
    p = case.scenario.protocol
    if p.router_most_steps is not None:
        most = p.router_most_steps
        return _authored(steps, [[float(len(s) <= most)] * len(s) for s in steps], h)
    weak, strong = (_authored(steps, [[x] * len(s) for s in steps], h) for x in (1.0, 0.0))
    share = p.router_share
    return Fate(*(share * getattr(weak, k) + (1 - share) * getattr(strong, k) for k in ("success", "damage", "events")))
