"""Several seeds of several strategies: means with t-intervals over seeds, ratios and differences paired by seed.

Runs of one seed share all random numbers that do not depend on the strategy, so what strategies have in common cancels
in a paired ratio or difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from costmodel.cost import COLUMNS
from costmodel.pricing import Pricing
from hwprofiles.errors import InputError
from simulator.case import Case
from simulator.forked import in_order, n_workers
from simulator.results import STATUSES, RunResult
from simulator.run import acceptance_shift, demand, simulate
from simulator.scenario_goals import Run
from simulator.student import t_quantile

MEASURES = ("time_s", "queue_s", "traffic_bytes", *COLUMNS, "strong_output_tokens", "weak_output_tokens")
"""Columns of the frame `trajectories` that are summarised by their mean."""

CONFIDENCE = 0.9
_MOST_SEEDS = 50
_LONG_STEPS = 500


class Interval(NamedTuple):
    """A mean and its interval over `n` seeds (90 % unless said otherwise); no interval from one seed."""

    value: float
    low: float | None
    high: float | None
    n: int


def replicate(
    case: Case,
    strategies: Sequence[str],
    *,
    seeds: int | None = None,
    keep_log: bool = False,
    out: Path | None = None,
    details: bool = True,
    each: Callable[[RunResult], None] | None = None,
    before: Callable[[str, int], None] | None = None,
) -> dict[str, list[RunResult]]:
    """Simulate every strategy with the scenario's seeds: `run.seed`, `run.seed + 1`, ... (`run.seeds` of them).

    Under `run.precision` more seeds follow until every strategy's mean time and its ratio to the first strategy's are
    known to that relative half-width, or `run.seeds_max` is reached: `looks` says when, `level_of` how surely.

    Parameters
    ----------
    seeds : int or None
        So many, whatever the scenario says of seeds and precision.
    out : Path or None
        Every run is written to a folder of its own in it, `STRATEGY-seedN`, as it goes.
    details : bool
        As in `simulate`.
    each : callable or None
        Is told of every run as it ends.
    before : callable or None
        Is told the strategy and seed of every run before it begins.
    """
    pricing = Pricing(case.sites)
    shift = acceptance_shift(case, pricing)
    first = case.scenario.run.seed
    runs: dict[str, list[RunResult]] = {name: [] for name in strategies}

    def one(job: tuple[str, int]) -> RunResult:
        name, seed = job
        return simulate(
            case,
            name,
            seed,
            keep_log=keep_log,
            out=None if out is None else out / f"{name}-seed{seed}",
            details=details,
            pricing=pricing,
            shift=shift,
        )

    for n_seeds in looks(case.scenario.run) if seeds is None else (seeds,):
        jobs = [(name, seed) for name, done in runs.items() for seed in range(first + len(done), first + n_seeds)]
        if before is not None and jobs:
            before(*jobs[0])
        workers = n_workers(len(jobs)) if _is_long(case) else 1
        for i, run in enumerate(in_order(one, jobs, workers)):
            runs[jobs[i][0]].append(run)
            if each is not None:
                each(run)
            if before is not None and i + 1 < len(jobs):
                before(*jobs[i + 1])
        if seeds is None and is_precise(case.scenario.run, runs):
            break
    return runs


def _is_long(case: Case) -> bool:
    """Whether a run takes long enough, about a tenth of a second, to be worth a process of its own."""
    n_steps = sum(len(task.steps) for task in case.tasks) / len(case.tasks)
    return n_steps * demand(case).n_trajectories >= _LONG_STEPS


def looks(run: Run) -> tuple[int, ...]:
    """Numbers of seeds after which the precision is looked at: `run.seeds`, then half as many more each time."""
    if run.precision is None:
        return (run.seeds,)
    most = max(run.seeds, _MOST_SEEDS) if run.seeds_max is None else run.seeds_max
    found = [run.seeds]
    while found[-1] < most:
        found.append(min(most, found[-1] + max(1, found[-1] // 2)))
    return tuple(found)


def level_of(run: Run) -> float:
    """Level of each interval such that the one in force when the runs stop still covers with `run.confidence`.

    With K possible looks each interval is at 1 - (1 - confidence) / K (Bonferroni), so that all of them hold together
    with that confidence and it does not matter which one stopped the runs.
    """
    confidence = CONFIDENCE if run.confidence is None else run.confidence
    n_looks = len(looks(run))
    return confidence if n_looks == 1 else 1.0 - (1.0 - confidence) / n_looks


def is_precise(run: Run, runs: Mapping[str, Sequence[RunResult]]) -> bool:
    """Whether every mean time and ratio to the first strategy is as precise as `run.precision` asks; true without."""
    if run.precision is None:
        return True
    level, baseline = level_of(run), next(iter(runs.values()))
    found = [_interval_of(_means(done, "time_s"), level) for done in runs.values()]
    found += [ratio_interval(done, baseline, "time_s", level) for done in list(runs.values())[1:]]
    return all(
        i is not None and i.low is not None and i.high is not None and i.high - i.low <= 2 * run.precision * i.value
        for i in found
    )


def mean_interval(values: Sequence[float], level: float = CONFIDENCE) -> Interval:
    """Mean of independent runs with `mean +- t_{(1 + level) / 2, n-1} s / sqrt(n)`."""
    x = np.array(values, dtype=float)
    if not len(x):
        raise InputError("a mean needs at least one run")
    if len(x) == 1:
        return Interval(float(x[0]), None, None, 1)
    half = t_quantile(level, len(x) - 1) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return Interval(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half, len(x))


def ratio_interval(
    runs: Sequence[RunResult], baseline: Sequence[RunResult], measure: str, level: float = CONFIDENCE
) -> Interval | None:
    """Ratio of means to the baseline's, paired by seed: `exp` of the t-interval of log ratios; None where undefined."""
    pairs = zip(_means(runs, measure), _means(baseline, measure), strict=True)
    logs = [math.log(a / b) for a, b in pairs if a is not None and b is not None and a > 0 and b > 0]
    if len(logs) != len(runs):
        return None
    mean = mean_interval(logs, level)
    low, high = (None if x is None else math.exp(x) for x in (mean.low, mean.high))
    return Interval(math.exp(mean.value), low, high, mean.n)


def difference_interval(
    runs: Sequence[RunResult], baseline: Sequence[RunResult], measure: str, level: float = CONFIDENCE
) -> Interval | None:
    """Difference of means to the baseline's, paired by seed: the t-interval of differences; None where undefined."""
    pairs = zip(_means(runs, measure), _means(baseline, measure), strict=True)
    found = [a - b for a, b in pairs if a is not None and b is not None]
    return mean_interval(found, level) if len(found) == len(runs) else None


def summarise(runs: Sequence[RunResult], level: float = CONFIDENCE) -> dict[str, Any]:
    """Over the seeds of one strategy: means and time quantiles as intervals, waste, counts by status, use by role.

    None stands where some run finished no counted trajectory.
    """
    parts = [run.summary() for run in runs]
    quantiles = ("p50", "p95", "p99")
    out: dict[str, Any] = {name: _interval(_means(runs, name), level) for name in MEASURES}
    out |= {f"time_s_{q}": _interval([p["time_s"][q] for p in parts], level) for q in quantiles}
    out["wasted_per_step"] = {
        name: _interval([p["wasted_per_step"][name] for p in parts], level) for name in parts[0]["wasted_per_step"]
    }
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


def _interval(values: Sequence[float | None], level: float) -> dict[str, Any] | None:
    found = _interval_of(values, level)
    return None if found is None else found._asdict()


def _interval_of(values: Sequence[float | None], level: float) -> Interval | None:
    known = [v for v in values if v is not None]
    return mean_interval(known, level) if len(known) == len(values) else None
