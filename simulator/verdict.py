"""Turns paired outcomes into verdicts: wins, loses or cannot tell, because of which terms, and where it flips."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.prediction import Prediction, predict
from costmodel.quality import implied_acceptance
from simulator.case import Case
from simulator.outcome import Evaluator, Outcome, objective_terms, why_unknown
from simulator.success import success_of

Array = np.ndarray[Any, np.dtype[np.float64]]

PLAIN_TERMS: Mapping[str, str] = {
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


def ratio_text(x: float) -> str:
    """A ratio with as many digits as tell it from 1: 0.73, 0.995, 0.9996."""
    return next((f"{x:.{d}f}" for d in (2, 3, 4) if x == 1.0 or float(f"{x:.{d}f}") != 1.0), f"{x:.6f}")


def with_band(r: Prediction) -> str:
    """A ratio with its interval."""
    return f"{ratio_text(r.value)} [{ratio_text(r.low)}, {ratio_text(r.high)}]"


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
    rest = sum(change.values()) - max(change[saved], 0.0) - min(change[paid], 0.0)
    if change[saved] > 0:
        out.append(f"saves {quantity(change[saved], unit)} of {PLAIN_TERMS.get(saved, saved)} per task")
    if change[paid] < 0:
        out.append(f"pays {quantity(-change[paid], unit)} for {PLAIN_TERMS.get(paid, paid)} per task")
    if abs(rest) > 0.02 * sum(float(np.ravel(t)[0]) for t in theirs.values()):
        out.append(f"all other terms {'save' if rest > 0 else 'cost'} {quantity(abs(rest), unit)}")
    return tuple(out)


def _because_success(case: Case, strategy: str) -> tuple[str, ...]:
    q = case.scenario.quality
    if strategy == "weak_only":
        return (f"nobody reviews: a step is wrong with probability {q.weak_hazard.value:.2f}",)
    missed = q.weak_hazard.value * (1 - q.detection.value)
    given = case.scenario.protocol.acceptance
    kept = (
        implied_acceptance(q.weak_hazard.value, q.detection.value, q.false_reject.value)
        if given is None
        else given.value
    )
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
    "USD": ((1.0, "$"),),
}


def scale_of(value: float, unit: str) -> tuple[float, str]:
    """The display unit that suits a value, and how many base units it holds."""
    return next(((s, n) for s, n in _SCALES[unit] if value >= s), _SCALES[unit][-1])


def quantity(value: float, unit: str) -> str:
    """A number in a readable unit; money always in dollars: 5.36 s, $0.0624."""
    scale, name = scale_of(value, unit)
    return f"${three_digits(value)}" if unit == "USD" else f"{value / scale:.3g} {name}"


def three_digits(value: float) -> str:
    """A number with three significant digits, written out down to a millionth: 0.0624, 48.0, 2809."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.2e}")
    exponent = math.floor(math.log10(abs(rounded)))
    return f"{value:.{max(0, 2 - exponent)}f}" if exponent >= -6 else f"{value:.2e}"
