"""Outcomes without an expectation: a strategy that looks at the clock is walked with drawn verdicts on idle engines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.draws import draws_of
from costmodel.oracle import Oracle
from costmodel.pricing import WALL, Pricing
from costmodel.protocol import Role, Strategy
from costmodel.tape import Array, Expected
from costmodel.walk import Walk, walk
from simulator.agents import Verdicts, drawn_verdicts
from simulator.case import Case
from simulator.playing import match_of

PATHS = 200
"""Paths walked at least; every task equally often."""

_NOT_ENGINE = ("host", "queue", "network")


@dataclass(frozen=True, slots=True)
class Walked:
    """Mean over walked paths, and the relative standard error of its time."""

    mean: Expected
    relative_error: float


def bound_s(case: Case, most: int, shift: float, pricing: Pricing) -> float:
    """Mean time with the best windows in hindsight, 0 .. `most`, over the paths that `walked` walks.

    No rule for windows is faster on their draws (`costmodel.oracle`).
    """
    verdicts = _verdicts(case, shift)
    oracles = [Oracle(task, most, pricing, case.sizes) for task in case.tasks]
    times = []
    for number in range(_n_paths(case)):
        at = number % len(case.tasks)
        times.append(oracles[at].wall_s(draws_of(verdicts(number, case.tasks[at])).verdict))
    return float(np.mean(times))


def walked(case: Case, strategy: Strategy, shift: float, pricing: Pricing) -> Walked:
    """Walk every task equally often, `PATHS` paths or more, on the scenario's seed: the draws of a simulation."""
    n = _n_paths(case)
    verdicts = _verdicts(case, shift)
    paths = []
    for number in range(n):
        task = case.tasks[number % len(case.tasks)]
        paths.append(walk(task, strategy, verdicts(number, task), pricing, case.sizes))
    ledgers = np.array([path.ledger for path in paths])
    times = ledgers[:, :, WALL].sum(axis=1)
    busy = {role: np.array([float(np.mean([_busy_s(path, role) for path in paths]))]) for role in Role}
    counts = np.mean([path.counts for path in paths], axis=0)
    mean = Expected(strategy.name, ledgers.mean(axis=0)[None], counts[None], busy)
    return Walked(mean, float(times.std(ddof=1) / math.sqrt(n) / times.mean()))


def _n_paths(case: Case) -> int:
    return math.ceil(PATHS / len(case.tasks)) * len(case.tasks)


def _verdicts(case: Case, shift: float) -> Verdicts:
    return drawn_verdicts(case.law, shift, case.scenario.run.seed, match_of(case.scenario).value)


def _busy_s(path: Walk, role: Role) -> float:
    """Engine seconds of a role on a path that does one thing at a time."""
    return sum(e.end_s - e.start_s for e in path.events if e.lane == role.value and e.phase not in _NOT_ENGINE)


def spread_like(found: Walked, like: Sequence[tuple[Expected, Expected]], seed: int) -> Expected:
    """Samples of a walked mean: each cell spread as the first of `like` (central, sampled) that has it.

    Time is spread besides by the standard error over paths.
    """
    mean = found.mean
    n = len(like[0][1].ledger)
    ledger, busy = np.ones((n, *mean.ledger.shape[1:])), {role: np.ones(n) for role in Role}
    for central, sampled in reversed(like):
        ledger = _relative(central.ledger[0], sampled.ledger, ledger)
        busy = {r: _relative(central.busy_s[r][0], sampled.busy_s[r], busy[r]) for r in Role}
    ledger[:, :, WALL] *= np.exp(found.relative_error * np.random.default_rng([seed, 2]).standard_normal(n))[:, None]
    return Expected(
        mean.strategy,
        mean.ledger * ledger,
        np.repeat(mean.counts, n, axis=0),
        {role: mean.busy_s[role] * busy[role] for role in Role},
    )


def _relative(central: Array, sampled: Array, otherwise: Array) -> Array:
    known = central > 0
    return np.where(known, sampled / np.where(known, central, 1.0), otherwise)
