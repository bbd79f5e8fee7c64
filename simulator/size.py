"""The cheapest fleet that holds service-level objectives at a rate of trajectories, for every strategy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.api import Api
from costmodel.prediction import Prediction, predict
from costmodel.pricing import Pricing
from costmodel.protocol import Role
from hwprofiles.errors import InputError, unknown_name
from simulator.case import prepare
from simulator.memory import held
from simulator.outcome import roles_of
from simulator.pool import Pool
from simulator.run import acceptance_shift, simulate
from simulator.sampling import draw_samples, inputs
from simulator.scenario import Scenario
from simulator.scenario_file import from_document, load_scenario, to_document
from simulator.size_answer import Size, Sized, SizedFleet
from simulator.size_cost import FleetCost, Terms, fleet_cost, role_costs
from simulator.size_queue import Alone, alone
from simulator.size_runs import FleetRun, Judge, RunSample, run_fleet
from simulator.size_search import Fleet, Search
from simulator.slo import Slo, parse_rate, parse_slos
from simulator.success import success_of
from simulator.sweep_design import apply, cells_of
from simulator.verdict import decide

_ALONE, _AT_LEAST, _STAYS = 120, 240, 6
"""Trajectories on idle engines; counted ones per loaded run: at least so many, and 6 times those at work at once."""

_SURELY_OVERLOADED = 1.5
"""A pool asked for this many times what the closed form takes for its capacity is not simulated."""

Progress = Callable[[str], None]


def size(
    scenario: Scenario | str | Path,
    slos: Sequence[str],
    rate: str | float | None = None,
    *,
    strategies: Sequence[str] | None = None,
    vary: Sequence[str] = (),
    terms: Terms | None = None,
    max_replicas: int = 64,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Size:
    """Find the cheapest fleet that meets the objectives, for every strategy; strong-only always beside them.

    Parameters
    ----------
    scenario : Scenario, bundled name or path of a TOML file
    slos : texts such as `p95 trajectory_s <= 60`; all must hold
    rate : `2/s`, or trajectories per second; None: the scenario's load.arrival_rate_per_s
    strategies : None: the scenario's, less those that lose more success than objective.success_drop_max
    vary : texts `weak.hardware=h200,jetson-agx-orin`: alternatives to size beside each other
    terms : budgets, electricity, purchase prices
    max_replicas : largest pool
    workers : processes; None: one per core
    progress : told in words what goes on

    Raises
    ------
    InputError
        Something that cannot be read, built or priced.
    """
    goals = parse_slos(slos)
    scenario = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    rate_per_s = _rate(scenario, rate)
    if not 1 <= max_replicas <= 1024:
        raise InputError(f"max_replicas must be 1 to 1024, got {max_replicas}")
    names = _names(scenario, strategies)
    document = _loaded(to_document(scenario), rate_per_s)
    variants = cells_of(scenario, vary) if vary else [{}]
    tell = progress or (lambda text: None)
    sized: list[Sized] = []
    failed: list[dict[str, Any]] = []
    with Pool(run_fleet, workers) as pool:
        for i, settings in enumerate(variants):
            weak_only = i > 0 and all(key.startswith("weak.") for key in settings)
            try:
                one = _Sizing(apply(document, settings), settings, goals, rate_per_s, terms or Terms(), pool, tell)
                sized += one.run([n for n in names if not (weak_only and n == "strong_only")], max_replicas, strategies)
            except InputError as error:
                if not vary:
                    raise
                failed.append({"settings": settings, "reason": str(error)})
    if not sized:
        raise InputError(f"no alternative can be sized; the first: {failed[0]['reason']}")
    return Size(
        scenario=from_document(document, "size"),
        slos=goals,
        rate_per_s=rate_per_s,
        sized=tuple(sized),
        failed=tuple(failed),
    )


def _rate(scenario: Scenario, rate: str | float | None) -> float:
    own = scenario.load.arrival_rate_per_s
    if rate is None:
        if own is None:
            raise InputError("a size needs the rate of trajectories: --rate 2/s")
        return own
    if own is not None:
        raise InputError("--rate and load.arrival_rate_per_s are two sources for one thing; give one")
    return parse_rate(rate if isinstance(rate, str) else f"{rate!r}/s")


def _names(scenario: Scenario, strategies: Sequence[str] | None) -> list[str]:
    """Strategies to size, strong-only first: it is the baseline."""
    for name in strategies or ():
        if name not in scenario.strategies:
            raise unknown_name("strategy of the scenario", name, scenario.strategies)
    return list(dict.fromkeys(["strong_only", *(strategies or scenario.strategies)]))


def _loaded(document: dict[str, Any], rate_per_s: float) -> dict[str, Any]:
    """The scenario at the rate, whatever its own load."""
    n = document.get("load", {}).get("n_trajectories")
    return {**document, "load": {"arrival_rate_per_s": rate_per_s, **({"n_trajectories": n} if n else {})}}


class _Sizing:
    """One alternative: the case, what each strategy does alone, and who judges its fleets."""

    def __init__(
        self,
        document: dict[str, Any],
        settings: Mapping[str, Any],
        slos: tuple[Slo, ...],
        rate_per_s: float,
        terms: Terms,
        pool: Pool[FleetRun, RunSample],
        tell: Progress,
    ) -> None:
        self.case = prepare(from_document(document, "size"))
        self.settings, self.slos, self.rate_per_s, self.terms, self.tell = settings, slos, rate_per_s, terms, tell
        self.document, self.pool = document, pool
        self.pricing = Pricing(self.case.sites)
        self.shift = acceptance_shift(self.case, self.pricing)
        self.samples = draw_samples(inputs(self.case), self.case.scenario.run.samples, self.case.scenario.run.seed)

    def run(self, names: Sequence[str], most: int, chosen: Sequence[str] | None) -> list[Sized]:
        """Size every strategy, but for those that lose success and that nobody chose by name."""
        found = []
        success = {name: self._success(name) for name in names}
        lost = {n for n, s in success.items() if self._loses(s) and n not in (chosen or ())}
        moments = {n: self._alone(n) for n in names if n not in lost}
        self.scale = 1.0
        judge = self._judge(list(moments.values())) if moments else None
        for name in names:
            if judge is None or name in lost:
                why = "loses more success than objective.success_drop_max allows; name it to size it all the same"
                found.append(Sized(strategy=name, settings=self.settings, success=success[name], fleets=(), reason=why))
                continue
            fleets, reason = self._search(name, moments[name], judge, most)
            found.append(
                Sized(strategy=name, settings=self.settings, success=success[name], fleets=fleets, reason=reason)
            )
        return found

    def _success(self, name: str) -> Prediction:
        """Ratio of success to strong-only."""
        central = success_of(self.case, name, None)[0] / success_of(self.case, "strong_only", None)[0]
        spread = success_of(self.case, name, self.samples) / success_of(self.case, "strong_only", self.samples)
        return predict(float(central), spread)

    def _loses(self, success: Prediction) -> bool:
        return decide("success", success, self.case.scenario.objective.success_drop_max) == "loses"

    def _alone(self, name: str) -> Alone:
        self.tell(f"{name} on idle engines ...")
        idle = {"load.arrival_rate_per_s": None, "load.concurrency": 1, "load.n_trajectories": _ALONE}
        one = {f"{role}.replicas": 1 for role in Role if not isinstance(self.case.sites[role].server, Api)}
        case = prepare(from_document(apply(self.document, idle | one), "size"))
        return alone(case, self.pricing, simulate(case, name, pricing=self.pricing, shift=self.shift))

    def _judge(self, moments: Sequence[Alone]) -> Judge:
        """Runs long enough for the slowest strategy to be in steady state for most of them."""
        stay_s = max(float(m.time_s.mean()) for m in moments)
        stay_s = max([stay_s, *(s.limit_s / 2 for s in self.slos if s.metric == "trajectory_s")])
        n = self.case.scenario.load.n_trajectories or max(_AT_LEAST, math.ceil(_STAYS * self.rate_per_s * stay_s))
        w = self.case.scenario.workload
        document = apply(self.document, {"load.n_trajectories": n})
        return Judge(document, self.slos, self.pool, held=held(w.trace or w.law or ""))

    def _search(self, name: str, moments: Alone, judge: Judge, most: int) -> tuple[tuple[SizedFleet, ...], str]:
        used = tuple(r for r in roles_of(name) if r in moments.pools)
        costs = role_costs(self.case, roles_of(name), self.terms)

        def cost(fleet: Fleet, energy_j: float = moments.energy_j, api_usd: float = moments.api_usd) -> FleetCost:
            replicas = fleet.replicas(used)
            return fleet_cost(
                costs, replicas, self.terms, rate_per_s=self.rate_per_s, energy_j=energy_j, api_usd=api_usd
            )

        def judged(fleet: Fleet) -> Any:
            self.tell(f"{name}: simulating {fleet.weak} weak and {fleet.strong} strong replicas ...")
            return judge.judge(name, fleet.replicas(used))

        search = Search(
            roles=used,
            least={r: self._least(moments, r) for r in used},
            most=most,
            cost=lambda f: cost(f).usd_per_h,
            allowed=lambda f: _allowed(cost(f), self.terms),
            score=lambda f: moments.score(self.slos, self.rate_per_s, f.replicas(used)),
            judge=judged,
            scale=self.scale,
        )
        best = search.run()
        self.scale = search.scale
        fleets = tuple(
            SizedFleet(
                strategy=name,
                settings=self.settings,
                fleet=fleet,
                cost=cost(fleet, j.energy_j, j.api_usd) if j.estimates else cost(fleet),
                judged=j,
            )
            for fleet, j in search.judged.items()
        )
        return fleets, "" if best else self._why_not(search, moments, most)

    def _least(self, moments: Alone, role: Role) -> int:
        return max(1, math.ceil(self.rate_per_s * moments.pools[role].capacity_s() / _SURELY_OVERLOADED))

    def _why_not(self, search: Search, moments: Alone, most: int) -> str:
        n_lost, n = len(moments.lost), len(moments.time_s) + len(moments.lost)
        times = {"trajectory_s": moments.time_s, "queue_s": np.zeros_like(moments.time_s)}
        if any(s.of(np.append(times[s.metric], moments.lost)) > s.limit_s for s in self.slos):
            why = f": {n_lost} of {n} trajectories fail there, and who fails meets none" if n_lost else ""
            return f"misses an objective even on idle engines{why}"
        if not search.judged:
            return f"no fleet of up to {most} replicas per pool is within the budgets and likely to meet the objectives"
        return "no fleet simulated meets the objectives with confidence, and the budgets or max_replicas end there"


def _allowed(cost: FleetCost, terms: Terms) -> bool:
    within_usd = terms.max_usd_per_h is None or cost.usd_per_h <= terms.max_usd_per_h
    return within_usd and (terms.max_power_w is None or cost.peak_w <= terms.max_power_w)
