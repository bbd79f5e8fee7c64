"""One cell of a sweep: a scenario evaluated as `plan` does, without verdicts, as flat rows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from costmodel.trajectory import Workload
from hwprofiles.errors import InputError
from simulator.law import WorkloadLaw
from simulator.study import CellResult

METHODS = ("auto", "expected", "simulated")
PREDICTED = ("time_s", "time_alone_s", "traffic_bytes", "flops", "energy_j", "usd", "success", "strong_output_tokens")
QUANTILES = ("p50", "p95", "p99")
RATIOS = ("time", "traffic", "flops", "energy", "money", "success")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTask:
    """A cell to evaluate, as plain values that any process can be sent.

    Parameters
    ----------
    document : the scenario
    settings : what this cell changes
    method : `expected` (idle engines), `simulated` (at the load), `auto` (simulated where several agents run)
    held : a workload or law that lives in memory, for processes that did not make it
    """

    cell: int
    document: Mapping[str, Any]
    settings: Mapping[str, Any]
    method: str
    held: Workload | WorkloadLaw | None = None


def column_names() -> tuple[str, ...]:
    """Columns of a row, the cell and its settings apart."""
    bands = [f"{name}{end}" for name in (*PREDICTED, *(f"ratio_{r}" for r in RATIOS)) for end in ("", "_low", "_high")]
    return ("strategy", "method", *bands, *(f"time_s_{q}" for q in QUANTILES))


def attempt(task: CellTask) -> CellResult:
    """Evaluate a cell; whatever goes wrong becomes the reason of a failed one."""
    start = time.perf_counter()
    try:
        rows, reason = tuple(evaluate(task)), ""
    except InputError as error:
        rows, reason = (), str(error) or "bad input"
    except Exception as error:
        rows, reason = (), f"{type(error).__name__}: {error}"
    return CellResult(cell=task.cell, rows=rows, reason=reason, seconds=time.perf_counter() - start)


def evaluate(task: CellTask) -> list[dict[str, Any]]:
    """One row per strategy: predictions with their 90 % intervals, ratios to strong-only, simulated time quantiles.

    What cannot be known (traffic of a priced API, quantiles of an expectation) is None.

    Raises
    ------
    InputError
        The settings make no scenario, or one that cannot be built, or whose load no fleet of its size can serve.
    """
    from simulator.case import prepare
    from simulator.loaded import under_load
    from simulator.memory import hold
    from simulator.outcome import Evaluator, Outcome
    from simulator.plan import is_loaded, predictions_of
    from simulator.replication import replicate, summarise
    from simulator.sampling import draw_samples, inputs
    from simulator.scenario_file import from_document
    from simulator.sweep_design import apply
    from simulator.verdict import ratio

    if task.held is not None:
        hold(task.held)
    case = prepare(from_document(apply(task.document, task.settings), "cell"))
    s = case.scenario
    ev = Evaluator(case, draw_samples(inputs(case), s.run.samples, s.run.seed))
    outcomes: dict[str, Outcome] = {name: ev.outcome(name, s.protocol.window) for name in s.strategies}
    if task.method == "expected" and is_loaded(s):
        raise InputError("method = expected is for idle engines, and this cell has a load; unset it, or simulate")
    simulated = task.method == "simulated" or (task.method == "auto" and is_loaded(s))
    quantiles: dict[str, Any] = {}
    if simulated:
        runs = replicate(case, s.strategies)
        outcomes = under_load(case, ev, outcomes, runs=runs)
        quantiles = {name: summarise(found) for name, found in runs.items()}
    rows = []
    for name, o in outcomes.items():
        row: dict[str, Any] = {"strategy": name, "method": "simulated" if simulated else "expected"}
        for column, found in predictions_of(case, ev, o).items():
            row |= _band(column, found)
        for objective in RATIOS:
            row |= _band(f"ratio_{objective}", ratio(case, ev, o, outcomes["strong_only"], objective))
        for q in QUANTILES:
            found = quantiles[name][f"time_s_{q}"] if simulated else None
            row[f"time_s_{q}"] = None if found is None else found["value"]
        rows.append({column: row[column] for column in column_names()})
    return rows


def _band(name: str, found: Any) -> dict[str, float | None]:
    if found is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
