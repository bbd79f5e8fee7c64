"""Importer of tau-bench (the first one) results: an assistant message is a step; no token counts, no times.

The files do not name their domain. Where every tool that was called is one that tau2 declares for retail, or for
airline, those declarations are used (tau2 took the tools over with their names).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulator.effects import declared_tools
from simulator.traces.entries import entries
from simulator.traces.load import TraceFile
from simulator.traces.messages import said
from simulator.traces.raw import RawCall, RawStep, RawTrajectory, Warnings
from simulator.traces.values import count, first_count, items, label, mapping, number, optional

NAME = "tau_bench"
DESCRIPTION = "tau-bench results (a list of tasks with traj)"
LISTS = ("results",)


def looks_like(sample: object) -> bool:
    """Whether a parsed document, line or list element is a task's result."""
    return isinstance(sample, dict) and "task_id" in sample and isinstance(sample.get("traj"), list)


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories of result files."""
    for source in sources:
        for entry in entries(source, *LISTS):
            yield _trajectory(mapping(entry.value, entry.where), entry.where, warnings)


def _trajectory(found: dict[str, object], where: str, warnings: Warnings) -> RawTrajectory:
    task = label(found.get("task_id"), f"{where}: task_id")
    trial = optional(count, found.get("trial"), f"{where}: trial")
    raw = RawTrajectory(
        id=f"task-{task}" + (f"-trial{trial}" if trial else ""),
        task=task,
        trial=trial,
        outcome=optional(number, found.get("reward"), f"{where}: reward"),
    )
    asked: dict[str, RawCall] = {}
    for i, value in enumerate(items(found.get("traj"), f"{where}: traj")):
        place = f"{where}: traj[{i}]"
        message = mapping(value, place)
        if message.get("role") == "assistant":
            heard = said(message, place)
            usage = message.get("usage")
            step = RawStep(where=f"{where}, step {len(raw.steps)}", calls=heard.calls, spoke=heard.spoke)
            step.prompt_tokens = first_count(place, [usage], "prompt_tokens")
            step.output_tokens = first_count(place, [usage], "completion_tokens")
            raw.steps.append(step)
            asked.update({c.id: c for c in heard.calls if c.id is not None})
        elif message.get("role") == "tool":
            call = asked.get(str(message.get("tool_call_id")))
            content = message.get("content")
            if call is None:
                warnings.add("a tool result answers no call", place)
            elif isinstance(content, str):
                call.error = content.lstrip().startswith("Error")
    raw.declared = _declared(raw)
    if raw.declared is not None:
        raw.domain = raw.declared.partition(":")[2]
    return raw


def _declared(raw: RawTrajectory) -> str | None:
    called = {c.name for s in raw.steps for c in s.calls}
    for name in ("tau2:retail", "tau2:airline"):
        if called and called <= declared_tools(name)[0].keys():
            return name
    return None
