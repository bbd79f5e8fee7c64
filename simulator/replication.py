"""Several seeds of several strategies: means with t-intervals over seeds, ratios paired by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from costmodel.cost import COLUMNS
from costmodel.pricing import Pricing
from hwprofiles.errors import InputError
from simulator.case import Case
from simulator.results import STATUSES, RunResult
from simulator.run import acceptance_shift, simulate

MEASURES = ("time_s", "queue_s", "traffic_bytes", *COLUMNS, "strong_output_tokens", "weak_output_tokens")
"""Columns of the frame `trajectories` that are summarised by their mean."""


class Interval(NamedTuple):
    """A mean and its 90 % interval over `n` seeds; no interval from one seed."""

    value: float
    low: float | None
    high: float | None
    n: int


def replicate(
    case: Case,
    strategies: Sequence[str],
    *,
    keep_log: bool = False,
    each: Callable[[RunResult], None] | None = None,
    before: Callable[[str, int], None] | None = None,
) -> dict[str, list[RunResult]]:
    """Simulate every strategy with the scenario's seeds: `run.seed`, `run.seed + 1`, ... (`run.seeds` of them).

    Parameters
    ----------
    each : callable or None
        Is told of every run as it ends.
    before : callable or None
        Is told the strategy and seed of every run before it begins.
    """
    pricing = Pricing(case.sites)
    shift = acceptance_shift(case, pricing)
    first = case.scenario.run.seed
    out: dict[str, list[RunResult]] = {}
    for name in dict.fromkeys(strategies):
        out[name] = []
        for seed in range(first, first + case.scenario.run.seeds):
            if before is not None:
                before(name, seed)
            run = simulate(case, name, seed, keep_log=keep_log, pricing=pricing, shift=shift)
            out[name].append(run)
            if each is not None:
                each(run)
    return out


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean of independent runs with `mean +- t_{0.95, n-1} s / sqrt(n)`."""
    from scipy.stats import t

    x = np.array(values, dtype=float)
    if not len(x):
        raise InputError("a mean needs at least one run")
    if len(x) == 1:
        return Interval(float(x[0]), None, None, 1)
    half = float(t.ppf(0.95, len(x) - 1)) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return Interval(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half, len(x))


def ratio_interval(runs: Sequence[RunResult], baseline: Sequence[RunResult], measure: str) -> Interval | None:
    """Ratio of means to the baseline's, paired by seed: `exp` of the t-interval of log ratios; None where undefined."""
    pairs = zip(_means(runs, measure), _means(baseline, measure), strict=True)
    logs = [math.log(a / b) for a, b in pairs if a is not None and b is not None and a > 0 and b > 0]
    if len(logs) != len(runs):
        return None
    mean = mean_interval(logs)
    low, high = (None if x is None else math.exp(x) for x in (mean.low, mean.high))
    return Interval(math.exp(mean.value), low, high, mean.n)


def summarise(runs: Sequence[RunResult]) -> dict[str, Any]:
    """Over the seeds of one strategy: means and time quantiles as intervals, counts by status, utilisation by role.

    None stands where some run finished no counted trajectory.
    """
    parts = [run.summary() for run in runs]
    quantiles = ("p50", "p95", "p99")
    out: dict[str, Any] = {name: _interval(_means(runs, name)) for name in MEASURES}
    out |= {f"time_s_{q}": _interval([p["time_s"][q] for p in parts]) for q in quantiles}
    out["status_counts"] = {s: sum(p["status_counts"][s] for p in parts) for s in STATUSES}
    out["n_counted"] = sum(p["n_counted"] for p in parts)
    roles = dict.fromkeys(e["role"] for run in runs for e in run.meta["engines"])
    out["utilisation"] = {role: float(np.mean([_utilisation(run.meta, role) for run in runs])) for role in roles}
    return out


def _utilisation(meta: Mapping[str, Any], role: str) -> float:
    return float(np.mean([e["utilisation"] for e in meta["engines"] if e["role"] == role]))


def _means(runs: Sequence[RunResult], measure: str) -> list[float | None]:
    if measure not in MEASURES:
        raise InputError(f"{measure!r} is not summarised; known: {', '.join(MEASURES)}")
    found = [run.summary() for run in runs]
    return [s["time_s"]["mean"] if measure == "time_s" else s["mean"][measure] for s in found]


def _interval(values: Sequence[float | None]) -> dict[str, Any] | None:
    known = [v for v in values if v is not None]
    return mean_interval(known)._asdict() if len(known) == len(values) else None
