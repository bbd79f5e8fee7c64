"""Critical values: where a ratio to strong-only crosses 1 in each main unknown, the others at their central values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.expect import expect
from costmodel.pricing import Pricing
from costmodel.tape import Expected
from simulator.case import Case
from simulator.outcome import Evaluator, Outcome, objective_terms, tape_of
from simulator.sampling import STRUCTURAL
from simulator.success import success_of

Array = np.ndarray[Any, np.dtype[np.float64]]

KNOTS: Mapping[str, tuple[float, ...]] = {
    "verdict_tokens": (1.0, 60.0, 240.0),
    "verbosity": (0.5, 1.0, 4.0),
    "thinking_tokens": (0.0, 60.0, 600.0, 2400.0),
}
"""Values between which, and the band's own, a critical value is sought: costs are close to quadratic in
tokens there, and to linear in verbosity above 1."""


def critical_values(case: Case, ev: Evaluator, o: Outcome, base: Outcome, objective: str) -> dict[str, float | None]:
    """Where the ratio crosses 1 in each main unknown, others central; None: nowhere in its range.

    Limits
    ------
    Under load, the change of the ratio that load brings is taken from the central values for all others too.
    """
    if objective == "success":
        return {"detection": _critical_detection(case, o.strategy)}
    load = _load_change(case, ev, o, base, objective)
    found = {"acceptance": _critical_acceptance(case, ev, o, base, objective, load)}
    for key in STRUCTURAL:
        if key == "thinking_tokens" and not (case.scenario.strong.thinking or case.scenario.weak.thinking):
            continue
        found[key] = _critical_tokens(case, ev, o, base, objective, key, load)
    if case.scenario.link is not None and objective == "time":
        found["rtt_s"] = _critical_rtt(case, ev, o, base, load)
    return found


def _load_change(case: Case, ev: Evaluator, o: Outcome, base: Outcome, objective: str) -> float:
    """Central ratio at the scenario's load over that on idle engines."""

    def change(x: Outcome) -> float:
        loaded, idle = (value_of(case, ev, x, e, objective)[0] for e in (x.central, x.idle_central))
        return float(loaded / idle)

    return change(o) / change(base)


def value_of(case: Case, ev: Evaluator, o: Outcome, e: Expected, objective: str) -> Array:
    """Objective of an outcome whose central expectation is replaced (one or many values)."""
    return np.asarray(sum(objective_terms(case, o.at(e), objective, central=False, samples={}).values()))


def crossing(x: Array, y: Array) -> float | None:
    """First x where the piecewise-linear y changes sign; None where it never does."""
    i = _sign_change(y)
    if i is None:
        return None
    return float(x[i] if y[i] == 0 else x[i] + (x[i + 1] - x[i]) * y[i] / (y[i] - y[i + 1]))


def curved_crossing(x: Array, y: Array) -> float | None:
    """The same with the parabola through three neighbouring points in place of the chord."""
    i = _sign_change(y)
    if i is None or y[i] == 0 or len(x) < 3:
        return crossing(x, y)
    first = min(max(0, i - 1 if i + 2 == len(x) else i), len(x) - 3)
    near = slice(first, first + 3)
    roots = np.roots(np.polyfit(x[near], y[near], 2))
    inside = [float(r.real) for r in roots if abs(r.imag) < 1e-9 and x[i] <= r.real <= x[i + 1]]
    return inside[0] if len(inside) == 1 else crossing(x, y)


def _sign_change(y: Array) -> int | None:
    """Index of the first point that is zero, or after which y has the other sign; None where there is none."""
    signs = np.sign(y)
    for i in range(len(y) - 1):
        if signs[i] == 0 or signs[i] * signs[i + 1] < 0:
            return i
    return None


def _critical_acceptance(
    case: Case, ev: Evaluator, o: Outcome, base: Outcome, objective: str, load: float
) -> float | None:
    theirs = float(value_of(case, ev, base, base.idle_central, objective)[0])

    def excess(at: Array) -> Array:
        return load * value_of(case, ev, o, ev.at_acceptance(o, at), objective) / theirs - 1.0

    grid = np.linspace(0.02, 0.998, 33)
    rough = crossing(grid, excess(grid))
    if rough is None:
        return None
    fine = np.clip(np.linspace(rough - 0.02, rough + 0.02, 33), 1e-4, 1 - 1e-6)
    return crossing(fine, excess(fine)) or rough


def _critical_tokens(
    case: Case, ev: Evaluator, o: Outcome, base: Outcome, objective: str, key: str, load: float
) -> float | None:
    band = ev.token_input(key)
    knots = sorted({*KNOTS[key], *((band.low, band.value, band.high) if band is not None else ())})

    def at(x: Outcome, v: float) -> float:
        return float(value_of(case, ev, x, ev.with_tokens(x.strategy, x.window, key, v), objective)[0])

    def central(x: Outcome) -> float:
        """All tasks over the few that `at` evaluates, at the scenario's own values."""
        few = value_of(case, ev, x, ev.few_tasks(x.strategy, x.window), objective)
        return float((value_of(case, ev, x, x.idle_central, objective) / few)[0])

    scale = load * central(o) / central(base)
    fixed = None if key == "thinking_tokens" else at(base, knots[0])
    excess = [scale * at(o, v) / (fixed if fixed is not None else at(base, v)) - 1.0 for v in knots]
    find = crossing if key == "verbosity" else curved_crossing  # drafts never shorter than what is visible: a kink
    return find(np.array(knots), np.array(excess))


def _critical_rtt(case: Case, ev: Evaluator, o: Outcome, base: Outcome, load: float) -> float | None:

    def at(x: Outcome, rtt_s: float) -> float:
        there = Pricing(case.sites, {"link.rtt_s": rtt_s})
        return float(expect(tape_of(x), ev.shift, there, ev.match).column("wall_s")[0])

    ends = np.array([0.0, 10.0])
    return crossing(ends, np.array([load * at(o, r) - at(base, r) for r in ends]))


def _critical_detection(case: Case, strategy: str) -> float | None:
    bar = (1.0 - case.scenario.objective.success_drop_max) * float(success_of(case, "strong_only", None)[0])
    grid = np.linspace(0.0, 1.0, 101)
    return crossing(grid, success_of(case, strategy, {"detection": grid}) - bar)
