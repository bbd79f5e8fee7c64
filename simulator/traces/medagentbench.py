"""Importer of MedAgentBench runs: a turn is a step, a FHIR GET reads, a POST writes, `finish` answers.

There are no token counts. A turn records how long its LLM call took, not when it began, so steps stand back to back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulator.traces.entries import entries
from simulator.traces.load import TraceFile
from simulator.traces.raw import RawCall, RawStep, RawTrajectory, Warnings
from simulator.traces.values import items, label, mapping, optional, seconds, words

NAME = "medagentbench"
DESCRIPTION = "MedAgentBench runs (a list of tasks with turns)"
LISTS = ("tasks",)


def looks_like(sample: object) -> bool:
    """Whether a parsed document, line or list element is a task's run."""
    if not isinstance(sample, dict) or "task_id" not in sample or not isinstance(sample.get("turns"), list):
        return False
    turns = sample["turns"]
    return not turns or (isinstance(turns[0], dict) and "action_kind" in turns[0])


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories of run files."""
    for source in sources:
        for entry in entries(source, *LISTS):
            yield _trajectory(mapping(entry.value, entry.where), entry.where, warnings)


def _trajectory(found: dict[str, object], where: str, warnings: Warnings) -> RawTrajectory:
    task = label(found.get("task_id"), f"{where}: task_id")
    correct = found.get("correct")
    raw = RawTrajectory(
        id=task,
        task=task,
        domain="medagentbench",
        outcome=float(correct) if isinstance(correct, bool) else None,
        declared="medagentbench",
        missing=["tool_times"],
    )
    model = words(found.get("model"))
    at = 0.0
    for i, value in enumerate(items(found.get("turns"), f"{where}: turns")):
        place = f"{where}: turns[{i}]"
        turn = mapping(value, place)
        took = optional(seconds, turn.get("latency_ms"), f"{place}: latency_ms")
        kind = turn.get("action_kind")
        step = RawStep(where=place, model=model, spoke=kind == "finish")
        if took is not None:
            step.start_s, at = at, at + took / 1000
            step.end_s = at
        if kind in ("get", "post", "put", "patch", "delete"):
            given = {"method": str(kind).upper(), "url": turn.get("url"), "payload": turn.get("payload")}
            step.calls.append(RawCall(name="fhir", arguments=given))
        elif kind not in ("finish", "invalid"):
            warnings.add("turns of an unknown kind do nothing", place)
        raw.steps.append(step)
    return raw
