"""The neutral trajectory format itself, as JSON, JSON Lines or Parquet.

JSON is one object: `schema` = "specroof.trajectories/1", `name`, `kind`, `source`, `notes`, `trajectories`. JSON Lines
has the same object without `trajectories` on the first line and one trajectory on each further line. Parquet has one
row per step with its trajectory's columns beside it, and the first object in the file's metadata. Fields that a source
could not tell are absent, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from costmodel.trajectory import Effect, Step, ToolCall, Trajectory, Workload
from hwprofiles.errors import InputError, unknown_name
from simulator.traces.entries import entries, peek
from simulator.traces.load import TraceFile
from simulator.traces.values import bad, count, flag, items, mapping, number, optional, seconds, text

NAME = "neutral"
DESCRIPTION = "specroof's own neutral trajectories"
SCHEMA = "specroof.trajectories/1"
_TOP = ("schema", "name", "kind", "source", "notes", "trajectories")
_TRAJECTORY = ("id", "source_format", "domain", "task", "trial", "outcome", "missing", "steps")
_TOKENS = ("prompt_tokens", "cached_prompt_tokens", "output_tokens", "visible_tokens", "observation_tokens")
_TIMES = ("tool_s", "start_s", "end_s", "user_gap_s")
_STEP = ("index", "effect", *_TOKENS, "tools", *_TIMES, "model", "valid")
_TOOL = ("name", "effect", "latency_s", "error", "arguments")


def looks_like(sample: object) -> bool:
    """Whether a parsed document (or the first line of one) is neutral trajectories."""
    return (
        isinstance(sample, dict) and isinstance(sample.get("schema"), str) and "trajectories" in str(sample["schema"])
    )


def to_document(workload: Workload) -> dict[str, Any]:
    """A workload as plain values; None, False and empty fields are left out."""
    return {**head_document(workload), "trajectories": [trajectory_document(t) for t in workload.trajectories]}


def head_document(workload: Workload) -> dict[str, Any]:
    """What stands around the trajectories, as plain values."""
    head: dict[str, Any] = {"schema": SCHEMA, "name": workload.name, "kind": workload.kind, "source": workload.source}
    return {**head, "notes": list(workload.notes)}


def trajectory_document(trajectory: Trajectory) -> dict[str, Any]:
    """A trajectory as plain values."""
    found: dict[str, Any] = {k: getattr(trajectory, k) for k in _TRAJECTORY[:6]}
    found["missing"] = list(trajectory.missing)
    found["steps"] = [_step_document(s) for s in trajectory.steps]
    return {k: v for k, v in found.items() if v is not None}


def _step_document(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = {k: getattr(step, k) for k in _STEP}
    found["effect"] = step.effect.value
    found["tools"] = [_tool_document(t) for t in step.tools] or None
    return {k: v for k, v in found.items() if v is not None}


def _tool_document(tool: ToolCall) -> dict[str, Any]:
    found: dict[str, Any] = {k: getattr(tool, k) for k in _TOOL}
    found["effect"] = tool.effect.value
    return {k: v for k, v in found.items() if v is not None}


def _keys(found: dict[str, object], allowed: tuple[str, ...], required: tuple[str, ...], where: str) -> None:
    for key in found:
        if key not in allowed:
            raise InputError(f"{where}: {unknown_name('key', str(key), allowed)}")
    for key in required:
        if key not in found:
            raise InputError(f"{where}: {key!r} is missing")


def from_document(value: object, where: str) -> Workload:
    """The workload in a parsed JSON document.

    Raises
    ------
    InputError
        If a key is unknown or missing, a value is out of range, an id occurs twice or step numbers have gaps.
    """
    document = mapping(value, where)
    _keys(document, _TOP, ("schema", "name", "trajectories"), where)
    found = items(document["trajectories"], f"{where}: trajectories")
    return _workload(document, ((f"{where}: trajectories[{i}]", entry) for i, entry in enumerate(found)), where)


def _workload(head: dict[str, object], entries_: Iterable[tuple[str, object]], where: str) -> Workload:
    empty = _checked(head, where)
    return replace(empty, trajectories=tuple(_distinct(entries_, set())))


def _checked(head: dict[str, object], where: str) -> Workload:
    """What the document says around its trajectories, as a workload without any."""
    if head["schema"] != SCHEMA:
        raise bad(f"{where}: schema", repr(SCHEMA), head["schema"])
    kind = head.get("kind", "trace")
    if kind not in ("trace", "law"):
        raise bad(f"{where}: kind", "'trace' or 'law'", kind)
    return Workload(
        name=text(head["name"], f"{where}: name"),
        trajectories=(),
        kind=str(kind),
        source=text(head.get("source", ""), f"{where}: source"),
        notes=tuple(text(n, f"{where}: notes") for n in items(head.get("notes", []), f"{where}: notes")),
    )


def _distinct(entries_: Iterable[tuple[str, object]], seen: set[str]) -> Iterator[Trajectory]:
    for place, entry in entries_:
        trajectory = _trajectory(entry, place)
        if trajectory.id in seen:
            raise InputError(f"{place.partition(':')[0]}: trajectory id {trajectory.id!r} occurs twice")
        seen.add(trajectory.id)
        yield trajectory


def _trajectory(value: object, where: str) -> Trajectory:
    found = mapping(value, where)
    _keys(found, _TRAJECTORY, ("id", "source_format", "steps"), where)
    steps = items(found["steps"], f"{where}.steps")
    return Trajectory(
        id=text(found["id"], f"{where}.id"),
        source_format=text(found["source_format"], f"{where}.source_format"),
        domain=optional(text, found.get("domain"), f"{where}.domain"),
        task=optional(text, found.get("task"), f"{where}.task"),
        trial=optional(count, found.get("trial"), f"{where}.trial"),
        outcome=optional(number, found.get("outcome"), f"{where}.outcome"),
        missing=tuple(text(m, f"{where}.missing") for m in items(found.get("missing", []), f"{where}.missing")),
        steps=tuple(_step(step, i, f"{where}.steps[{i}]") for i, step in enumerate(steps)),
    )


def _effect(value: object, where: str) -> Effect:
    try:
        return Effect(text(value, where))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: {unknown_name('effect', str(value), [e.value for e in Effect])}") from None


def _step(value: object, index: int, where: str) -> Step:
    found = mapping(value, where)
    _keys(found, _STEP, ("index", "effect"), where)
    if found["index"] != index or isinstance(found["index"], bool):
        raise bad(f"{where}.index", str(index), found["index"])
    tokens: dict[str, Any] = {key: optional(count, found.get(key), f"{where}.{key}") for key in _TOKENS}
    times: dict[str, Any] = {key: optional(seconds, found.get(key), f"{where}.{key}") for key in _TIMES}
    _ordered(tokens["cached_prompt_tokens"], tokens["prompt_tokens"], f"{where}.cached_prompt_tokens", "prompt_tokens")
    _ordered(tokens["visible_tokens"], tokens["output_tokens"], f"{where}.visible_tokens", "output_tokens")
    _ordered(times["start_s"], times["end_s"], f"{where}.start_s", "end_s")
    tools = optional(items, found.get("tools"), f"{where}.tools") or []
    return Step(
        index=index,
        effect=_effect(found["effect"], f"{where}.effect"),
        **tokens,
        tools=tuple(_tool(tool, f"{where}.tools[{i}]") for i, tool in enumerate(tools)),
        **times,
        model=optional(text, found.get("model"), f"{where}.model"),
        valid=optional(flag, found.get("valid"), f"{where}.valid"),
    )


def _ordered(low: float | None, high: float | None, where: str, other: str) -> None:
    if low is not None and high is not None and low > high:
        raise InputError(f"{where}: {low:g} is more than {other} = {high:g}")


def _tool(value: object, where: str) -> ToolCall:
    found = mapping(value, where)
    _keys(found, _TOOL, ("name", "effect"), where)
    return ToolCall(
        name=text(found["name"], f"{where}.name"),
        effect=_effect(found["effect"], f"{where}.effect"),
        latency_s=optional(seconds, found.get("latency_s"), f"{where}.latency_s"),
        error=optional(flag, found.get("error"), f"{where}.error"),
        arguments=optional(text, found.get("arguments"), f"{where}.arguments"),
    )


def head_of(source: TraceFile) -> Workload:
    """What a neutral file (JSON, JSON Lines or Parquet) says around its trajectories.

    Raises
    ------
    InputError
        If the file is not one (see `from_document`).
    """
    if source.kind == "parquet":
        from simulator.traces.parquet import read_head

        return _checked(_topped(read_head(source.path), _TOP[:5], source.name), source.name)
    if source.kind == "lines":
        where, first = next(source.records())
        return _checked(_topped(first, _TOP[:5], where), where)
    found = mapping(peek(source), source.name)
    if "trajectories" not in found and source.is_small():
        raise InputError(f"{source.name}: 'trajectories' is missing")
    return _checked(_topped(found, _TOP, source.name), source.name)


def _topped(value: object, allowed: tuple[str, ...], where: str) -> dict[str, object]:
    found = mapping(value, where)
    _keys(found, allowed, ("schema", "name"), where)
    return found


def trajectories(source: TraceFile, seen: set[str]) -> Iterator[Trajectory]:
    """The trajectories of a neutral file one at a time; `seen` are the ids so far, none may come twice.

    Raises
    ------
    InputError
        If the file is not one (see `from_document`).
    """
    if source.kind == "parquet":
        from simulator.traces.parquet import read_entries

        yield from _distinct(read_entries(source.path), seen)
    elif source.kind == "lines":
        records = source.records()
        next(records)
        yield from _distinct(records, seen)
    else:
        yield from _distinct(((e.where, e.value) for e in entries(source, "trajectories")), seen)


def json_text(workload: Workload) -> str:
    """A workload as readable JSON: one trajectory a line."""
    lines = ",\n".join(dump(trajectory_document(t)) for t in workload.trajectories)
    return f'{dump(head_document(workload))[:-1]},"trajectories":[\n{lines}\n]}}\n'


def dump(value: object) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def write(workload: Workload, path: Path) -> None:
    """Write a whole workload (see `simulator.traces.write.writer`)."""
    from simulator.traces.write import writer

    with writer(workload, path) as add:
        for trajectory in workload.trajectories:
            add(trajectory)
