"""Builds what a scenario describes: deployments and APIs, tasks, protocol sizes, acceptance law."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from costmodel.acceptance import PRIOR_LAW, PRIOR_MEAN, AcceptanceLaw, logit
from costmodel.api import Api, api
from costmodel.deployment import Deployment, deploy, kv_bytes_per_token_per_rank, kv_capacity_tokens
from costmodel.pricing import NetworkLink, Site
from costmodel.protocol import Role
from costmodel.quality import implied_acceptance
from costmodel.session import ProtocolSizes
from costmodel.task import Authoring, Task, make_tasks
from costmodel.trajectory import RUNS_FREELY, Workload
from hwprofiles.errors import CapacityError, InputError, ProfileError
from simulator.effects import EffectMap
from simulator.effects_file import effects_from_table
from simulator.law import draw, law, law_names
from simulator.scenario import ModelSide, Quality, Scenario
from simulator.traces.read import read_trace, reclassified
from simulator.uncertain import Uncertain
from simulator.workloads import rescale, workload, workload_names

_LAW_KEYS = ("steps", "write_share", "reply_share", "output_tokens", "observation_tokens", "context_tokens")
_N_DRAWN = 100
_MOST_WORK = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A scenario made ready.

    Parameters
    ----------
    sites : where each role runs
    workload, tasks : the neutral trajectories and the same as tasks
    sizes : token counts of the protocol
    law, acceptance : shape and mean of acceptance; `rung` says what it stands on
    usd_per_h : price of one device per role, None where no price is known
    """

    scenario: Scenario
    sites: Mapping[Role, Site]
    workload: Workload
    tasks: tuple[Task, ...]
    sizes: ProtocolSizes
    law: AcceptanceLaw
    acceptance: Uncertain
    rung: str
    usd_per_h: Mapping[Role, float | None]

    def side(self, role: Role) -> ModelSide:
        """The scenario's section of a role."""
        return self.scenario.weak if role is Role.WEAK else self.scenario.strong

    def label(self, role: Role) -> str:
        """Text for a role's model and where it runs."""
        return self.sites[role].server.label

    def devices(self, role: Role) -> int:
        """Devices reserved for a role, replicas included; 0 behind an API."""
        server = self.sites[role].server
        return server.n_devices * self.side(role).replicas if isinstance(server, Deployment) else 0


def prepare(scenario: Scenario) -> Case:
    """Build everything a scenario needs; raises `InputError` where it names something unknown or impossible."""
    link = None
    if scenario.link is not None:
        link = NetworkLink(rtt_s=scenario.link.rtt_s.value, bytes_per_s=scenario.link.bytes_per_s)
    sites = {
        Role.WEAK: Site(server=_server(scenario, "weak")),
        Role.STRONG: Site(server=_server(scenario, "strong"), link=link),
    }
    work = _workload(scenario)
    p = scenario.protocol
    law_, acceptance, rung = _acceptance(scenario)
    tasks = tasks_of(scenario, work)
    _must_fit(sites, tasks)
    _must_end(tasks, p.window)
    return Case(
        scenario=scenario,
        sites=sites,
        workload=work,
        tasks=tasks,
        sizes=ProtocolSizes(p.instruction_tokens, round(p.verdict_tokens.value), p.repair_mode),
        law=law_,
        acceptance=acceptance,
        rung=rung,
        usd_per_h={role: _price(scenario, role, site) for role, site in sites.items()},
    )


def longest_context(tasks: Sequence[Task], role: Role) -> int:
    """Most tokens a request of this role holds, its own output included."""
    return max(
        context + step.decoded(role)
        for task in tasks
        for context, step in zip(task.contexts[role], task.steps, strict=False)
    )


def _must_fit(sites: Mapping[Role, Site], tasks: Sequence[Task]) -> None:
    """The longest context fits the KV cache of each role's devices."""
    for role, site in sites.items():
        if not isinstance(site.server, Deployment):
            continue
        longest, room = longest_context(tasks, role), kv_capacity_tokens(site.server)
        most = site.server.model.max_context_tokens
        if most is not None and longest > most:
            raise InputError(f"{role}: the longest context of the workload is {longest} tokens; the model takes {most}")
        if longest > room:
            each = kv_bytes_per_token_per_rank(site.server)
            raise CapacityError(
                f"{role}: the longest context of the workload is {longest} tokens and the KV cache of "
                f"{site.server.label} holds {room}; use more devices, a smaller kv_dtype or shorter contexts",
                needed_bytes=longest * each,
                available_bytes=room * each,
            )


def _must_end(tasks: Sequence[Task], window: int) -> None:
    """A plan replays every reachable segment with every verdict: about sum (n + 1)(n + 2) / 2 drafted steps."""
    work = 0
    for task in tasks:
        free = 0
        for step in reversed(task.steps):
            free = free + 1 if step.effect in RUNS_FREELY else 1
            n = min(window, free)
            work += (n + 1) * (n + 2) // 2
    _bounded(work, len(tasks), window)


def _bounded(work: float, n: int, window: int) -> None:
    if work > _MOST_WORK:
        raise InputError(
            f"workload: {n} trajectories at window {window} need about {work:.0f} replayed steps, more than "
            f"{_MOST_WORK}; lower workload.n, workload.steps or protocol.window"
        )


def tasks_of(
    scenario: Scenario, work: Workload, *, thinking: float | None = None, verbosity: float | None = None
) -> tuple[Task, ...]:
    """Tasks of a workload as the scenario's models would write it; `thinking` and `verbosity` override its own."""
    w = scenario.workload
    if thinking is None and w.thinking_tokens is not None:
        thinking = w.thinking_tokens.value
    if verbosity is None and w.verbosity is not None:
        verbosity = w.verbosity.value
    how = Authoring(
        thinking_tokens=thinking,
        weak_thinks=scenario.weak.thinking,
        strong_thinks=scenario.strong.thinking,
        verbosity=verbosity,
        weak_prompt_tokens=scenario.weak.prompt_tokens,
        strong_prompt_tokens=scenario.strong.prompt_tokens,
        shared_prefix_tokens=w.shared_prefix_tokens,
    )
    return make_tasks(work.trajectories, how)


def _server(scenario: Scenario, role: str) -> Deployment | Api:
    side: ModelSide = getattr(scenario, role)
    calibration = scenario.run.calibration
    if side.api is not None:
        found = api(side.api)
        if side.prices is None:
            return found
        own = {f"{k}_usd": getattr(side.prices, k) for k in ("input", "cached", "cache_write", "output")}
        return replace(found, **{k: v / 1e6 for k, v in own.items() if v is not None})
    assert side.model is not None
    assert side.hardware is not None
    try:
        return deploy(
            side.model,
            side.hardware,
            n_devices=side.n_devices,
            weight_dtype=side.weight_dtype,
            kv_dtype=side.kv_dtype,
            engine_name=side.engine,
            max_seqs=side.max_seqs,
            chunk_tokens=side.chunk_tokens,
            calibration=None if calibration is None else Path(calibration),
        )
    except InputError as error:
        error.args = (f"{role}: {error}",)
        raise


def _price(scenario: Scenario, role: Role, site: Site) -> float | None:
    side = scenario.weak if role is Role.WEAK else scenario.strong
    if isinstance(site.server, Api):
        return 0.0
    if side.usd_per_h is not None:
        return side.usd_per_h
    fact = site.server.hardware.usd_per_h
    return fact.value if fact else None


def _workload(scenario: Scenario) -> Workload:
    w = scenario.workload
    if w.law is not None:
        chosen = {k: getattr(w, k) for k in _LAW_KEYS if getattr(w, k) is not None}
        if scenario.tools.latency_s is not None:
            chosen["tool_latency_s"] = scenario.tools.latency_s
        base, n = law(w.law).with_(**chosen), w.n or _N_DRAWN
        _bounded(3 * n * base.steps, n, 1)
        return draw(base, n, w.seed)
    assert w.trace is not None
    found = _trace(w.trace, w.format, _effects(scenario))
    found = rescale(
        found,
        output_tokens=w.output_tokens,
        observation_tokens=w.observation_tokens,
        context_tokens=w.context_tokens,
        tool_latency_s=scenario.tools.latency_s,
    )
    kept = [t for t in found.trajectories if t.steps]
    if not kept:
        raise InputError(f"workload.trace {w.trace!r} holds no step")
    return replace(found, trajectories=tuple(kept[: w.n] if w.n else kept))


def _trace(name: str, format_: str | None, effects: EffectMap | None) -> Workload:
    if name in law_names():
        raise InputError(f"workload.trace = {name!r} is a law; write workload.law = {name!r}")
    if name in workload_names():
        if format_ is not None:
            raise ProfileError(f"workload.format has no effect on the bundled workload {name!r}")
        found = workload(name)
        return reclassified(found, effects) if effects else found
    if not Path(name).exists():
        return workload(name)
    return read_trace([Path(name)], format=format_, effects=effects).workload


def _effects(scenario: Scenario) -> EffectMap | None:
    section = scenario.effects
    table: dict[str, object] = {"effects": dict(section.map)}
    if section.mcp_tools is not None:
        table["tools_list"] = [section.mcp_tools]
    if not section.map and section.mcp_tools is None:
        return None
    return effects_from_table(table, where="scenario effects", folder=Path())


@lru_cache(maxsize=1)
def prior() -> Uncertain:
    """The acceptance prior when nothing is known."""
    value, low, high = PRIOR_MEAN
    source = (
        "agreement of recorded model pairs (0.81 to 0.96 per call) and of a model with its own rerun (0.87 to 0.93)"
    )
    return Uncertain(value=value, low=low, high=high, tier="assumed", source=source)


def _acceptance(scenario: Scenario) -> tuple[AcceptanceLaw, Uncertain, str]:
    """The acceptance law, its mean, and the rung it stands on: prior, [quality], measured, or the scenario's word."""
    p, q = scenario.protocol, scenario.quality
    by_position = p.acceptance_by_position
    if p.acceptance is None and by_position is None and q != type(q)():
        return AcceptanceLaw(), _implied(q), "implied by [quality]"
    if p.acceptance is None and by_position is None:
        return (
            PRIOR_LAW,
            prior(),
            (
                "prior: nothing of this workload has been measured "
                "(writes are kept less often, and so is a segment's first step)"
            ),
        )
    shape = (
        AcceptanceLaw() if by_position is None else AcceptanceLaw(position_logits=tuple(logit(x) for x in by_position))
    )
    if p.acceptance is None:
        assert by_position is not None
        mean = sum(by_position) / len(by_position)
        return shape, Uncertain(value=mean, low=mean, high=mean, source="scenario: acceptance_by_position"), "scenario"
    band = p.acceptance
    _agrees_with_quality(scenario, band, q != type(q)())
    return shape, band, f"{band.tier}: {band.source}"


def _implied(q: Quality) -> Uncertain:
    """Acceptance that the hazards of [quality] imply, their independent bands combined to first order."""
    names = ("weak_hazard", "detection", "false_reject")
    central = {name: getattr(q, name).value for name in names}
    value = float(implied_acceptance(**central))
    moves = [
        float(implied_acceptance(**{**central, name: getattr(getattr(q, name), end)})) - value
        for name in names
        for end in ("low", "high")
    ]
    down = math.sqrt(sum(m**2 for m in moves if m < 0))
    up = math.sqrt(sum(m**2 for m in moves if m > 0))
    low, high = max(0.0, value - down), min(1.0, value + up)
    return Uncertain(value=value, low=low, high=high, source="hazards of [quality]")


def _agrees_with_quality(scenario: Scenario, band: Uncertain, given: bool) -> None:
    """[quality] and acceptance are two sources for one thing unless they agree to 0.01."""
    if not given:
        return
    q = scenario.quality
    implied = float(implied_acceptance(q.weak_hazard.value, q.detection.value, q.false_reject.value))
    if abs(implied - band.value) > 0.01:
        raise ProfileError(
            f"[quality] implies acceptance {implied:.3f} and protocol.acceptance says {band.value:.3f}: "
            "two sources for one thing; give one or make them agree"
        )
