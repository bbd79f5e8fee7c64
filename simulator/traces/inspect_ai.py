"""Importer of Inspect AI logs (JSON, or `.eval`, a zip of JSON): a `model` event is a step, `tool` events its tools.

Inspect's `input_tokens` exclude cache reads and writes, so they are added. `working_time` (without waiting for rate
limits) says how long a call took. Calls answered from Inspect's own cache are steps whose time is not the model's.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from hwprofiles.errors import InputError
from simulator.traces.entries import entries
from simulator.traces.load import TraceFile
from simulator.traces.messages import said
from simulator.traces.node import Node
from simulator.traces.nodes import gathered
from simulator.traces.raw import RawTrajectory, Warnings
from simulator.traces.spans import nanoseconds
from simulator.traces.values import count, first_count, items, label, mapping, moment, number, optional, seconds, words

NAME = "inspect_ai"
DESCRIPTION = "Inspect AI logs (.json or .eval)"
LISTS = ("samples",)
_AGENTS = ("agent", "subtask")
_DEPTH = 32
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Inspect's letters: correct, incorrect, partial, no answer."""


def looks_like(sample: object) -> bool:
    """Whether a parsed document is a log."""
    return (
        isinstance(sample, dict)
        and isinstance(sample.get("eval"), dict)
        and ("samples" in sample or ("status" in sample and "version" in sample))
    )


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories in logs, one a sample (and one a subagent)."""
    for source in sources:
        if source.kind == "zip":
            yield from _archive(source, warnings)
            continue
        for entry in entries(source, *LISTS):
            sample = mapping(entry.value, entry.where)
            if "events" not in sample and "messages" not in sample:
                what = "the log holds no samples" if "eval" in sample else "expected a sample with events"
                raise InputError(f"{entry.where}: {what}")
            events = optional(items, sample.get("events"), f"{entry.where}: events") or []
            yield from _sample(sample, events, entry.where, entry.head, warnings)


def _archive(source: TraceFile, warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories in an `.eval` archive; the events of its samples are read one at a time."""
    try:
        with zipfile.ZipFile(source.path) as archive:
            names = archive.namelist()
            packed_bytes = sum(info.compress_size for info in archive.infolist())
        if len(set(names)) < len(names) or packed_bytes > source.path.stat().st_size:
            raise InputError(f"{source.name}: members of the archive overlap, which no log's do")
        samples = [n for n in names if n.startswith("samples/") and n.endswith(".json")]
        if not samples:
            raise InputError(f"{source.name}: the archive holds no samples/*.json, so it is no Inspect log")
        header = next((n for n in ("header.json", "_journal/start.json") if n in names), None)
        about = replace(source, kind="json", member=header).whole() if header else {}
        for name in samples:
            found = entries(replace(source, kind="json", member=name), "events")
            first = next(found, None)
            if first is not None:
                head = about if isinstance(about, dict) else {}
                events = (e.value for e in chain([first], found))
                yield from _sample(first.head, events, first.where, head, warnings)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, zlib.error) as error:
        if isinstance(error, InputError | RecursionError):
            raise
        hint = "; convert it with `inspect log convert --to json`" if isinstance(error, NotImplementedError) else ""
        raise InputError(f"{source.name}: cannot be unpacked: {str(error)[:120]}{hint}") from None


@dataclass(slots=True, kw_only=True)
class _Walk:
    """Nodes of one sample while its events are gone through."""

    trace: str
    place: str
    nodes: list[Node] = field(default_factory=list)
    cached: int = 0
    calls: int = 0


def _sample(
    sample: dict[str, object], events: Iterable[object], where: str, log: dict[str, object], warnings: Warnings
) -> Iterator[RawTrajectory]:
    sample_id = label(sample.get("id"), f"{where}: id")
    epoch = optional(count, sample.get("epoch"), f"{where}: epoch") or 1
    trace = f"{sample_id}" if epoch == 1 else f"{sample_id}-epoch{epoch}"
    place = f"{where.partition(': ')[0]}: sample {sample_id}"
    walk = _Walk(trace=trace, place=place)
    walk.nodes.append(Node(where=place, trace=trace, id="", kind="agent"))
    _events(events, "", walk, 0)
    if walk.cached:
        warnings.add("calls answered from Inspect's own cache have no time of the model", place)
    setup = log.get("eval")
    setup = setup if isinstance(setup, dict) else {}
    outcome = _outcome(sample.get("scores"))
    for raw in gathered(walk.nodes, warnings):
        raw.task, raw.trial, raw.outcome = sample_id, epoch - 1 or None, outcome
        raw.domain = raw.domain or words(setup.get("task"))
        yield raw


def _outcome(scores: object) -> float | None:
    """The sample's score where it is a number, true/false or one of Inspect's letters."""
    if not isinstance(scores, dict):
        return None
    for score in scores.values():
        value = score.get("value") if isinstance(score, dict) else None
        if isinstance(value, str) and value in _GRADES:
            return _GRADES[value]
        if isinstance(value, bool):
            return float(value)
        if isinstance(value, int | float):
            return number(value, "score")
    return None


def _events(events: Iterable[object], parent: str, walk: _Walk, depth: int) -> None:
    if depth > _DEPTH:
        raise InputError(f"{walk.place}: nested too deep")
    for i, value in enumerate(events):
        event = mapping(value, f"{walk.place}: events[{i}]")
        kind = event.get("event")
        above = optional(label, event.get("span_id"), f"{walk.place}: span_id") or parent
        if kind == "span_begin":
            _span(event, walk, parent)
        elif kind == "model":
            _model(event, above, walk)
        elif kind in ("tool", "subtask"):
            node = _tool(event, above, walk, kind=str(kind))
            inner = event.get("events")
            if isinstance(inner, list) and inner:
                _events(inner, node.id, walk, depth + 1)


def _span(event: dict[str, object], walk: _Walk, parent: str) -> None:
    kind = event.get("type")
    walk.nodes.append(
        Node(
            where=walk.place,
            trace=walk.trace,
            id=label(event.get("id"), f"{walk.place}: span_begin.id"),
            parent=optional(label, event.get("parent_id"), f"{walk.place}: parent_id") or parent,
            kind="agent" if kind == "agent" and len(walk.nodes) > 1 and _nested(event, walk) else "other",
            agent=words(event.get("name")) if kind == "agent" else None,
        )
    )


def _nested(event: dict[str, object], walk: _Walk) -> bool:
    """Whether an agent's span stands inside a tool or another agent; the first one is the sample's own agent."""
    return any(n.agent is not None or n.kind == "tool" for n in walk.nodes)


def _model(event: dict[str, object], parent: str, walk: _Walk) -> None:
    place = f"{walk.place}, model event {walk.calls}"
    walk.calls += 1
    output = optional(mapping, event.get("output"), f"{place}: output") or {}
    usage = optional(mapping, output.get("usage"), f"{place}: output.usage") or {}
    start, end = _times(event, place)
    heard = said(output.get("choices"), f"{place}: output.choices")
    fresh = first_count(place, [usage], "input_tokens")
    read, made = (first_count(place, [usage], f"input_tokens_cache_{k}") for k in ("read", "write"))
    model = output.get("model") or event.get("model")
    node = Node(
        where=place,
        trace=walk.trace,
        id=optional(label, event.get("uuid"), f"{place}: uuid") or f"model {len(walk.nodes)}",
        parent=parent,
        kind="llm",
        start_ns=start,
        end_ns=end,
        model=words(model),
        prompt=None if fresh is None else fresh + (read or 0) + (made or 0),
        cached=read,
        output=first_count(place, [usage], "output_tokens"),
        thinking=first_count(place, [usage], "reasoning_tokens"),
        calls=heard.calls,
        spoke=heard.spoke,
        told=heard.told,
        finish=heard.finish,
        failed=event.get("error") is not None,
    )
    if event.get("cache") == "read":
        walk.cached += 1
        node.start_ns = node.end_ns = None
    if event.get("pending") is not True:
        walk.nodes.append(node)


def _tool(event: dict[str, object], parent: str, walk: _Walk, *, kind: str) -> Node:
    place = f"{walk.place}, {kind} event"
    start, end = _times(event, place)
    name = event.get("function", event.get("name"))
    error = event.get("error")
    call_id = optional(label, event.get("id"), f"{place}: id")
    node = Node(
        where=place,
        trace=walk.trace,
        id=optional(label, event.get("uuid"), f"{place}: uuid") or f"{kind} {len(walk.nodes)}",
        parent=parent,
        kind="tool" if kind == "tool" else "agent",
        start_ns=start,
        end_ns=end,
        name=words(name),
        call_id=call_id,
        arguments=event.get("arguments"),
        failed=error is not None or event.get("failed") is True,
    )
    walk.nodes.append(node)
    if any(isinstance(e, dict) and e.get("event") == "model" for e in _list(event.get("events"))) and kind == "tool":
        inner = Node(
            where=place, trace=walk.trace, id=f"{node.id}/agent", parent=node.id, kind="agent", agent=node.name
        )
        walk.nodes.append(inner)
        return inner
    return node


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _times(event: dict[str, object], place: str) -> tuple[int | None, int | None]:
    """Start and end in nanoseconds: `working_time` after the start where it is told, else `completed`."""
    start = optional(moment, event.get("timestamp"), f"{place}: timestamp")
    if start is None:
        return None, None
    worked = optional(seconds, event.get("working_time"), f"{place}: working_time")
    completed = optional(moment, event.get("completed"), f"{place}: completed")
    if worked is not None:
        return nanoseconds(start), nanoseconds((start[0] + worked, start[1]))
    return nanoseconds(start), nanoseconds(completed)
