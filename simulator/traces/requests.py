"""Importer of request traces: Mooncake, AIPerf sessions, Bailian (JSON Lines) and Azure (CSV).

They hold lengths, not content: what a step did is unknown, so it is held. Requests with a `session_id` (AIPerf), or
chained by `parent_chat_id` (Bailian), are the steps of one trajectory; without (Mooncake, Azure) every request is a
trajectory of one step. `delay` is the client's time between two turns; whether tools or a user took it is not told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from simulator.traces.entries import entries
from simulator.traces.load import TraceFile
from simulator.traces.raw import RawStep, RawTrajectory, Warnings
from simulator.traces.spill import Spill
from simulator.traces.values import bad, count, items, label, mapping, optional

NAME = "requests"
DESCRIPTION = "request traces: Mooncake, AIPerf sessions, Bailian (JSON Lines), Azure (CSV)"
LISTS = ("requests", "data", "sessions")
_COLUMNS = ("ContextTokens", "GeneratedTokens")
_OUTPUT = ("output_length", "output_tokens", "osl")


def looks_like(sample: object) -> bool:
    """Whether a parsed line is a request, or a CSV header is Azure's."""
    if isinstance(sample, list):
        return all(c in sample for c in _COLUMNS)
    if not isinstance(sample, dict):
        return False
    if isinstance(sample.get("turns"), list):
        return any(isinstance(t, dict) and "input_length" in t for t in sample["turns"])
    return "input_length" in sample and any(k in sample for k in ("output_length", "hash_ids", "session_id"))


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories in files of requests."""
    spill = Spill()
    for name, source in _named(list(sources)):
        for i, entry in enumerate(entries(source, *LISTS) if source.kind != "csv" else ()):
            for key, row, also in _requests(mapping(entry.value, entry.where), entry.where, i):
                if key is None:
                    yield _single(row, name, i)
                else:
                    spill.add(key, row)
                    if also is not None:
                        spill.join(key, also)
        if source.kind == "csv":
            yield from _azure(source, name)
    for rows in spill.groups():
        yield _session(rows, warnings)


def _named(sources: list[TraceFile]) -> Iterator[tuple[str, TraceFile]]:
    """The files, each with a name that no other of them has."""
    stems = [s.stem for s in sources]
    for n, source in enumerate(sources):
        yield (source.stem if stems.count(source.stem) == 1 else f"{source.stem}#{n}"), source


def _requests(found: dict[str, object], where: str, i: int) -> Iterator[tuple[str | None, list[Any], str | None]]:
    session = optional(label, found.get("session_id"), f"{where}: session_id")
    turns = found.get("turns")
    if isinstance(turns, list):
        for j, turn in enumerate(items(turns, f"{where}: turns")):
            place = f"{where}: turns[{j}]"
            yield f"s:{session or i}", _row(mapping(turn, place), session or f"session-{i}", place), None
        return
    if session is not None:
        yield f"s:{session}", _row(found, session, where), None
    elif found.get("chat_id") is not None:
        chat = label(found["chat_id"], f"{where}: chat_id")
        parent = optional(label, found.get("parent_chat_id"), f"{where}: parent_chat_id")
        yield f"c:{chat}", _row(found, f"chat-{chat}", where), None if parent in (None, "-1") else f"c:{parent}"
    else:
        yield None, _row(found, "", where), None


def _row(found: dict[str, object], name: str, where: str) -> list[Any]:
    prompt = optional(count, found.get("input_length"), f"{where}: input_length")
    output = next((count(found[k], f"{where}: {k}") for k in _OUTPUT if found.get(k) is not None), None)
    order = found.get("timestamp", found.get("turn"))
    at = float(order) if isinstance(order, int | float) and not isinstance(order, bool) and abs(order) < 1e18 else None
    return [name, prompt, output, at, where]


def _step(row: list[Any]) -> RawStep:
    return RawStep(where=row[4], prompt_tokens=row[1], output_tokens=row[2], told=False)


def _single(row: list[Any], name: str, i: int) -> RawTrajectory:
    return RawTrajectory(id=f"{name}#{i}", numbered=True, steps=[_step(row)], missing=["session", "tools"])


def _session(rows: list[list[Any]], warnings: Warnings) -> RawTrajectory:
    """The turns in file order; by their own times where every one has a time and some are out of order."""
    times = [row[3] for row in rows]
    if None not in times and times != sorted(times):
        warnings.add("requests of a session out of order: sorted by their times", rows[0][4])
        rows = sorted(rows, key=lambda row: row[3])
    return RawTrajectory(id=rows[0][0], task=rows[0][0], steps=[_step(row) for row in rows], missing=["tools"])


def _azure(source: TraceFile, name: str) -> Iterator[RawTrajectory]:
    missing = [c for c in _COLUMNS if c not in source.header()]
    if missing:
        raise bad(source.name, f"columns {', '.join(_COLUMNS)}", source.header())
    for i, (where, value) in enumerate(source.records()):
        row = mapping(value, where)
        lengths = {"input_length": _whole(row["ContextTokens"]), "output_length": _whole(row["GeneratedTokens"])}
        yield _single(_row(lengths, "", where), name, i)


def _whole(value: object) -> object:
    """A whole number as text, also where it was written as 123.0."""
    return value.strip().removesuffix(".0") if isinstance(value, str) else value
