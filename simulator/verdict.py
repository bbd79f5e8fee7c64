"""Turns paired outcomes into verdicts: wins, loses or cannot tell, because of which terms, and where it flips."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodel.expect import Expected
from costmodel.prediction import Prediction, predict
from costmodel.pricing import Pricing
from costmodel.quality import implied_acceptance
from simulator.case import Case
from simulator.outcome import Evaluator, Outcome, objective_terms, success_of, why_unknown
from simulator.sampling import STRUCTURAL
from simulator.uncertain import Z95

Array = np.ndarray[Any, np.dtype[np.float64]]

KNOTS: Mapping[str, tuple[float, ...]] = {
    "verdict_tokens": (1.0, 60.0, 240.0),
    "verbosity": (0.5, 1.0, 4.0),
    "thinking_tokens": (0.0, 60.0, 600.0, 2400.0),
}
"""Values between which, and the band's own, a critical value is sought: costs are close to quadratic in
tokens there, and to linear in verbosity above 1."""

_PLAIN = {
    "prompt_prefill": "reading the first prompt",
    "observation_prefill": "reading observations",
    "decode": "decoding whole steps",
    "draft_decode": "decoding drafts",
    "verify_prefill": "reading segments for review",
    "verdict_decode": "decoding verdicts",
    "repair_prefill": "reading for repairs",
    "repair_decode": "decoding repairs",
    "reprefill": "computing cached prefixes again",
    "wasted_draft": "discarded drafts",
    "tool": "tools",
    "wasted_tool": "tools of discarded drafts",
    "network": "the link",
    "host": "request overhead",
    "queue": "waiting in queues",
    "idle": "idle power",
}
_UNITS = {"time": "s", "traffic": "bytes", "flops": "FLOP", "energy": "J", "money": "USD"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One objective's answer for one strategy against strong-only."""

    objective: str
    strategy: str
    verdict: str
    ratio: Prediction | None
    because: tuple[str, ...]
    critical: Mapping[str, float | None]


def ratio(case: Case, ev: Evaluator, o: Outcome, base: Outcome, objective: str) -> Prediction | None:
    """Paired ratio of a strategy to strong-only, or None where either is unknown."""
    if why_unknown(case, o.strategy, objective) or why_unknown(case, base.strategy, objective):
        return None
    if objective == "success":
        mine, theirs = (success_of(case, x.strategy, None)[0] for x in (o, base))
        spread = success_of(case, o.strategy, ev.samples) / success_of(case, base.strategy, ev.samples)
        return predict(mine / theirs, spread)
    total = {
        (x.strategy, central): sum(objective_terms(case, x, objective, central=central, samples=ev.samples).values())
        for x in (o, base)
        for central in (True, False)
    }
    below = np.asarray(total[base.strategy, True])
    if not np.all(below > 0):
        return None
    central = float(np.ravel(total[o.strategy, True] / below)[0])
    return predict(central, total[o.strategy, False] / total[base.strategy, False])


def decide(objective: str, r: Prediction | None, success_drop_max: float) -> str:
    """wins / loses / cannot_tell. For success, to win is not to lose more than `success_drop_max`."""
    if r is None:
        return "cannot_tell"
    if objective == "success":
        bar = 1.0 - success_drop_max
        return "wins" if r.low >= bar else "loses" if r.high < bar else "cannot_tell"
    return "wins" if r.high < 1.0 else "loses" if r.low > 1.0 else "cannot_tell"


def because(case: Case, ev: Evaluator, o: Outcome, base: Outcome, objective: str) -> tuple[str, ...]:
    """The largest difference on the winning and on the losing side, strong-only minus strategy."""
    if objective == "success":
        return _because_success(case, o.strategy)
    mine, theirs = (objective_terms(case, x, objective, central=True, samples=ev.samples) for x in (o, base))
    names = sorted({*mine, *theirs})
    change = {n: float(np.ravel(theirs.get(n, 0.0))[0] - np.ravel(mine.get(n, 0.0))[0]) for n in names}
    saved = max(names, key=lambda n: change[n])
    paid = min(names, key=lambda n: change[n])
    unit = _UNITS[objective]
    out = []
    if change[saved] > 0:
        out.append(f"saves {quantity(change[saved], unit)} of {_PLAIN.get(saved, saved)} per task")
    if change[paid] < 0:
        out.append(f"pays {quantity(-change[paid], unit)} for {_PLAIN.get(paid, paid)} per task")
    return tuple(out)


def _because_success(case: Case, strategy: str) -> tuple[str, ...]:
    q = case.scenario.quality
    if strategy == "weak_only":
        return (f"nobody reviews: a step is wrong with probability {q.weak_hazard.value:.2f}",)
    missed = q.weak_hazard.value * (1 - q.detection.value)
    kept = implied_acceptance(q.weak_hazard.value, q.detection.value, q.false_reject.value)
    repairs = (1 - kept) * q.strong_hazard.value
    return (
        f"a review misses a wrong draft in {missed:.3f} of steps",
        f"strong-only errs in {q.strong_hazard.value:.3f} of steps, repairs in {repairs:.3f}",
    )


_SCALES = {
    "bytes": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")),
    "FLOP": ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP")),
    "J": ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J")),
    "s": ((1.0, "s"), (1e-3, "ms")),
    "USD": ((1.0, "USD"), (1e-3, "mUSD")),
}


def scale_of(value: float, unit: str) -> tuple[float, str]:
    """The display unit that suits a value, and how many base units it holds."""
    return next(((s, n) for s, n in _SCALES[unit] if value >= s), _SCALES[unit][-1])


def quantity(value: float, unit: str) -> str:
    """A number in a readable unit."""
    scale, name = scale_of(value, unit)
    return f"{value / scale:.3g} {name}"


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
        loaded, idle = (_value(case, ev, x, e, objective)[0] for e in (x.central, x.idle_central))
        return float(loaded / idle)

    return change(o) / change(base)


def _value(case: Case, ev: Evaluator, o: Outcome, e: Expected, objective: str) -> Array:
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
    theirs = float(_value(case, ev, base, base.idle_central, objective)[0])

    def excess(at: Array) -> Array:
        return load * _value(case, ev, o, ev.at_acceptance(o, at), objective) / theirs - 1.0

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
        return float(_value(case, ev, x, ev.with_tokens(x.strategy, x.window, key, v), objective)[0])

    def central(x: Outcome) -> float:
        """All tasks over the few that `at` evaluates, at the scenario's own values."""
        few = _value(case, ev, x, ev.few_tasks(x.strategy, x.window), objective)
        return float((_value(case, ev, x, x.idle_central, objective) / few)[0])

    scale = load * central(o) / central(base)
    fixed = None if key == "thinking_tokens" else at(base, knots[0])
    excess = [scale * at(o, v) / (fixed if fixed is not None else at(base, v)) - 1.0 for v in knots]
    find = crossing if key == "verbosity" else curved_crossing  # drafts never shorter than what is visible: a kink
    return find(np.array(knots), np.array(excess))


def _critical_rtt(case: Case, ev: Evaluator, o: Outcome, base: Outcome, load: float) -> float | None:
    from costmodel.expect import expect

    def at(x: Outcome, rtt_s: float) -> float:
        return float(expect(x.tape, ev.shift, Pricing(case.sites, {"link.rtt_s": rtt_s})).column("wall_s")[0])

    ends = np.array([0.0, 10.0])
    return crossing(ends, np.array([load * at(o, r) - at(base, r) for r in ends]))


def _critical_detection(case: Case, strategy: str) -> float | None:
    q = case.scenario.quality
    bar = (1.0 - case.scenario.objective.success_drop_max) * float(success_of(case, "strong_only", None)[0])

    def at(d: float) -> float:
        band = replace(q.detection, value=d, low=d, high=d)
        moved = replace(case, scenario=replace(case.scenario, quality=replace(q, detection=band)))
        return float(success_of(moved, strategy, None)[0]) - bar

    grid = np.linspace(0.0, 1.0, 101)
    return crossing(grid, np.array([at(d) for d in grid]))


def settle(case: Case, ev: Evaluator, o: Outcome, base: Outcome, v: Verdict) -> tuple[str, ...]:
    """Which one measurement would settle the rest, in words, from first-order shares of the log ratio's variance."""
    objective = v.objective
    if v.ratio is None:
        return ()
    if v.verdict != "cannot_tell":
        return (f"{objective}: settled; the interval [{v.ratio.low:.2f}, {v.ratio.high:.2f}] lies on one side of 1.",)
    shares = variance_shares(case, ev, o, base, objective)
    top = max(shares, key=lambda k: shares[k])
    what = _measure(case, top, v)
    if shares[top] < 0.5:
        what = what.replace("would settle it", "would narrow it most")
    return (f"{objective}: {what} ({shares[top]:.0%} of the variance of the ratio).",)


def variance_shares(case: Case, ev: Evaluator, o: Outcome, base: Outcome, objective: str) -> dict[str, float]:
    """Share of Var(log ratio) from each group of inputs alone; what is left is put down to step times and latencies."""

    def spread(mine: Array, theirs: Array) -> float:
        return float(np.var(np.log(mine / theirs)))

    def total(x: Outcome, *, central: bool) -> Array:
        return np.asarray(sum(objective_terms(case, x, objective, central=central, samples=ev.samples).values()))

    whole = spread(total(o, central=False), total(base, central=False))
    if whole == 0:
        return {"step_times": 1.0}
    groups: dict[str, float] = {}
    if "acceptance" in ev.samples:
        only = _value(case, ev, o, ev.over_acceptance(o, ev.samples["acceptance"]), objective)
        groups["acceptance"] = spread(only, np.ones_like(only))
    for key in STRUCTURAL:
        if key in ev.samples:
            groups[key] = _token_variance(case, ev, o, base, objective, key)
    left = max(0.0, whole - sum(groups.values()))
    groups["step_times"] = left
    scale = sum(groups.values())
    return {k: g / scale for k, g in groups.items()}


def _token_variance(case: Case, ev: Evaluator, o: Outcome, base: Outcome, objective: str, key: str) -> float:
    band = ev.token_input(key)
    knots = [band.low, band.value, band.high]

    def at(x: Outcome, value: float) -> float:
        return float(_value(case, ev, x, ev.with_tokens(x.strategy, x.window, key, value), objective)[0])

    logs = [np.log(at(o, k) / at(base, k)) for k in knots]
    return float(np.var(np.interp(ev.samples[key], knots, logs)))


def _measure(case: Case, group: str, v: Verdict) -> str:
    if group == "acceptance":
        edge = v.critical.get("acceptance")
        if edge is None:
            return "judge drafted steps on your own tasks (`specroof acceptance`)"
        a = case.acceptance.value
        gap = max(abs(a - edge), 0.005)
        n = int(np.ceil(Z95**2 * a * (1 - a) / gap**2 / 10) * 10)
        return f"judging about {max(n, 50)} drafted steps would settle it; it pays from acceptance {edge:.2f}"
    words: dict[str, Callable[[], str]] = {
        "verdict_tokens": lambda: "count the tokens of some twenty real verdicts of your reviewer",
        "verbosity": lambda: "count both models' tokens for the same twenty steps",
        "thinking_tokens": lambda: "count the thinking tokens of the strong model on some twenty steps",
        "step_times": lambda: "time five engine steps on your own server (prefill and decode of both models)",
    }
    return words[group]()
