"""Simulates fleets until each is known to meet its objectives or not: independent seeds, looked at three times."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from costmodel.pricing import Pricing
from costmodel.protocol import Role
from costmodel.trajectory import Workload
from hwprofiles.errors import InputError
from simulator.case import Case, prepare
from simulator.law import WorkloadLaw
from simulator.memory import hold
from simulator.pool import Pool
from simulator.run import acceptance_shift, simulate
from simulator.scenario_file import from_document
from simulator.size_queue import lost
from simulator.slo import METRICS, Array, Slo
from simulator.sweep_design import apply

LOOKS = (4, 8, 12)
"""Runs after which a fleet is judged."""

LEVEL = 0.90
"""Of an interval over all looks together: each look has (1 - LEVEL) / len(LOOKS) of error."""

_HOPELESS, _FIRST = 1.3, 2
"""A fleet whose first two runs both miss a limit by this factor is not simulated further."""

_GROWTH = 1.1
_OVERLOADED = 1.5
"""Score of a fleet that cannot keep up: what it would take is anybody's guess."""

FAILING = "too many trajectories fail: a tool, link or API gives out, and who fails meets no objective"

P95 = Slo(statistic="p95", metric="trajectory_s", limit_s=math.inf)
"""Reported of every fleet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRun:
    """One run to simulate, as plain values; `settings` are what the fleet changes in the scenario `document`."""

    document: str
    settings: Mapping[str, Any]
    strategy: str
    seed: int
    held: Workload | WorkloadLaw | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSample:
    """What one run says: values of every metric by trajectory in order of arrival, mean energy and API bill.

    Trajectories that failed stand behind the others with infinite values.

    `reason` says why there is none: the fleet cannot keep up.
    """

    values: Mapping[str, Array]
    energy_j: float = math.nan
    api_usd: float = math.nan
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A statistic over runs with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What is known of a fleet.

    Parameters
    ----------
    meets : None where `LOOKS[-1]` runs could not tell
    estimates, p95 : every objective's statistic, and p95 of trajectory time; none where the fleet cannot keep up, or
        where so many trajectories fail that there is none
    score : largest statistic over its limit
    energy_j, api_usd : means per trajectory
    """

    meets: bool | None
    estimates: tuple[Estimate, ...]
    p95: Estimate | None
    score: float
    n_runs: int
    energy_j: float
    api_usd: float
    reason: str = ""


def run_fleet(task: FleetRun) -> RunSample:
    """Simulate one run; a fleet that cannot keep up is a sample with a reason."""
    if task.held is not None:
        hold(task.held)
    case, pricing, shift = _prepared(task.document)
    scenario = from_document(apply(json.loads(task.document), task.settings), "size")
    try:
        run = simulate(_with(case, scenario), task.strategy, task.seed, pricing=pricing, shift=shift)
    except InputError as error:
        return RunSample(values={}, reason=str(error))
    done = run.counted()
    values = {name: np.append(done[column].to_numpy(dtype=float), lost(run)) for name, column in METRICS.items()}
    if not len(done):
        return RunSample(values={}, reason="no trajectory finished")
    return RunSample(values=values, energy_j=float(done["energy_j"].mean()), api_usd=float(done["api_usd"].mean()))


@lru_cache(maxsize=4)
def _prepared(document: str) -> tuple[Case, Pricing, float]:
    case = prepare(from_document(json.loads(document), "size"))
    pricing = Pricing(case.sites)
    return case, pricing, acceptance_shift(case, pricing)


def _with(case: Case, scenario: Any) -> Case:
    """The same case with other replicas and load: neither changes tasks or prices."""
    return replace(case, scenario=scenario)


class Judge:
    """Judges fleets by simulation on all local cores.

    Parameters
    ----------
    document : the scenario, its load included
    slos : what has to hold
    pool : runs `run_fleet`
    told : told after every run
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        slos: tuple[Slo, ...],
        pool: Pool[FleetRun, RunSample],
        *,
        held: Workload | WorkloadLaw | None = None,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self.document = json.dumps(document)
        self.slos = slos
        self.held = held
        self.told = told
        self.seed = int(document.get("run", {}).get("seed", 0))
        self._pool = pool

    def judge(self, strategy: str, replicas: Mapping[Role, int]) -> Judged:
        """Simulate a fleet until it is known to meet every objective or to miss one."""
        settings = {f"{role}.replicas": n for role, n in replicas.items()}
        samples: list[RunSample] = []
        for n in (_FIRST, *LOOKS):
            tasks = [
                FleetRun(document=self.document, settings=settings, strategy=strategy, seed=seed, held=self.held)
                for seed in range(self.seed + len(samples), self.seed + n)
            ]
            samples += self._run(tasks)
            found = self._look(samples, final=n == LOOKS[-1])
            if found is not None:
                return found
        raise AssertionError("the last look decides")

    def _run(self, tasks: Sequence[FleetRun]) -> list[RunSample]:
        by_seed: dict[int, RunSample] = {}
        for task, result in self._pool.run(tasks):
            by_seed[task.seed] = RunSample(values={}, reason=result) if isinstance(result, str) else result
            self.told()
        return [by_seed[task.seed] for task in tasks]

    def _look(self, samples: list[RunSample], *, final: bool) -> Judged | None:
        """The judgement after these runs; None to go on."""
        n = len(samples)
        energy, api = (float(np.mean([getattr(s, k) for s in samples])) for k in ("energy_j", "api_usd"))
        stuck = next((s.reason for s in samples if s.reason), "")
        if stuck:
            known: dict[str, Any] = {"estimates": (), "p95": None, "score": _OVERLOADED}
            return Judged(meets=False, n_runs=n, energy_j=energy, api_usd=api, reason=stuck, **known)
        found = tuple(estimate(slo, samples) for slo in self.slos)
        if any(math.isinf(e.value) for e in found):
            known = {"estimates": (), "p95": None, "score": _OVERLOADED}
            return Judged(meets=False, n_runs=n, energy_j=energy, api_usd=api, reason=FAILING, **known)
        pairs = list(zip(self.slos, found, strict=True))
        score = max(e.value / slo.limit_s for slo, e in pairs)
        tail = estimate(P95, samples)
        p95 = None if math.isinf(tail.value) else tail

        known = {"estimates": found, "p95": p95, "score": score}

        def judged(meets: bool | None, reason: str = "") -> Judged:
            return Judged(meets=meets, n_runs=n, energy_j=energy, api_usd=api, reason=reason, **known)

        if n < LOOKS[0]:
            misses = [slo for slo in self.slos if _all_beyond(slo, samples)]
            return judged(False, f"{misses[0]} is missed by far") if misses else None
        if any(e.low > slo.limit_s for slo, e in pairs):
            return judged(False)
        if _grows(samples):
            return judged(False, "times keep growing: the fleet falls behind")
        if all(e.high <= slo.limit_s for slo, e in pairs):
            return judged(True)
        if n == LOOKS[-2] and any(_too_close(slo, e) for slo, e in pairs):
            return judged(None, f"cannot tell after {n} runs, nor are more likely to")
        return judged(None, f"cannot tell after {n} runs") if final else None


def estimate(slo: Slo, samples: Sequence[RunSample]) -> Estimate:
    """A statistic with its interval, by sectioning: the estimate from all runs pooled, the spread from each by itself.

    value +- t_{1 - e/2, n-1} s / sqrt(n),   e = (1 - LEVEL) / len(LOOKS): the looks share the error (Bonferroni)

    Source: Asmussen and Glynn, Stochastic Simulation (2007), chapter III.5.
    """
    from scipy.stats import t

    each = [s.values[slo.metric] for s in samples]
    value, n = slo.of(np.concatenate(each)), len(each)
    by_run = [slo.of(x) for x in each]
    if math.isinf(max(value, *by_run)):
        return Estimate(value=math.inf, low=math.inf, high=math.inf)
    quantile = float(t.ppf(1 - (1 - LEVEL) / len(LOOKS) / 2, n - 1))
    half = quantile * float(np.std(by_run, ddof=1)) / math.sqrt(n)
    return Estimate(value=value, low=max(0.0, value - half), high=value + half)


def _too_close(slo: Slo, e: Estimate) -> bool:
    """Whether the limit is in the inner half of the interval, which the last look narrows by a fourth."""
    return (e.low + e.value) / 2 < slo.limit_s < (e.value + e.high) / 2


def _all_beyond(slo: Slo, samples: Sequence[RunSample]) -> bool:
    return all(slo.of(s.values[slo.metric]) > _HOPELESS * slo.limit_s for s in samples)


def _grows(samples: Sequence[RunSample]) -> bool:
    """Whether trajectories of the last third take over a tenth longer than those of the first, beyond chance."""
    from scipy.stats import t

    ratios = []
    for s in samples:
        times = s.values["trajectory_s"]
        times = times[np.isfinite(times)]
        third = len(times) // 3
        if third:
            ratios.append(math.log(times[-third:].mean() / times[:third].mean()))
    if len(ratios) < 2:
        return False
    half = float(t.ppf(0.95, len(ratios) - 1)) * float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))
    return float(np.mean(ratios)) - half > math.log(_GROWTH)
