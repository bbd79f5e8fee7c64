"""Break-even maps: the ratio of a strategy to strong-only over two parameters, where it crosses 1, and what decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.strategies import STRATEGY_NAMES
from hwprofiles.errors import InputError, unknown_name
from simulator.axis import Axis, parse_axis
from simulator.case import prepare
from simulator.outcome import OBJECTIVES, why_unknown
from simulator.scenario import Scenario
from simulator.scenario_file import load_scenario, to_document
from simulator.surface import Surface, surface
from simulator.verdict import PLAIN_TERMS

Array = np.ndarray[Any, np.dtype[np.float64]]

MAPPED: tuple[str, ...] = tuple(o for o in OBJECTIVES if o != "success")
"""Objectives that a map can show."""

LOAD_KEYS: tuple[str, ...] = ("load.concurrency", "load.arrival_rate_per_s")
"""Axes that only a simulation knows."""

MOST_CELLS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """A map, rows along y: `ratio`, its 90 % band `low` and `high` (ny, nx), and the contour where the ratio is 1.

    `decided_by` names the term that decides each cell; `best_window` is there where windows were to be chosen from;
    `failed` has the place and reason of what could not be simulated (NaN there and around it).
    """

    scenario: Scenario
    x: Axis
    y: Axis
    objective: str
    strategy: str
    method: str
    ratio: Array
    low: Array
    high: Array
    decided_by: tuple[tuple[str, ...], ...]
    frontier: tuple[dict[str, float | None], ...]
    best_window: Array | None
    notes: tuple[str, ...]
    failed: tuple[dict[str, Any], ...] = ()

    @property
    def verdict(self) -> list[list[str]]:
        """wins / loses / cannot_tell per cell."""
        words = np.where(self.high < 1.0, "wins", np.where(self.low > 1.0, "loses", "cannot_tell"))
        return [[str(w) for w in row] for row in words]

    def document(self) -> dict[str, Any]:
        """The map as plain values, in the layout of the command line's JSON."""
        return {
            "objective": self.objective,
            "strategy": self.strategy,
            "x": {"name": self.x.name, "values": list(self.x.values)},
            "y": {"name": self.y.name, "values": list(self.y.values)},
            **self.cells(),
            "scenario": to_document(self.scenario),
        }

    def cells(self) -> dict[str, Any]:
        """What the map found, without what was asked; six digits, None where a cell has no ratio."""
        found: dict[str, Any] = {
            "method": self.method,
            "ratio": _plain(self.ratio),
            "low": _plain(self.low),
            "high": _plain(self.high),
            "verdict": self.verdict,
            "decided_by": [list(row) for row in self.decided_by],
            "frontier": [dict(point) for point in self.frontier],
        }
        if self.best_window is not None:
            found["best_window"] = self.best_window.astype(int).tolist()
        if self.method == "simulated":
            found["failed"] = [dict(cell) for cell in self.failed]
        return {**found, "notes": list(self.notes)}


def _plain(grid: Array) -> list[list[float | None]]:
    return [[float(f"{v:.6g}") if math.isfinite(v) else None for v in row] for row in grid.tolist()]


def breakeven(
    scenario: Scenario | str | Path,
    x: Axis | str,
    y: Axis | str,
    *,
    objective: str = "time",
    strategy: str = "spec_agent",
    windows: Sequence[int] = (),
    method: str = "expected",
    study: str | Path | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> BreakEven:
    """Map the ratio of a strategy to strong-only over two parameters.

    ratio = E[cost of strategy] / E[cost of strong_only]

    Parameters
    ----------
    x, y : Axis or `NAME=LO:HI:N`
        Two different parameters or dotted scenario keys.
    objective : time, traffic, flops, energy or money
    windows : whole numbers
        Take the best of these windows in every cell (`spec_agent` only); empty: the scenario's window.
    method : expected (idle engines) or simulated (at the scenario's load)
    study, workers, progress : as in `simulator.breakeven_simulated.simulated`; of a simulated map only

    Raises
    ------
    InputError
        An unknown name, a value out of range, an objective that cannot be known, or no cell that can be simulated.

    Limits
    ------
    Expected maps are of idle engines. See `simulator.surface` for what is interpolated, and `notes` for its error.
    """
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(scenario)
    x, y = (parse_axis(a) if isinstance(a, str) else a for a in (x, y))
    check_map(scenario, x, y, objective, strategy, windows, method)
    if method == "simulated":
        from simulator.breakeven_simulated import simulated

        kept: dict[str, Any] = {"study": study, "workers": workers, "progress": progress}
        (drawn,) = simulated(scenario, x, y, objective, strategy, **kept)
        if not np.isfinite(drawn.ratio).any():
            raise InputError(f"no cell could be simulated; the first: {drawn.failed[0]['reason']}")
        return drawn
    if study is not None or workers is not None:
        raise InputError("study and workers have an effect on simulated maps only")
    best = None
    if windows:
        found = [surface(scenario, x, y, objective, strategy, w) for w in windows]
        choice = np.argmin([s.mine for s in found], axis=0)
        best = np.array(windows)[choice]
        chosen = _choose(found, choice)
    else:
        chosen = surface(scenario, x, y, objective, strategy)
    central = np.log(chosen.mine / chosen.theirs)
    low, high = central + chosen.low - chosen.error, central + chosen.high + chosen.error
    return BreakEven(
        scenario=scenario,
        x=x,
        y=y,
        objective=objective,
        strategy=strategy,
        method=method,
        ratio=np.exp(central),
        low=np.exp(low),
        high=np.exp(high),
        decided_by=deciding(chosen),
        frontier=frontier(x, y, central, low, high),
        best_window=best,
        notes=_notes(chosen),
    )


def check_map(
    scenario: Scenario, x: Axis, y: Axis, objective: str, strategy: str, windows: Sequence[int], method: str
) -> None:
    """Raise `InputError` where a map cannot be as asked."""
    if objective not in MAPPED:
        raise unknown_name("objective", objective, MAPPED)
    if strategy not in STRATEGY_NAMES:
        raise unknown_name("strategy", strategy, STRATEGY_NAMES)
    if strategy == "strong_only":
        raise InputError("strategy: strong_only is what the others are compared with; name another")
    if method not in ("expected", "simulated"):
        raise unknown_name("method", method, ("expected", "simulated"))
    if len(x.values) * len(y.values) > MOST_CELLS:
        raise InputError(f"a map has at most {MOST_CELLS} cells, got {len(x.values)} x {len(y.values)}")
    if windows and (strategy != "spec_agent" or method != "expected"):
        raise InputError("windows: have an effect only on an expected map of spec_agent")
    if windows and "protocol.window" in (x.key, y.key):
        raise InputError("windows: window is an axis already; give one")
    if min(windows, default=1) < 1 or list(windows) != sorted(set(windows)):
        raise InputError(f"windows: whole numbers from 1, rising, got {', '.join(map(str, windows))}")
    loads = [axis.name for axis in (x, y) if axis.key in LOAD_KEYS]
    if method == "expected" and loads:
        raise InputError(f"axis {loads[0]}: has no effect on idle engines; use --method simulated")
    case = prepare(scenario)
    for name in (strategy, "strong_only"):
        why = why_unknown(case, name, objective)
        if why:
            raise InputError(f"objective {objective}: {why}")


def _choose(found: Sequence[Surface], choice: Array) -> Surface:
    """The surface that takes each cell from the window chosen there."""

    def pick(arrays: Sequence[Array]) -> Array:
        return np.asarray(np.take_along_axis(np.array(arrays), choice[None].astype(int), axis=0)[0])

    names = list(dict.fromkeys(name for s in found for name in s.terms))
    zero = np.zeros_like(found[0].mine)
    terms = {
        n: (pick([s.terms.get(n, (zero, zero))[0] for s in found]), found[0].terms.get(n, (zero, zero))[1])
        for n in names
    }
    first = found[0]
    return Surface(
        mine=pick([s.mine for s in found]),
        theirs=first.theirs,
        terms=terms,
        low=pick([s.low for s in found]),
        high=pick([s.high for s in found]),
        n_tasks=first.n_tasks,
        n_all_tasks=first.n_all_tasks,
        error=max(s.error for s in found),
    )


def deciding(s: Surface) -> tuple[tuple[str, ...], ...]:
    """The term that decides each cell: the largest saving where the ratio is below 1, else the largest payment."""
    names = list(s.terms)
    change = np.array([theirs - mine for mine, theirs in s.terms.values()])
    wins = s.mine < s.theirs
    which = np.where(wins, np.argmax(change, axis=0), np.argmin(change, axis=0))
    return tuple(tuple(names[i] for i in row) for row in which)


def frontier(x: Axis, y: Axis, central: Array, low: Array, high: Array) -> tuple[dict[str, float | None], ...]:
    """For each y, every x where the ratio crosses 1, and where its band does: `x`, `x_low`, `x_high`.

    `x_low` and `x_high` bound the crossing: where the high and the low end of the band cross 1, None where they do not
    within the axis.
    """
    at = np.array(x.values)
    out: list[dict[str, float | None]] = []
    for row, value in enumerate(y.values):
        roots = _roots(at, central[row])
        ends = _roots(at, low[row]) + _roots(at, high[row])
        for root in roots:
            below, above = [e for e in ends if e <= root], [e for e in ends if e >= root]
            x_low, x_high = max(below, default=None), min(above, default=None)
            out.append({"y": float(value), "x": root, "x_low": x_low, "x_high": x_high})
        if not roots:
            out.append({"y": float(value), "x": None, "x_low": None, "x_high": None})
    return tuple(out)


def _roots(at: Array, log_ratio: Array) -> list[float]:
    from scipy.interpolate import PchipInterpolator

    breaks = np.flatnonzero(np.diff(np.isfinite(log_ratio))) + 1
    runs = [r for r in np.split(np.arange(len(at)), breaks) if len(r) > 1 and np.isfinite(log_ratio[r[0]])]
    found = np.concatenate([[], *(PchipInterpolator(at[r], log_ratio[r]).roots(extrapolate=False) for r in runs)])
    return [float(r) for r in np.unique(found[np.isfinite(found)])]


def _notes(s: Surface) -> tuple[str, ...]:
    found = [f"interpolation between knots is off by at most about {np.expm1(s.error):.2%} of the ratio"]
    if s.n_tasks < s.n_all_tasks:
        found.append(f"{s.n_tasks} of {s.n_all_tasks} tasks, evenly spread over their length, stand for the workload")
    return tuple(found)


def in_words(m: BreakEven) -> tuple[str, ...]:
    """What a map says: how much of it wins, and which terms decide on each side."""
    wins, loses = float(np.mean(m.high < 1.0)), float(np.mean(m.low > 1.0))
    out = [f"{m.strategy} surely wins {m.objective} in {wins:.0%} of the map, surely loses in {loses:.0%}"]
    for side, word in ((m.ratio < 1.0, "is below 1, mostly by saving"), (m.ratio >= 1.0, "is above 1, mostly for")):
        if side.any():
            terms, counts = np.unique(np.array(m.decided_by, dtype=object)[side].astype(str), return_counts=True)
            term = str(terms[np.argmax(counts)])
            share = counts.max() / counts.sum()
            out.append(f"where the ratio {word} {PLAIN_TERMS.get(term, term)} ({share:.0%} of those cells)")
    return tuple(out)
