"""Which one measurement would settle what a verdict leaves open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.case import Case
from simulator.critical import value_of
from simulator.outcome import Evaluator, Outcome, objective_terms
from simulator.sampling import STRUCTURAL
from simulator.uncertain import Z95
from simulator.verdict import Verdict, with_band

Array = np.ndarray[Any, np.dtype[np.float64]]


def settle(case: Case, ev: Evaluator, o: Outcome, base: Outcome, v: Verdict) -> tuple[str, ...]:
    """Which one measurement would settle the rest, in words, from first-order shares of the log ratio's variance."""
    objective = v.objective
    if v.ratio is None:
        return ()
    if v.verdict != "cannot_tell":
        return (f"{objective}: settled; {with_band(v.ratio)} lies on one side of 1.",)
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
        only = value_of(case, ev, o, ev.over_acceptance(o, ev.samples["acceptance"]), objective)
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
        return float(value_of(case, ev, x, ev.with_tokens(x.strategy, x.window, key, value), objective)[0])

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
