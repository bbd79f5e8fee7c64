"""Success of a strategy in a case: hazards of [quality] in closed form, or through the exact chain where needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.quality import step_hazard, success, success_along
from costmodel.strategies import FOLLOWS
from costmodel.task import Task
from simulator.case import Case
from simulator.sampling import QUALITY, sampled
from simulator.success_chain import chain_success, is_extended

Array = np.ndarray[Any, np.dtype[np.float64]]


def success_of(case: Case, strategy: str, samples: Mapping[str, Array] | None) -> Array:
    """Success by the homogeneous closed form, averaged over the tasks' lengths; routers by the authors of each step.

    Any key of [quality] beyond the hazards takes `simulator.success_chain` in its place.
    Where the scenario states acceptance, it says how often the strong model writes; hazards are those of [quality].
    """
    q = case.scenario.quality
    if is_extended(q):
        return chain_success(case, strategy, samples)
    values = [
        np.array([getattr(q, k).value]) if samples is None else sampled(samples, k, getattr(q, k).value)
        for k in QUALITY
    ]
    w, u, d, f, g = values
    if strategy == "task_router":
        return _by_task(case, w, u, g)
    if strategy == "step_router":
        return _by_step(case, w, u, g)
    given = case.scenario.protocol.acceptance
    a = None
    if given is not None:
        a = np.array([given.value]) if samples is None else sampled(samples, "acceptance", given.value)
    hazard = step_hazard(strategy, w, u, d, f, a)
    return _mean_over_lengths(case.tasks, hazard, g)


def _mean_over_lengths(tasks: tuple[Task, ...], hazard: Array, recovery: Array) -> Array:
    lengths, counts = np.unique([len(t.steps) for t in tasks], return_counts=True)
    return np.asarray(
        sum(c * success(hazard, recovery, int(n)) for n, c in zip(lengths, counts, strict=True)) / counts.sum()
    )


def _by_task(case: Case, weak: Array, strong: Array, recovery: Array) -> Array:
    """Every task is one model's: a mixture by share, or by length."""
    p = case.scenario.protocol
    if p.router_most_steps is None:
        both = [_mean_over_lengths(case.tasks, hazard, recovery) for hazard in (weak, strong)]
        return p.router_share * both[0] + (1.0 - p.router_share) * both[1]
    short = tuple(t for t in case.tasks if len(t.steps) <= p.router_most_steps)
    long = tuple(t for t in case.tasks if len(t.steps) > p.router_most_steps)
    sides = ((short, weak), (long, strong))
    parts = [len(tasks) * _mean_over_lengths(tasks, hazard, recovery) for tasks, hazard in sides if tasks]
    return np.asarray(sum(parts) / len(case.tasks))


def _by_step(case: Case, weak: Array, strong: Array, recovery: Array) -> Array:
    """Every step has the hazard of its author, drawn by what it follows."""
    shares = dict.fromkeys(FOLLOWS, 0.0) | dict(case.scenario.protocol.router_shares)
    total: Any = 0.0
    for task in case.tasks:
        follows = ("start", *(step.effect.value for step in task.steps[:-1]))
        hazards = [shares[name] * weak + (1.0 - shares[name]) * strong for name in follows]
        total = total + success_along(hazards, recovery)
    return np.asarray(total / len(case.tasks))
