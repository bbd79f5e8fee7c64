"""What one strategy costs in one case: expected ledger, central and over samples, and the objectives behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodel.acceptance import AcceptanceLaw
from costmodel.api import Api
from costmodel.cost import COLUMNS, TRAFFIC
from costmodel.expect import compile_tape, expect, fit_shift
from costmodel.pricing import Pricing, central_factors
from costmodel.protocol import Role
from costmodel.races import Race
from costmodel.session import ProtocolSizes
from costmodel.tape import Expected, Tape
from costmodel.task import Task
from hwprofiles.errors import InputError
from simulator.case import Case, tasks_of
from simulator.playing import match_of, playing
from simulator.sampling import STRUCTURAL, sampled
from simulator.walked import bound_s, spread_like, walked

Array = np.ndarray[Any, np.dtype[np.float64]]

OBJECTIVES: tuple[str, ...] = ("time", "traffic", "flops", "energy", "money", "success")
"""What a verdict is given for."""

ROLES_OF: Mapping[str, tuple[Role, ...]] = {
    "strong_only": (Role.STRONG,),
    "token_speculation": (Role.STRONG,),
    "weak_only": (Role.WEAK,),
}
"""Roles a strategy reserves; both where not named."""

_KNOT_TASKS = 8


def roles_of(strategy: str) -> tuple[Role, ...]:
    """Roles whose devices a strategy reserves."""
    return ROLES_OF.get(strategy, (Role.WEAK, Role.STRONG))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A strategy's ledger at the scenario's load: `central` once, `spread` over the samples.

    `idle_central` and `idle_spread` are the expectation on idle engines; without load the two are the same. `tape` is
    None for a strategy without an expectation, whose paths were walked. `bound_s` is the time on idle engines with the
    best windows in hindsight, where windows are chosen.
    """

    strategy: str
    window: int
    tape: Tape | Race | None
    central: Expected
    spread: Expected
    idle_central: Expected
    idle_spread: Expected
    simulated: bool = False
    bound_s: float | None = None

    def alone_s(self) -> tuple[float, Array]:
        """Time on idle engines, central and sampled."""
        return float(self.idle_central.column("wall_s")[0]), self.idle_spread.column("wall_s")

    def time_s(self) -> tuple[float, Array]:
        """Time at the scenario's load, central and sampled."""
        return float(self.central.column("wall_s")[0]), self.spread.column("wall_s")

    def at(self, e: Expected) -> Outcome:
        """The same strategy with another expectation in the place of all."""
        return replace(self, central=e, spread=e, idle_central=e, idle_spread=e)


class Evaluator:
    """Evaluates strategies of one case on shared samples, so that ratios are paired; `compiler` makes the tapes."""

    def __init__(
        self, case: Case, samples: Mapping[str, Array], compiler: Callable[..., Tape | Race] = compile_tape
    ) -> None:
        self.case = case
        self.samples = samples
        self.compiler = compiler
        self.pricing = Pricing(case.sites)
        spread = {k: v[:, None] for k, v in samples.items() if k in central_factors(case.sites)}
        self.sampled_pricing = Pricing(case.sites, spread)
        self._tapes: dict[tuple[str, int], Tape | Race] = {}
        self._changed: dict[tuple[str, int, str, float], Expected] = {}
        self.match = match_of(case.scenario).value
        self.matches = sampled(samples, "match", self.match)
        window = case.scenario.protocol.window
        reference = self.tape("spec_agent", window)
        assert isinstance(reference, Tape)
        value = case.acceptance.value
        self.shift = fit_shift(reference, case.law, np.array([value]))
        self.shifts = fit_shift(reference, case.law, sampled(samples, "acceptance", value))
        self.reference = reference
        step = max(1, len(case.tasks) // _KNOT_TASKS)
        self.few = tuple(range(0, len(case.tasks), step))

    def resampled(self, samples: Mapping[str, Array]) -> Evaluator:
        """The same case and tapes on other samples of the same inputs."""
        other = copy(self)
        other.samples = samples
        spread = {k: v[:, None] for k, v in samples.items() if k in central_factors(self.case.sites)}
        other.sampled_pricing = Pricing(self.case.sites, spread)
        value = self.case.acceptance.value
        other.shifts = fit_shift(self.reference, self.case.law, sampled(samples, "acceptance", value))
        other.matches = sampled(samples, "match", self.match)
        return other

    def tape(self, name: str, window: int) -> Tape | Race:
        """The tape of a strategy over all tasks."""
        if (name, window) not in self._tapes:
            self._tapes[name, window] = self._compile(name, window, self.case.tasks, self.case.sizes)
        return self._tapes[name, window]

    def _compile(self, name: str, window: int, tasks: tuple[Task, ...], sizes: ProtocolSizes) -> Tape | Race:
        return self.compiler(playing(self.case.scenario, name, window), tasks, self.case.law, self.pricing, sizes)

    def outcome(self, name: str, window: int) -> Outcome:
        """Evaluate a strategy: exactly at the central values, and over the samples; walked where that cannot be."""
        if name == "spec_agent_adaptive" and self.case.scenario.protocol.adaptive_rule == "rate":
            return self._walked(name, window)
        tape = self.tape(name, window)
        central = expect(tape, self.shift, self.pricing, self.match)
        spread = expect(tape, self.shifts, self.sampled_pricing, self.matches)
        for key in STRUCTURAL:
            spread = self._apply(spread, name, window, key)
        return Outcome(
            strategy=name,
            window=window,
            tape=tape,
            central=central,
            spread=spread,
            idle_central=central,
            idle_spread=spread,
            bound_s=self._bound_s(window) if name == "spec_agent_adaptive" else None,
        )

    def _bound_s(self, window: int) -> float:
        return bound_s(self.case, window, float(self.shift[0]), self.pricing)

    def _walked(self, name: str, window: int) -> Outcome:
        """Means of drawn paths, spread over the inputs as `spec_agent` is, or `strong_only` where that has nothing."""
        seed = self.case.scenario.run.seed
        found = walked(self.case, playing(self.case.scenario, name, window), float(self.shift[0]), self.pricing)
        others = [self.outcome(other, window) for other in ("spec_agent", "strong_only")]
        spread = spread_like(found, [(o.central, o.spread) for o in others], seed)
        mean = found.mean
        return Outcome(
            strategy=name,
            window=window,
            tape=None,
            central=mean,
            spread=spread,
            idle_central=mean,
            idle_spread=spread,
            bound_s=self._bound_s(window),
        )

    def _apply(self, spread: Expected, name: str, window: int, key: str) -> Expected:
        """Scale sampled ledgers by how a token-count input changes the central one (piecewise linear in the input)."""
        if key not in self.samples:
            return spread
        x = self.samples[key]
        low, mid, high = self._knots(key)
        at = {v: self.with_tokens(name, window, key, v) for v in (low, mid, high)}

        def factor(pick: Any) -> Array:
            base = pick(at[mid])
            change = [np.where(base > 0, pick(at[v]) / np.where(base > 0, base, 1.0), 1.0) for v in (low, mid, high)]
            slope_down = (change[1] - change[0]) / (mid - low if mid > low else 1.0)
            slope_up = (change[2] - change[1]) / (high - mid if high > mid else 1.0)
            d = (x - mid).reshape(-1, *([1] * np.ndim(base)))
            return np.asarray(np.maximum(0.0, change[1] + np.where(d < 0, slope_down * d, slope_up * d)))

        return replace(
            spread,
            ledger=spread.ledger * factor(lambda e: e.ledger[0]),
            counts=spread.counts * factor(lambda e: e.counts[0]),
            busy_s={r: b * factor(lambda e, r=r: e.busy_s[r][0]) for r, b in spread.busy_s.items()},
        )

    def _knots(self, key: str) -> tuple[float, float, float]:
        band = self.token_input(key)
        return band.low, band.value, band.high

    def token_input(self, key: str) -> Any:
        """The scenario's band of a token-count input; None where the scenario leaves it to the trace."""
        s = self.case.scenario
        return s.protocol.verdict_tokens if key == "verdict_tokens" else getattr(s.workload, key)

    def with_tokens(self, name: str, window: int, key: str, value: float) -> Expected:
        """Central expectation over eight or so tasks spread over the workload, with one token-count input changed."""
        band = self.token_input(key) if key else None
        if band is not None and value == band.value:
            key, value = "", 0.0
        found = self._changed.get((name, window, key, value))
        if found is None:
            found = self._changed[name, window, key, value] = self._with_tokens(name, window, key, value)
        return found

    def few_tasks(self, name: str, window: int) -> Expected:
        """Central expectation over eight or so tasks spread over the workload."""
        return self.with_tokens(name, window, "", 0.0)

    def _with_tokens(self, name: str, window: int, key: str, value: float) -> Expected:
        case = self.case
        sizes = replace(case.sizes, verdict_tokens=max(1, round(value))) if key == "verdict_tokens" else case.sizes
        work = replace(case.workload, trajectories=tuple(case.workload.trajectories[i] for i in self.few))
        other = {k: value for k in ("thinking", "verbosity") if key.startswith(k)}
        tape = self._compile(name, window, tasks_of(case.scenario, work, **other), sizes)
        return expect(tape, self.shift, self.pricing, self.match)

    def over_acceptance(self, outcome: Outcome, acceptance: Array) -> Expected:
        """Central expectation at other mean acceptances."""
        shift = fit_shift(self.reference, self.case.law, acceptance)
        return expect(tape_of(outcome), shift, self.pricing, self.match)

    def at_acceptance(self, outcome: Outcome, acceptance: Array) -> Expected:
        """Central expectation were the scenario to say `acceptance`: alike for all steps unless it is by position."""
        if self.case.scenario.protocol.acceptance_by_position is not None or self.case.law.is_flat:
            return self.over_acceptance(outcome, acceptance)
        shift = fit_shift(self.reference, AcceptanceLaw(), acceptance)
        return expect(tape_of(outcome).flat(), shift, self.pricing, self.match)


def tape_of(outcome: Outcome) -> Tape | Race:
    """What an outcome was expected from.

    Raises
    ------
    InputError
        Its strategy has no expectation.
    """
    if outcome.tape is None:
        raise InputError(f"{outcome.strategy} chooses by elapsed time, so its expectation is not available")
    return outcome.tape


def traffic_bytes(e: Expected) -> Array:
    """Headline memory traffic: weights, KV and state."""
    return np.asarray(sum(e.column(c) for c in TRAFFIC))


def reserved_s(case: Case, time_s: Any) -> Any:
    """Seconds each reserved device stands for one trajectory, user gaps included: agents at once share the fleet."""
    rate_per_s = case.arrival_rate_per_s
    if rate_per_s is not None:
        return np.zeros_like(time_s) + 1.0 / rate_per_s
    return (time_s + case.user_s) / (case.scenario.load.concurrency or 1)


def why_unknown(case: Case, strategy: str, objective: str) -> str | None:
    """Why an objective cannot be known for a strategy; None when it can."""
    for role in roles_of(strategy):
        server = case.sites[role].server
        if isinstance(server, Api):
            if objective in ("traffic", "flops", "energy"):
                return f"{objective} of the priced API {server.name} cannot be known"
        elif objective == "money" and case.usd_per_h[role] is None:
            return f"no price for {server.hardware.name}; set {role}.usd_per_h"
        elif objective == "energy" and server.hardware.tdp_w is None:
            return f"no power limit known for {server.hardware.name}"
    return None


def objective_terms(
    case: Case, o: Outcome, objective: str, *, central: bool, samples: Mapping[str, Array]
) -> dict[str, Array]:
    """An objective as a sum of named terms: phases, idle power, devices, API."""
    return terms_of(case, o.strategy, o.central if central else o.spread, objective, None if central else samples)


def terms_of(
    case: Case, strategy: str, e: Expected, objective: str, samples: Mapping[str, Array] | None
) -> dict[str, Array]:
    """The same from an expectation alone; `samples` of None takes central values of what is not in it."""
    held, roles = reserved_s(case, e.column("wall_s")), roles_of(strategy)
    if objective == "time":
        return _by_phase(e, ("wall_s",))
    if objective in ("traffic", "flops"):
        return _by_phase(e, TRAFFIC if objective == "traffic" else ("flops",))
    if objective == "energy":
        return _by_phase(e, ("energy_j",)) | {"idle": sum(_idle_w(case, r, samples, roles) * held for r in roles)}
    terms = {"API": e.column("api_usd")} if np.any(e.column("api_usd")) else {}
    for role in roles:
        rate = (case.usd_per_h[role] or 0.0) / 3600.0
        if case.scenario.objective.money == "shared":
            replicas = case.side(role).replicas
            each = rate * case.devices(role) / replicas
            terms[f"{role} devices"] = each * e.busy_s[role] / case.scenario.objective.target_utilisation
        else:
            terms[f"{role} devices"] = rate * case.devices(role, roles) * held
    return {k: v for k, v in terms.items() if np.any(v)}


def _idle_w(case: Case, role: Role, samples: Mapping[str, Array] | None, roles: tuple[Role, ...]) -> Any:
    server = case.sites[role].server
    if isinstance(server, Api) or server.hardware.tdp_w is None:
        return 0.0
    share = server.efficiency.factors["idle_w_share"].value
    drawn: Any = share if samples is None else sampled(samples, f"{server.hardware.name}.idle_w_share", share)
    return drawn * server.hardware.tdp_w.value * case.devices(role, roles)


def _by_phase(e: Expected, columns: tuple[str, ...]) -> dict[str, Array]:
    from costmodel.cost import PHASES

    found = e.ledger[:, :, [COLUMNS.index(c) for c in columns]].sum(axis=2)
    return {phase: found[:, i] for i, phase in enumerate(PHASES) if np.any(found[:, i])}
