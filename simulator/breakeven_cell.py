"""One simulated cell of a map: a strategy and strong-only on common random numbers, as plain values."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodel.cost import COLUMNS, PHASES
from costmodel.pricing import Pricing
from costmodel.protocol import Role
from costmodel.tape import Expected
from costmodel.trajectory import Workload
from hwprofiles.errors import InputError
from simulator.case import Case, prepare
from simulator.law import WorkloadLaw
from simulator.memory import hold
from simulator.outcome import terms_of
from simulator.results import RunResult
from simulator.run import acceptance_shift, simulate
from simulator.scenario_file import from_document
from simulator.study import CellResult
from simulator.sweep_design import apply

LEAST, PER_AGENT = 20, 0.25
"""Counted trajectories of each run of a cell, where the scenario does not say: a quarter of the agents, at least 20."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapTask:
    """A cell to simulate, as plain values that any process can be sent.

    Parameters
    ----------
    document : the scenario
    settings : what this cell changes
    held : a workload or law that lives in memory, for processes that did not make it
    """

    cell: int
    document: Mapping[str, Any]
    settings: Mapping[str, Any]
    objective: str
    strategy: str
    held: Workload | WorkloadLaw | None = None


def attempt(task: MapTask) -> CellResult:
    """Simulate a cell; whatever goes wrong becomes the reason of a failed one."""
    start = time.perf_counter()
    rows: tuple[dict[str, Any], ...] = ()
    reason = ""
    try:
        rows = (_simulated(task),)
    except InputError as error:
        reason = str(error) or "bad input"
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    return CellResult(cell=task.cell, rows=rows, reason=reason, seconds=time.perf_counter() - start)


def _simulated(task: MapTask) -> dict[str, Any]:
    """`log_ratios`, one per seed, and `gains`: what each term saves, over all that strong-only costs (first seed)."""
    if task.held is not None:
        hold(task.held)
    case = _short(prepare(from_document(apply(task.document, task.settings), "cell")))
    run, pricing = case.scenario.run, Pricing(case.sites)
    shift = acceptance_shift(case, pricing)
    logs, gains = [], {}
    for seed in range(run.seed, run.seed + run.seeds):
        details = seed == run.seed
        mine, theirs = (
            _terms(
                case,
                name,
                simulate(case, name, seed, details=details or _by_role(case), pricing=pricing, shift=shift),
                task.objective,
                phases=details,
            )
            for name in (task.strategy, "strong_only")
        )
        totals = sum(mine.values()), sum(theirs.values())
        if not min(totals) > 0:
            raise InputError("the objective is zero for strong_only or for the strategy, so there is no ratio to map")
        logs.append(float(np.log(totals[0] / totals[1])))
        if details:
            gains = {n: (theirs.get(n, 0.0) - mine.get(n, 0.0)) / totals[1] for n in {**mine, **theirs}}
    return {"log_ratios": logs, "gains": gains}


def _short(case: Case) -> Case:
    load = case.scenario.load
    if load.n_trajectories is not None or case.arrivals is not None:
        return case
    n = max(LEAST, round(PER_AGENT * (load.concurrency or 1)))
    return replace(case, scenario=replace(case.scenario, load=replace(load, n_trajectories=n)))


def _by_role(case: Case) -> bool:
    """Whether the objective may need each engine's busy time, which only detailed runs have."""
    return case.scenario.objective.money == "shared"


def _terms(case: Case, name: str, run: RunResult, objective: str, *, phases: bool) -> dict[str, float]:
    """The objective's terms per trajectory; all phases are taken as one where `phases` is false."""
    mean = run.summary()["mean"]
    if not run.summary()["n_counted"]:
        raise InputError(f"{name}: no trajectory finished in the simulated time; raise run.horizon_s or lower the load")
    cells = np.zeros((len(PHASES), len(COLUMNS)))
    cells[0] = [mean[c] for c in COLUMNS]
    busy = np.zeros(len(Role))
    if phases or _by_role(case):
        done = run.counted()
        frame = run.phases[run.phases["trajectory"].isin(done["trajectory"])]
        by_role: Any = frame.groupby("lane")["busy_s"].sum()
        busy = np.array([float(by_role.get(str(role), 0.0)) for role in Role]) / len(done)
        if phases:
            by_phase: Any = frame.groupby("phase")[list(COLUMNS)].sum().reindex(list(PHASES), fill_value=0.0)
            cells = by_phase.to_numpy() / len(done)
    e = Expected(name, cells[None], np.zeros((1, 0)), dict(zip(Role, busy[:, None], strict=True)))
    return {k: float(np.ravel(v)[0]) for k, v in terms_of(case, name, e, objective, None).items()}
