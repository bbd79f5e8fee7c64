"""Simulated runs: `simulate` for a scenario, `simulate_tasks` for tasks and prices of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from costmodel.acceptance import logit
from costmodel.deployment import Deployment
from costmodel.pricing import Pricing
from costmodel.protocol import Role, Strategy
from costmodel.session import ProtocolSizes
from costmodel.task import Task
from hwprofiles.errors import InputError
from simulator.agents import Agents, Verdicts, drawn_verdicts
from simulator.case import Case, prepare
from simulator.clock import step_until
from simulator.fleet import Fleet, FleetRules
from simulator.fleet_rules import fleet_rules
from simulator.load import Demand, streams, task_order
from simulator.playing import match_of, playing
from simulator.results import Recorder, RunResult
from simulator.scenario import Scenario
from simulator.scenario_file import load_scenario, to_document
from simulator.tools import Gaps, ToolTable
from simulator.world import World

_PER_AGENT, _AT_LEAST = 4, 60
_ENOUGH, _PATIENCE, _PILED_UP = 200, 20.0, 0.3
"""An open load is given up when, after 200 arrivals and 20 first times, 30 % of all that came is still there."""


def simulate(
    case: Case | Scenario | str | Path,
    strategy: str = "spec_agent",
    seed: int | None = None,
    *,
    keep_log: bool = False,
    out: str | Path | None = None,
    details: bool = True,
    pricing: Pricing | None = None,
    shift: float | None = None,
) -> RunResult:
    """Simulate one strategy of a scenario at its load, with one seed.

    Parameters
    ----------
    case : Case, Scenario, bundled name or path
        `prepare(scenario)` saves time when several runs follow.
    seed : int or None
        None: the scenario's. Runs of one seed share arrivals, task order and verdicts across strategies and loads.
    keep_log : bool
        Fill the frame `engine`.
    out : path or None
        Folder to write the run to as it goes, in bounded memory (`load` reads it).
    details : bool
        False leaves the frames `steps` and `phases` empty, which saves time where only trajectories are of interest.
    pricing : Pricing or None
        None: central factors. Another one prices the same run with other factors.
    shift : float or None
        Acceptance shift; None: `acceptance_shift`, which is worth keeping when several runs follow.

    Raises
    ------
    InputError
        Unknown strategy, or a scenario that cannot be built.
    """
    if isinstance(case, str | Path):
        case = load_scenario(case)
    case = prepare(case) if isinstance(case, Scenario) else case
    scenario = case.scenario
    how = playing(scenario, strategy)
    pricing = Pricing(case.sites) if pricing is None else pricing
    seed = scenario.run.seed if seed is None else seed
    return simulate_tasks(
        case.tasks,
        how,
        drawn_verdicts(
            case.law, acceptance_shift(case, pricing) if shift is None else shift, seed, match_of(scenario).value
        ),
        pricing,
        case.sizes,
        demand=demand(case),
        replicas={role: case.side(role).replicas for role in Role},
        rules=fleet_rules(scenario),
        tools=case.tools,
        gaps=case.gaps,
        seed=seed,
        horizon_s=scenario.run.horizon_s,
        keep_log=keep_log,
        out=None if out is None else Path(out),
        details=details,
        usd_per_busy_s=_usd_per_busy_s(case),
        meta={"window": scenario.protocol.window, "scenario": to_document(scenario)},
    )


def _usd_per_busy_s(case: Case) -> dict[Role, float]:
    """Price of a second of one replica of each role that has one."""
    prices = {role: (case.usd_per_h[role], case.sites[role].server) for role in Role}
    return {
        role: usd * server.n_devices / 3600.0
        for role, (usd, server) in prices.items()
        if usd is not None and isinstance(server, Deployment)
    }


def acceptance_shift(case: Case, pricing: Pricing) -> float:
    """The shift at which the steps that `spec_agent` has reviewed are kept with the scenario's mean acceptance."""
    if case.law.is_flat:
        return logit(case.acceptance.value)
    from costmodel.expect import fit_shift
    from costmodel.tape import compile_rounds

    reference = playing(case.scenario, "spec_agent")
    tape = compile_rounds(reference, case.tasks, case.law, pricing, case.sizes)
    return float(fit_shift(tape, case.law, np.array([case.acceptance.value]))[0])


def demand(case: Case) -> Demand:
    """The load of a case; one agent when it names none, and enough trajectories for a mean."""
    load = case.scenario.load
    if case.arrivals is not None:
        speed = load.arrivals_speed or 1.0
        times = tuple((r.arrival_s / speed, r.session if load.sessions else None) for r in case.arrivals)
        counted = load.n_trajectories or max(1, min(_AT_LEAST, len(times) * 4 // 5))
        return Demand(n_trajectories=counted, arrivals=times)
    concurrency = None if load.arrival_rate_per_s else (load.concurrency or 1)
    n = load.n_trajectories or max(_AT_LEAST, _PER_AGENT * (concurrency or 0))
    return Demand(n_trajectories=n, concurrency=concurrency, arrival_rate_per_s=load.arrival_rate_per_s)


def simulate_tasks(
    tasks: Sequence[Task],
    strategy: Strategy,
    verdicts: Verdicts,
    pricing: Pricing,
    sizes: ProtocolSizes,
    *,
    demand: Demand,
    replicas: Mapping[Role, int],
    seed: int,
    horizon_s: float | None = None,
    keep_log: bool = False,
    out: Path | None = None,
    details: bool = True,
    usd_per_busy_s: Mapping[Role, float] | None = None,
    skip_ahead: bool = True,
    rules: FleetRules | None = None,
    tools: ToolTable | None = None,
    gaps: Gaps | None = None,
    meta: Mapping[str, Any] | None = None,
) -> RunResult:
    """Simulate `strategy` on `tasks` until the counted trajectories of `demand` have ended, or until `horizon_s`.

    With `out` the run is written to that folder as it goes, in bounded memory; without `details` the frames `steps` and
    `phases` stay empty.

    Raises
    ------
    InputError
        No tasks, or tasks with different shared prefixes.
    """
    if not tasks:
        raise InputError("a simulation needs at least one task")
    shared = {task.shared_tokens for task in tasks}
    if len(shared) > 1:
        raise InputError(f"all tasks must share one prefix, got lengths {sorted(shared)}")
    env = simpy.Environment()
    recorder = Recorder(out, details=details)
    log = recorder.engine.append if keep_log else None
    requests = recorder.requests.append if details else None
    fleet = Fleet(
        env,
        pricing,
        replicas=replicas,
        shared_tokens=shared.pop(),
        skip_ahead=skip_ahead,
        log=log,
        requests=requests,
        rules=rules,
        seed=seed,
        details=details,
    )
    world = World(env, seed=seed, tools=tools, gaps=gaps)
    agents = Agents(env, fleet, strategy, sizes, verdicts, recorder, usd_per_busy_s)
    random = streams(seed, "order", "arrivals")
    order = task_order(len(tasks), random["order"])
    enough = env.event()
    left = demand.n_trajectories

    def life(number: int) -> Any:
        nonlocal left
        if demand.arrival_rate_per_s is not None and horizon_s is None:
            _keeps_up(env.now, agents, strategy.name, demand.arrival_rate_per_s)
        at = next(order)
        yield from agents.live(number, tasks[at], world.visit(number, at), counted=demand.counts(number))
        if demand.counts(number):
            left -= 1
            if not left:
                enough.succeed()

    demand.start(env, life, enough, random["arrivals"])
    n_events = step_until(env, enough, horizon_s)
    document = {
        "kind": "simulated",
        "strategy": strategy.name,
        "seed": seed,
        "load": {
            "kind": demand.kind,
            "concurrency": demand.concurrency,
            "arrival_rate_per_s": demand.arrival_rate_per_s,
        },
        "n_counted": demand.n_trajectories,
        "n_warmup": demand.n_warmup,
        "end_s": env.now,
        "events": n_events,
        "engines": _engines(fleet, env.now),
        **(meta or {}),
    }
    for record in agents.records:
        recorder.trajectories.append(record.row())
    return recorder.finish(document)


def _keeps_up(now_s: float, agents: Agents, strategy: str, rate_per_s: float) -> None:
    """Raise `InputError` when the system falls behind for good: most of what has come in is still there.

    In a steady state the share still there is time in system / elapsed time; after `_PATIENCE` times of the first
    trajectories it is small unless work piles up.
    """
    started = len(agents.records)
    if started < _ENOUGH or started % max(50, 1 << started.bit_length() - 3):
        return
    ended = [r.finish_s - r.arrival_s for r in agents.records if r.status == "finished"]
    first = sum(ended[:10]) / len(ended[:10]) if ended else 0.0
    if (not ended or now_s > _PATIENCE * first) and len(ended) < (1.0 - _PILED_UP) * started:
        raise InputError(
            f"load.arrival_rate_per_s = {rate_per_s:g} is more than the fleet can serve under {strategy}: after "
            f"{now_s:.0f} s, {started - len(ended)} of {started} trajectories are still there; lower the rate, add "
            "replicas, or set run.horizon_s"
        )


def _engines(fleet: Fleet, end_s: float) -> list[dict[str, Any]]:
    return [
        {
            "role": role.value,
            "replica": i,
            "n_jobs": engine.n_finished,
            "n_rejected": engine.n_rejected,
            "busy_s": engine.busy_s,
            "utilisation": engine.busy_s / end_s if end_s > 0 else 0.0,
        }
        for role, engines in fleet.engines.items()
        for i, engine in enumerate(engines)
    ]
