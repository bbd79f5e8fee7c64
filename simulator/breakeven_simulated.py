"""Break-even maps under load: knots simulated, cells between them by how load moves the ratio of idle engines.

log ratio(cell) = log ratio of idle engines(cell) + load(cell), where load is simulated at knots (log ratio simulated
there minus that of idle engines) and interpolated between them, along one axis after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwprofiles.errors import InputError
from simulator.axis import Axis
from simulator.breakeven import LOAD_KEYS, BreakEven, frontier
from simulator.breakeven_cell import MapTask, attempt
from simulator.breakeven_knots import left_out, places_of, spread
from simulator.memory import held
from simulator.pool import Pool
from simulator.scenario import Scenario
from simulator.student import t_quantile
from simulator.study import CellResult, Study
from simulator.surface import surface
from simulator.sweep import head_of

Array = np.ndarray[Any, np.dtype[np.float64]]
Progress = Callable[[int, int], None]
"""Told the knots that are done, and all of them."""

MOST_SIMULATED = 10_000
"""Knots of a simulated map, over all its loads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Idle:
    """Log ratio of idle engines over the grid, and its band relative to it; zero where there is no expectation."""

    log_ratio: Array
    low: Array
    high: Array
    known: bool


def simulated(
    scenario: Scenario,
    x: Axis,
    y: Axis,
    objective: str,
    strategy: str,
    *,
    loads: Sequence[int] | None = None,
    study: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[BreakEven, ...]:
    """Simulate a map, or one per load.

    Parameters
    ----------
    loads : agents at once, one map each; None: the scenario's own load
    study : SQLite file that keeps every simulated knot, and from which the same maps go on; None: kept nowhere

    Raises
    ------
    InputError
        Too many knots, a study of something else, or processes that cannot be started.

    Limits
    ------
    The band is that of idle engines (factors, behaviour) and the noise of simulation (Student's t over paired seeds) in
    quadrature, plus what interpolation may add; without an expectation of the strategy it is noise alone.
    """
    knots = [places_of(a) for a in (y, x)]
    n_knots = len(knots[0]) * len(knots[1]) * len(loads or (0,))
    if n_knots > MOST_SIMULATED:
        raise InputError(f"a simulated map has at most {MOST_SIMULATED} simulated cells, this one {n_knots}")
    settings = [
        ({} if n is None else {"load.concurrency": n}) | {**y.setting(y.values[i]), **x.setting(x.values[j])}
        for n in (loads or (None,))
        for i in knots[0]
        for j in knots[1]
    ]
    found = _run(scenario, settings, (x, y, objective, strategy), study, workers, progress)
    idle = _idle(scenario, x, y, objective, strategy)
    each = len(knots[0]) * len(knots[1])
    return tuple(
        _map(
            scenario if n is None else scenario.with_(**{"load.concurrency": n}),
            (x, y, objective, strategy),
            found[k * each : (k + 1) * each],
            knots,
            idle,
        )
        for k, n in enumerate(loads or (None,))
    )


def _run(
    scenario: Scenario,
    settings: Sequence[Mapping[str, Any]],
    asked: tuple[Axis, Axis, str, str],
    study: str | Path | None,
    workers: int | None,
    progress: Progress | None,
) -> list[Mapping[str, Any]]:
    """A row per knot: what `breakeven_cell.attempt` found, or `failed` with the reason."""
    x, y, objective, strategy = asked
    design = {"kind": "breakeven", "x": [x.name, *x.values], "y": [y.name, *y.values]}
    head = head_of(scenario, design | {"objective": objective, "strategy": strategy}, "simulated")
    memory = held(scenario.workload.trace or scenario.workload.law or "")
    with Study(study if study is not None else ":memory:", head, settings) as kept:
        tasks = [
            MapTask(
                cell=cell,
                document=head["scenario"],
                settings=setting,
                objective=objective,
                strategy=strategy,
                held=memory,
            )
            for cell, setting in kept.pending()
        ]
        tell = progress or (lambda done, knots: None)
        tell(sum(kept.counts()), len(settings))
        if tasks:
            with Pool(attempt, workers) as pool:
                for task, found in pool.run(tasks):
                    kept.record(CellResult(cell=task.cell, reason=found) if isinstance(found, str) else found)
                    tell(sum(kept.counts()), len(settings))
        done = {row["cell"]: row for row in kept.rows()}
        failed = {row["cell"]: {"failed": row["reason"]} for row in kept.failed()}
    return [done.get(i) or failed[i] for i in range(len(settings))]


def _idle(scenario: Scenario, x: Axis, y: Axis, objective: str, strategy: str) -> _Idle:
    """The map of idle engines over the axes but for those of load, along which it does not change."""
    still = (
        Axis(name="run.seed", values=(float(scenario.run.seed),), whole=True),
        Axis(name="run.samples", values=(float(scenario.run.samples),), whole=True),
    )
    asked = [still[i] if a.key in LOAD_KEYS else a for i, a in enumerate((x, y))]
    shape = (len(y.values), len(x.values))
    try:
        s = surface(scenario, asked[0], asked[1], objective, strategy)
    except InputError:
        none = np.zeros(shape)
        return _Idle(log_ratio=none, low=none, high=none, known=False)
    full = [np.broadcast_to(v, shape) for v in (np.log(s.mine / s.theirs), s.low - s.error, s.high + s.error)]
    return _Idle(log_ratio=full[0], low=full[1], high=full[2], known=True)


def _map(
    scenario: Scenario,
    asked: tuple[Axis, Axis, str, str],
    rows: Sequence[Mapping[str, Any]],
    knots: Sequence[Array],
    idle: _Idle,
) -> BreakEven:
    x, y, objective, strategy = asked
    shape = (len(knots[0]), len(knots[1]))
    pairs = [_interval(row.get("log_ratios", ())) for row in rows]
    centre, half = (np.array([p[i] for p in pairs]).reshape(shape) for i in range(2))
    moved = centre - idle.log_ratio[np.ix_(*knots)]

    def everywhere(values: Array) -> Array:
        return spread(values, knots, (y, x))

    central = idle.log_ratio + everywhere(moved)
    noise = everywhere(half) if scenario.run.seeds > 1 else np.full(central.shape, np.inf)
    error = left_out(moved, knots, (y, x))
    failed = tuple(
        {"x": x.values[j], "y": y.values[i], "reason": row["failed"]}
        for (i, j), row in zip(((i, j) for i in knots[0] for j in knots[1]), rows, strict=True)
        if "failed" in row
    )
    low = central - np.hypot(noise, idle.low) - error
    high = central + np.hypot(noise, idle.high) + error
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
        decided_by=_decided(rows, shape, everywhere, central),
        frontier=frontier(x, y, central, low, high),
        best_window=None,
        notes=_notes((scenario.run.seeds, strategy), shape, central.shape, error, noise, idle.known),
        failed=failed,
    )


def _decided(
    rows: Sequence[Mapping[str, Any]], shape: tuple[int, int], everywhere: Callable[[Array], Array], central: Array
) -> tuple[tuple[str, ...], ...]:
    """The term with the largest gain where the strategy wins, the largest loss where not; "" where none is known."""
    names = sorted({name for row in rows for name in row.get("gains", ())})
    if not names:
        return tuple(("",) * central.shape[1] for _ in range(central.shape[0]))
    known = np.array(["gains" in row for row in rows]).reshape(shape)
    gains = np.array(
        [
            everywhere(
                np.where(known, np.array([row.get("gains", {}).get(n, 0.0) for row in rows]).reshape(shape), np.nan)
            )
            for n in names
        ]
    )
    filled = np.nan_to_num(gains)
    which = np.where(central < 0, np.argmax(filled, axis=0), np.argmin(filled, axis=0))
    bare = ~np.isfinite(central)
    return tuple(
        tuple("" if b else names[k] for k, b in zip(r, n, strict=True)) for r, n in zip(which, bare, strict=True)
    )


def _interval(log_ratios: Sequence[float]) -> tuple[float, float]:
    """Mean over paired seeds and half of its 90 % interval; no end to it from one seed."""
    if not log_ratios:
        return math.nan, math.nan
    values = np.array(log_ratios)
    if len(values) < 2:
        return float(values[0]), math.inf
    half = t_quantile(0.9, len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return float(values.mean()), half


def _notes(
    run: tuple[int, str], knots: tuple[int, int], cells: tuple[int, ...], error: float, noise: Array, known: bool
) -> tuple[str, ...]:
    (seeds, strategy), n, of = run, math.prod(knots), math.prod(cells)
    found = [f"{seeds} paired seed{'' if seeds == 1 else 's'} a simulated cell"]
    if n < of:
        found.append(
            f"{n} of {of} cells are simulated; what load changes is interpolated between them, which may be off by "
            f"about {np.expm1(error):.1%} of the ratio"
        )
    finite = noise[np.isfinite(noise)]
    if finite.size:
        found.append(f"noise of simulation is +-{np.expm1(np.median(finite)):.1%} of the ratio in the median cell")
    found.append(
        "bands hold that noise and the band of idle engines"
        if known
        else f"bands hold the noise of simulation alone: idle engines give no expectation of {strategy}"
    )
    return tuple(found)
