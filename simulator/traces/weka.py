"""Importer of Weka (SemiAnalysis) agentic coding traces: one object a session, its `requests` are the steps.

`stop = "tool_use"` says that a step called a tool, not which, so it is held; other steps spoke. `think_time` is the
client's time before a request: after a tool step the tools', after a reply the user's. Subagents are their own
trajectories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulator.traces.entries import entries
from simulator.traces.load import TraceFile
from simulator.traces.raw import RawCall, RawStep, RawTrajectory, Warnings
from simulator.traces.values import count, items, label, mapping, optional, seconds, words

NAME = "weka"
DESCRIPTION = "Weka / SemiAnalysis agentic traces (an object with requests a session)"
LISTS: tuple[str, ...] = ()
TOOL = "tool"
"""Name of the calls whose names the format does not keep."""


def looks_like(sample: object) -> bool:
    """Whether a parsed document or line is a session."""
    return (
        isinstance(sample, dict)
        and isinstance(sample.get("requests"), list)
        and ("hash_id_scope" in sample or "block_size" in sample or ("id" in sample and "models" in sample))
    )


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories of session files."""
    for source in sources:
        for entry in entries(source):
            found = mapping(entry.value, entry.where)
            yield from _session(found, label(found.get("id"), f"{entry.where}: id"), entry.where, warnings, None)


def _session(
    found: dict[str, object], name: str, where: str, warnings: Warnings, domain: str | None
) -> Iterator[RawTrajectory]:
    raw = RawTrajectory(id=name, task=name.partition("/")[0], domain=domain, missing=["tools"])
    inner = []
    for i, value in enumerate(items(found.get("requests"), f"{where}: requests")):
        place = f"{where}: requests[{i}]"
        request = mapping(value, place)
        if request.get("type") == "subagent":
            agent = optional(label, request.get("agent_id"), f"{place}: agent_id") or str(i)
            if domain is None:
                kind = words(request.get("subagent_type")) or "subagent"
                inner.append((request, f"{name}/{agent}", place, kind))
        else:
            _request(request, raw, place)
    yield raw
    for request, agent, place, kind in inner:
        warnings.add("subagents are trajectories of their own", place)
        yield from _session(request, agent, place, warnings, kind)


def _request(found: dict[str, object], raw: RawTrajectory, where: str) -> None:
    step = RawStep(
        where=where,
        prompt_tokens=optional(count, found.get("in", found.get("input_length")), f"{where}: in"),
        output_tokens=optional(count, found.get("out", found.get("output_length")), f"{where}: out"),
        model=words(found.get("model")),
    )
    at = optional(seconds, found.get("t"), f"{where}: t")
    took = optional(seconds, found.get("api_time"), f"{where}: api_time")
    step.start_s = at
    step.end_s = None if at is None or took is None else at + took
    think = optional(seconds, found.get("think_time"), f"{where}: think_time")
    before = raw.steps[-1] if raw.steps else None
    if before is not None and think is not None:
        if before.calls:
            before.calls[0].latency_s = think
            step.user_gap_s = 0.0
        else:
            step.user_gap_s = think
    if found.get("stop") == "tool_use":
        step.calls.append(RawCall(name=TOOL))
    elif found.get("stop") in ("end_turn", "stop", "stop_sequence", "max_tokens"):
        step.spoke = True
    else:
        step.told = False
    raw.steps.append(step)
