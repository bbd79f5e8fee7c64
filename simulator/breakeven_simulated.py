"""Break-even maps under load: every cell simulated, both strategies on common random numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from costmodel.cost import COLUMNS, PHASES
from costmodel.expect import Expected
from costmodel.protocol import Role
from hwprofiles.errors import InputError
from simulator.axis import Axis
from simulator.breakeven import BreakEven, frontier
from simulator.case import Case, prepare
from simulator.outcome import terms_of
from simulator.results import RunResult
from simulator.run import simulate
from simulator.scenario import Scenario

Array = np.ndarray[Any, np.dtype[np.float64]]

MOST_SIMULATED = 10_000


class _Cell(NamedTuple):
    """A simulated cell: log ratio per seed, the deciding term; `failed` says why there is none."""

    log_ratios: tuple[float, ...]
    decided_by: str
    failed: str


def simulated(scenario: Scenario, x: Axis, y: Axis, objective: str, strategy: str) -> BreakEven:
    """Simulate a map; the band of a cell is Student's t over paired seeds.

    Raises
    ------
    InputError
        Too many cells, or none that could be simulated.

    Limits
    ------
    The band holds the noise of simulation alone, not the uncertainty of factors and behaviour.
    """
    if len(x.values) * len(y.values) > MOST_SIMULATED:
        raise InputError(f"a simulated map has at most {MOST_SIMULATED} cells, got {len(x.values)} x {len(y.values)}")
    jobs = [(scenario, {**y.setting(b), **x.setting(a)}, objective, strategy) for b in y.values for a in x.values]
    cells = list(_run(jobs))
    if all(c.failed for c in cells):
        raise InputError(f"no cell could be simulated; the first: {cells[0].failed}")
    shape = (len(y.values), len(x.values))
    triples = [_band(c.log_ratios) for c in cells]
    central, low, high = (np.array([t[i] for t in triples]).reshape(shape) for i in range(3))
    return BreakEven(
        scenario=scenario,
        x=x,
        y=y,
        objective=objective,
        strategy=strategy,
        method="simulated",
        ratio=np.exp(central),
        low=np.exp(low),
        high=np.exp(high),
        decided_by=tuple(
            tuple(c.decided_by for c in cells[i * shape[1] : (i + 1) * shape[1]]) for i in range(shape[0])
        ),
        frontier=frontier(x, y, central, low, high),
        best_window=None,
        notes=_notes(scenario, cells),
    )


def _run(jobs: list[tuple[Scenario, dict[str, Any], str, str]]) -> Iterator[_Cell]:
    if len(jobs) < 8 or (os.cpu_count() or 1) < 2:
        yield from map(_cell, jobs)
        return
    with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=get_context("spawn")) as pool:
        yield from pool.map(_cell, jobs, chunksize=max(1, len(jobs) // 64))


def _cell(job: tuple[Scenario, dict[str, Any], str, str]) -> _Cell:
    scenario, change, objective, strategy = job
    try:
        case = prepare(scenario.with_(**change))
        first = case.scenario.run.seed
        runs = {
            name: [simulate(case, name, first + i) for i in range(case.scenario.run.seeds)]
            for name in (strategy, "strong_only")
        }
        terms = {name: [_terms(case, name, run, objective) for run in found] for name, found in runs.items()}
    except InputError as error:
        return _Cell((), "", str(error))
    totals = {name: np.array([sum(t.values()) for t in found]) for name, found in terms.items()}
    names = list(dict.fromkeys(n for found in terms.values() for t in found for n in t))
    change_of = {
        n: float(np.mean([b.get(n, 0.0) - a.get(n, 0.0) for a, b in zip(*terms.values(), strict=True)])) for n in names
    }
    wins = totals[strategy].mean() < totals["strong_only"].mean()
    pick = max if wins else min
    return _Cell(
        tuple(float(r) for r in np.log(totals[strategy] / totals["strong_only"])),
        pick(names, key=lambda n: change_of[n]),
        "",
    )


def _terms(case: Case, name: str, run: RunResult, objective: str) -> dict[str, float]:
    done = run.counted()
    if not len(done):
        raise InputError(f"{name}: no trajectory finished")
    phases = run.phases[run.phases["trajectory"].isin(done["trajectory"])]
    by_phase: Any = phases.groupby("phase")[list(COLUMNS)].sum().reindex(list(PHASES), fill_value=0.0)
    by_role: Any = phases.groupby("lane")["busy_s"].sum()
    n = len(done)
    e = Expected(
        name,
        by_phase.to_numpy()[None] / n,
        np.zeros((1, 0)),
        {role: np.array([float(by_role.get(str(role), 0.0)) / n]) for role in Role},
    )
    found = terms_of(case, name, e, objective, None)
    return {k: float(np.ravel(v)[0]) for k, v in found.items()}


def _band(log_ratios: tuple[float, ...]) -> tuple[float, float, float]:
    if not log_ratios:
        return math.nan, math.nan, math.nan
    values = np.array(log_ratios)
    if len(values) < 2:
        return float(values[0]), -math.inf, math.inf
    from scipy.stats import t

    half = float(t.ppf(0.95, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return float(values.mean()), float(values.mean()) - half, float(values.mean()) + half


def _notes(scenario: Scenario, cells: list[_Cell]) -> tuple[str, ...]:
    failed = [c.failed for c in cells if c.failed]
    found = [f"{scenario.run.seeds} paired seeds a cell; bands hold the noise of simulation alone"]
    if failed:
        found.append(f"{len(failed)} of {len(cells)} cells could not be simulated; the first: {failed[0]}")
    return tuple(found)
