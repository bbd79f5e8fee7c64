"""Builds what a scenario describes: deployments and APIs, tasks, protocol sizes, acceptance law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.acceptance import AcceptanceLaw
from costmodel.api import Api
from costmodel.deployment import Deployment, deploy, kv_bytes_per_token_per_rank, kv_capacity_tokens
from costmodel.pricing import NetworkLink, Site
from costmodel.protocol import Role
from costmodel.session import ProtocolSizes
from costmodel.speculation import TokenSpeculation, token_speculation
from costmodel.task import Authoring, Task, make_tasks
from costmodel.trajectory import RUNS_FREELY, Workload
from hwprofiles.errors import CapacityError, InputError
from simulator.api_side import api_of
from simulator.scenario import ModelSide, Scenario, TokenDrafts
from simulator.scenario_workload import bounded, workload_of
from simulator.stated_acceptance import stated_acceptance
from simulator.surroundings import recorded_arrivals, round_trip, tool_table, user_gaps, with_tool_means
from simulator.tools import Gaps, ToolTable
from simulator.uncertain import Uncertain

if TYPE_CHECKING:
    from simulator.arrivals import TraceRequest


_REVIEWED = ("step_verification", "spec_agent", "spec_agent_pipelined", "spec_agent_adaptive")


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
    tools, gaps : how tools run and users think, in the order of `tasks`; None: as the steps say, and not at all
    arrivals : recorded arrivals, if the load has them
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
    tools: ToolTable | None = None
    gaps: Gaps | None = None
    arrivals: tuple[TraceRequest, ...] | None = None

    def side(self, role: Role) -> ModelSide:
        """The scenario's section of a role."""
        return self.scenario.weak if role is Role.WEAK else self.scenario.strong

    def label(self, role: Role) -> str:
        """Text for a role's model and where it runs."""
        return self.sites[role].server.label

    @property
    def user_s(self) -> float:
        """Mean user think time of a trajectory, which is in no agent time."""
        return 0.0 if self.gaps is None else sum(map(sum, self.gaps.mean_s)) / len(self.gaps.mean_s)

    @property
    def arrival_rate_per_s(self) -> float | None:
        """Trajectories per second that come in; None for a closed loop."""
        load = self.scenario.load
        if self.arrivals is None:
            return load.arrival_rate_per_s
        return (len(self.arrivals) - 1) / self.arrivals[-1].arrival_s * (load.arrivals_speed or 1.0)

    def devices(self, role: Role, beside: Sequence[Role] = ()) -> int:
        """Devices reserved for a role, replicas included; 0 behind an API, or where the strong model brings them.

        `beside` are the roles that are reserved at the same time.
        """
        if role is Role.WEAK and Role.STRONG in beside and self.scenario.strong.share_devices_with is not None:
            return 0
        server = self.sites[role].server
        return server.n_devices * self.side(role).replicas if isinstance(server, Deployment) else 0


def prepare(scenario: Scenario) -> Case:
    """Build everything a scenario needs; raises `InputError` where it names something unknown or impossible."""
    link = None
    if scenario.link is not None:
        link = NetworkLink(rtt_s=round_trip(scenario.link).value, bytes_per_s=scenario.link.bytes_per_s)
    before = (scenario.link and scenario.link.before) or "strong"
    sites = {
        role: Site(server=_server(scenario, role.value), link=link if before in (role.value, "both") else None)
        for role in Role
    }
    work = workload_of(scenario)
    p = scenario.protocol
    law_, acceptance, rung = stated_acceptance(scenario)
    tasks = tasks_of(scenario, work)
    sizes = ProtocolSizes(p.instruction_tokens, round(p.verdict_tokens.value), p.repair_mode)
    _must_fit(sites, tasks)
    if not set(_REVIEWED).isdisjoint(scenario.strategies):
        _review_must_fit(sites[Role.STRONG].server, tasks, sizes)
    _must_end(tasks, p.window)
    return Case(
        scenario=scenario,
        sites=sites,
        workload=work,
        tasks=tasks,
        sizes=sizes,
        law=law_,
        acceptance=acceptance,
        rung=rung,
        usd_per_h={role: _price(scenario, role, site) for role, site in sites.items()},
        tools=tool_table(scenario, work),
        gaps=user_gaps(scenario.users, work),
        arrivals=recorded_arrivals(scenario.load),
    )


def spread_over_length(tasks: Sequence[Task], n: int) -> list[int]:
    """Numbers of `n` tasks evenly spread over their length, which stand for all; every task where there are no more."""
    order = sorted(range(len(tasks)), key=lambda i: (len(tasks[i].steps), i))
    n = min(n, len(order))
    return [order[int((k + 0.5) * len(order) / n)] for k in range(n)]


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


def _review_must_fit(server: Deployment | Api, tasks: Sequence[Task], sizes: ProtocolSizes) -> None:
    """A verdict on the last step of the longest context can be asked for; without its segment, which may be short."""
    if not isinstance(server, Deployment) or server.model.max_context_tokens is None:
        return
    most, added = server.model.max_context_tokens, sizes.instruction_tokens + sizes.verdict_tokens
    context = max(max(task.contexts[Role.STRONG][: len(task.steps)]) for task in tasks)
    if context + added > most >= context:
        raise InputError(
            f"strong: a review holds up to {context} tokens of context and {added} of protocol.instruction_tokens and "
            f"protocol.verdict_tokens; the model takes {most}"
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
    bounded(work, len(tasks), window)


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
    tasks = make_tasks(work.trajectories, how)
    table = tool_table(scenario, work)
    return tasks if table is None else tuple(map(with_tool_means, tasks, table))


def _server(scenario: Scenario, role: str) -> Deployment | Api:
    side: ModelSide = getattr(scenario, role)
    calibration = scenario.run.calibration
    if side.api is not None:
        return api_of(side)
    assert side.model is not None
    assert side.hardware is not None
    try:
        return deploy(
            side.model,
            side.hardware,
            n_devices=side.n_devices,
            expert_parallel=side.expert_parallel,
            weight_dtype=side.weight_dtype,
            kv_dtype=side.kv_dtype,
            engine_name=side.engine,
            max_seqs=side.max_seqs,
            chunk_tokens=side.chunk_tokens,
            page_tokens=side.page_tokens,
            calibration=None if calibration is None else Path(calibration),
            speculation=_speculation(side.model, side.decode),
            memory_share=side.memory_share,
        )
    except InputError as error:
        error.args = (f"{role}: {error}",)
        raise


def _speculation(model: str, decode: TokenDrafts | None) -> TokenSpeculation | None:
    if decode is None:
        return None
    return token_speculation(
        model,
        decode.method,
        length=decode.length,
        acceptance=decode.acceptance,
        draft_model=decode.draft_model,
        draft_weight_dtype=decode.draft_weight_dtype,
    )


def _price(scenario: Scenario, role: Role, site: Site) -> float | None:
    side = scenario.weak if role is Role.WEAK else scenario.strong
    if isinstance(site.server, Api):
        return 0.0
    if side.usd_per_h is not None:
        return side.usd_per_h
    fact = site.server.hardware.usd_per_h
    return fact.value if fact else None
