"""From a scenario's [tools], [users] and [link] to rules, tables and means; what of it only a simulation shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costmodel.task import Task
from costmodel.trajectory import Effect, Step, Workload
from hwprofiles.errors import InputError, unknown_name
from simulator.latency import Constant, Law, Lognormal, Pareto, empirical, read_times
from simulator.scenario import Scenario
from simulator.scenario_checks import merged
from simulator.scenario_world import LinkSection, Load, ToolKeys, Users
from simulator.tools import Gaps, Rule, Timed, ToolTable
from simulator.uncertain import Uncertain

if TYPE_CHECKING:
    from simulator.arrivals import TraceRequest

_OVERLAPPING = ("step_speculation", "spec_agent_pipelined")
_MEAN_ONLY = frozenset({"latency_s", "by_effect", "by_tool"})


def tool_table(scenario: Scenario, work: Workload) -> ToolTable | None:
    """How each step's tools run; None when every tool takes the time its step states.

    A step's calls run side by side and count as one run, under the rule with the largest mean among theirs.

    Raises
    ------
    InputError
        A tool name that matches no tool of the workload, or an empirical law without times.
    """
    tools = scenario.tools
    if not tools.by_effect and not tools.by_tool and not _has_rule(tools):
        return None
    known = sorted({call.name for t in work.trajectories for s in t.steps for call in s.tools})
    for pattern in tools.by_tool:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise unknown_name("tools.by_tool", pattern, known)
    own = [s.tool_s for t in work.trajectories for s in t.steps if s.tools and s.tool_s is not None]
    rules = _Rules(scenario, own)
    return tuple(tuple(rules.of(step) for step in t.steps) for t in work.trajectories)


def _has_rule(keys: ToolKeys) -> bool:
    """Whether anything but the mean is said."""
    names = (name for name in ToolKeys.__dataclass_fields__ if name not in _MEAN_ONLY)
    return any(getattr(keys, name) is not None for name in names)


class _Rules:
    """The rules of a scenario, each made once."""

    def __init__(self, scenario: Scenario, own_s: Sequence[float]) -> None:
        self.tools = scenario.tools
        self.own_s = own_s
        self.made: dict[str, tuple[Rule, float | None]] = {}

    def of(self, step: Step) -> Timed | None:
        """The rule of a step and the mean of its answers; None where it runs no tool."""
        own_s = step.tool_s or 0.0
        if not step.tools and own_s <= 0:
            return None
        calls = [(call.name, call.effect) for call in step.tools] or [("", step.effect)]
        found = [self._timed(name, effect, own_s) for name, effect in dict.fromkeys(calls)]
        return max(found, key=lambda timed: timed.rule.mean_s(timed.mean_s))

    def _timed(self, name: str, effect: Effect, own_s: float) -> Timed:
        where, keys = "tools", None
        pattern = next((p for p in self.tools.by_tool if name and fnmatchcase(name, p)), None)
        if pattern is not None:
            where, keys = f"tools.by_tool.{pattern}", self.tools.by_tool[pattern]
        elif effect.value in self.tools.by_effect:
            where, keys = f"tools.by_effect.{effect}", dict(self.tools.by_effect)[effect.value]
        if where not in self.made:
            self.made[where] = self._make(where, self.tools if keys is None else merged(self.tools, keys))
        rule, mean_s = self.made[where]
        return Timed(rule, own_s if mean_s is None else mean_s)

    def _make(self, where: str, t: ToolKeys) -> tuple[Rule, float | None]:
        given = {k: getattr(t, k) for k in ("sigma", "shape", "spread")}
        name = t.law or "trace"
        law, mean_s = _law(name, given, t.latency_s, t.latency_file, self.own_s, f"{where}: the workload's tool times")
        return (
            Rule(
                name=where,
                law=law,
                timeout_s=math.inf if t.timeout_s is None else t.timeout_s,
                retries=t.retries or 0,
                backoff_s=t.backoff_s or 0.0,
                failure=t.failure or 0.0,
                failure_s=t.failure_s,
                hang=t.hang or 0.0,
                concurrency=t.concurrency,
            ),
            None if name == "trace" else mean_s,
        )


def _law(
    name: str, given: Mapping[str, Any], mean_s: float | None, file: str | None, own_s: Sequence[float], where: str
) -> tuple[Law, float | None]:
    """A law of mean 1 and its mean in seconds; None for each step's own."""
    if name == "lognormal":
        return Lognormal(given["sigma"]), mean_s
    if name == "pareto":
        return Pareto(given["shape"], given["spread"]), mean_s
    if name == "empirical":
        times = read_times(file) if file is not None else own_s
        law, recorded_s = empirical(times, file if file is not None else where)
        return law, recorded_s if mean_s is None else mean_s
    return Constant(), mean_s


def user_gaps(users: Users | None, work: Workload) -> Gaps | None:
    """User think time before each step; None without [users].

    Raises
    ------
    InputError
        The workload records no gaps, or has no reply that a step follows, where those are asked for.
    """
    if users is None:
        return None
    recorded = [s.user_gap_s for t in work.trajectories for s in t.steps[1:] if s.user_gap_s]
    given = {k: getattr(users, k) for k in ("sigma", "shape", "spread")}
    needs_own = users.law == "trace" or (users.gap_s is None and users.gap_file is None)
    if needs_own and not recorded:
        raise InputError(f"users.law = {users.law!r}: the workload records no user gaps; give users.gap_s and a law")
    law, mean_s = _law(users.law, given, users.gap_s, users.gap_file, recorded, "the workload's user gaps")
    means = []
    for t in work.trajectories:
        replied = [False, *(s.effect is Effect.REPLY for s in t.steps[:-1])]
        if mean_s is None:
            means.append(tuple(0.0 if i == 0 else s.user_gap_s or 0.0 for i, s in enumerate(t.steps)))
        else:
            means.append(tuple(mean_s if after else 0.0 for after in replied))
    if not any(map(any, means)):
        raise InputError("users has no effect: no step of the workload follows a reply")
    return Gaps(law, tuple(means))


def jitter_law(link: LinkSection) -> Law | None:
    """The law of a link's jitter; None without."""
    if not link.jitter_s:
        return None
    given = {k: getattr(link, f"jitter_{k}") for k in ("sigma", "shape", "spread")}
    return _law(link.jitter_law or "", given, None, None, (), "link")[0]


def round_trip(link: LinkSection) -> Uncertain:
    """Mean round-trip time with its band, jitter included."""
    if not link.jitter_s:
        return link.rtt_s
    band, more = link.rtt_s, link.jitter_s
    return Uncertain(
        value=band.value + more,
        low=band.low + more,
        high=band.high + more,
        tier=band.tier,
        source=f"{band.source}; with mean jitter {more:g} s",
    )


def simulated_only(scenario: Scenario) -> tuple[str, ...]:
    """What the scenario says that has an effect in simulation only, in words."""
    tools, link, load = scenario.tools, scenario.link, scenario.load
    found = []
    tables = (tools, *tools.by_effect.values(), *tools.by_tool.values())
    if any(t.concurrency is not None for t in tables):
        found.append("waiting for tool slots (concurrency)")
    if link is not None and link.outage_s is not None:
        found.append("link outages")
    if scenario.strong.share_devices_with is not None:
        found.append("turns on shared devices")
    for role, side in (("weak", scenario.weak), ("strong", scenario.strong)):
        if side.limits is not None:
            found.append(f"rate limits of {role}")
        if side.cache_ttl_s is not None:
            found.append(f"{role}.cache_ttl_s")
        if side.router is not None or side.route_per is not None:
            found.append(f"{role}.router")
    if scenario.users is not None:
        found.append("what users' think time does to caches and load")
    if load.arrivals is not None:
        found.append("recorded arrivals")
    return tuple(found)


def must_be_simulated(scenario: Scenario) -> bool:
    """Whether even one agent alone may have to wait for something that no expectation covers."""
    link, sides = scenario.link, (scenario.weak, scenario.strong)
    waits = link is not None and link.outage_s is not None
    limited = any(side.limits is not None or side.cache_ttl_s is not None for side in sides)
    shared = scenario.strong.share_devices_with is not None
    return waits or limited or shared or scenario.load.arrivals is not None


def notes(scenario: Scenario, table: ToolTable | None, *, simulated: bool) -> list[str]:
    """What to know about times that depend on tools, users, links and limits."""
    found = []
    only = simulated_only(scenario)
    if only:
        where = "time_s, not in time_alone_s" if simulated else "`specroof simulate`; this plan leaves it out"
        found.append(f"only a simulation shows {', '.join(only)}: it is in {where}")
    rules = {timed.rule.name: timed.rule for row in table or () for timed in row if timed is not None}
    spread = any(not isinstance(r.law, Constant) or r.failure or r.hang for r in rules.values())
    overlapping = [name for name in scenario.strategies if name in _OVERLAPPING]
    if overlapping and (spread or (scenario.link is not None and scenario.link.jitter_s)):
        found.append(
            f"{' and '.join(overlapping)} let tools and links run beside other work: an expected time takes the mean "
            "of each where the longer one counts, so it is a lower bound; a simulation draws them"
        )
    if any(rule.can_hang_for_ever for rule in rules.values()):
        found.append(
            "tools can hang and have no timeout_s: such trajectories fail, and times are means of the runs that end"
        )
    return found


def load_document(load: Load, rate_per_s: float | None) -> dict[str, Any]:
    """The load that a result is for, its kind named."""
    kind = "closed" if rate_per_s is None else "poisson"
    if load.arrivals is not None:
        kind = "recorded_sessions" if load.sessions else "recorded"
    concurrency = (load.concurrency or 1) if kind == "closed" else None
    return {"kind": kind, "concurrency": concurrency, "arrival_rate_per_s": rate_per_s}


def with_tool_means(task: Task, row: Sequence[Timed | None]) -> Task:
    """A task whose tools take the means of their rules."""
    means = [0.0 if timed is None else timed.rule.mean_s(timed.mean_s) for timed in row]
    return replace(task, steps=tuple(replace(s, tool_s=m) for s, m in zip(task.steps, means, strict=True)))


@lru_cache(maxsize=4)
def _recorded(path: str, _modified_ns: int) -> tuple[TraceRequest, ...]:
    from simulator.arrivals import read_requests

    return tuple(read_requests(path))


def recorded_arrivals(load: Load) -> tuple[TraceRequest, ...] | None:
    """The recorded arrivals of a load."""
    if load.arrivals is None:
        return None
    path = Path(load.arrivals)
    found = _recorded(load.arrivals, path.stat().st_mtime_ns if path.exists() else 0)
    if len(found) < 2 or found[-1].arrival_s <= 0:
        raise InputError(f"load.arrivals: {path.name} must hold two arrivals at different times, got {len(found)}")
    if load.sessions and all(r.session is None for r in found):
        raise InputError(f"load.sessions has no effect: {path.name} names no session")
    return found
