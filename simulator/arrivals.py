"""Recorded requests of serving traces: when each came, how long it is, what prefix it shares with others.

Two layouts, told from the first line: Mooncake JSON Lines (`timestamp` in ms, `input_length`, `output_length`,
`hash_ids` of prefix blocks, optionally `session_id`) and the Azure LLM CSV (`TIMESTAMP`, `ContextTokens`,
`GeneratedTokens`; times with or without a zone, one without is UTC).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from hwprofiles.errors import InputError, unknown_name
from simulator.traces.load import MAX_JSONL_BYTES, parse
from simulator.traces.values import bad, count, items, mapping, number, text

HASH_BLOCK_TOKENS = 512
"""Tokens behind one Mooncake hash id (its trace description)."""

MAX_REQUESTS = 10_000_000
MAX_LINE_CHARS = 4 * 2**20
MAX_ARRIVAL_S = 1e9
_MOONCAKE = ("timestamp", "input_length", "output_length", "hash_ids", "session_id")
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One recorded request.

    Parameters
    ----------
    arrival_s : float
        Seconds since the first request of the trace.
    prompt_tokens, output_tokens : int
        At least 1 each.
    prefix_ids : tuple of int
        Ids of the prompt's blocks of `HASH_BLOCK_TOKENS` from its start, the last one perhaps partly filled: two
        prompts share their tokens as long as their ids are equal. Empty where the trace does not say.
    session : str or None
        Who asked, where the trace says.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    prefix_ids: tuple[int, ...] = ()
    session: str | None = None


def read_requests(path: str | Path) -> Iterator[TraceRequest]:
    """The requests of a trace file in its order, one at a time.

    Raises
    ------
    InputError
        A file that cannot be read or is neither layout, a wrong value, requests out of order; the message names file
        and line.
    """
    file = Path(path)
    try:
        if file.stat().st_size > MAX_JSONL_BYTES:
            raise InputError(f"{file.name}: larger than {MAX_JSONL_BYTES >> 20} MiB")
        with file.open(encoding="utf-8-sig", newline="") as stream:
            lines = _lines(stream, file.name)
            first = next(lines, None)
            if first is None:
                raise InputError(f"{file.name}: holds no request")
            found = _mooncake if first[1].lstrip().startswith("{") else _azure
            yield from _in_order(found(first, lines, file.name), file.name)
    except UnicodeDecodeError as error:
        raise InputError(f"{file.name}: not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def arrival_times(path: str | Path) -> tuple[float, ...]:
    """Arrival times of a trace file in seconds since its first request, in order; errors as in `read_requests`."""
    return tuple(request.arrival_s for request in read_requests(path))


_Numbered = tuple[int, str]


def _lines(stream: TextIO, name: str) -> Iterator[_Numbered]:
    """Numbered lines that are not blank, none longer than `MAX_LINE_CHARS`."""
    n = 0
    while line := stream.readline(MAX_LINE_CHARS + 1):
        n += 1
        if len(line) > MAX_LINE_CHARS:
            raise InputError(f"{name}, line {n}: longer than {MAX_LINE_CHARS} characters")
        if line.strip():
            yield n, line.strip("\r\n")


def _in_order(requests: Iterable[tuple[int, TraceRequest]], name: str) -> Iterator[TraceRequest]:
    last_s, n = 0.0, 0
    for line, request in requests:
        n += 1
        if n > MAX_REQUESTS:
            raise InputError(f"{name}: more than {MAX_REQUESTS} requests")
        if request.arrival_s < last_s:
            raise InputError(
                f"{name}, line {line}: came {last_s - request.arrival_s:g} s before the line above; sort it"
            )
        if request.arrival_s > MAX_ARRIVAL_S:
            raise InputError(
                f"{name}, line {line}: came {request.arrival_s:g} s after the first; most {MAX_ARRIVAL_S:g}"
            )
        last_s = request.arrival_s
        yield request
    if not n:
        raise InputError(f"{name}: holds no request")


def _mooncake(first: _Numbered, rest: Iterator[_Numbered], name: str) -> Iterator[tuple[int, TraceRequest]]:
    start_ms: float | None = None
    for n, line in _with(first, rest):
        where = f"{name}, line {n}"
        record = mapping(parse(line, where), where)
        if "delay" in record:
            raise InputError(
                f"{where}: it comes a delay after the answer before it, so it is a step of a session and has no "
                "arrival time of its own"
            )
        for key in record:
            if key not in _MOONCAKE:
                raise unknown_name(f"key in {where}", key, _MOONCAKE)
        for key in _MOONCAKE[:3]:
            if key not in record:
                raise InputError(f"{where}: {key} is missing")
        at_ms = number(record["timestamp"], f"{where}, timestamp")
        start_ms = at_ms if start_ms is None else start_ms
        prompt = _tokens(record["input_length"], f"{where}, input_length")
        session = None if record.get("session_id") is None else text(record["session_id"], f"{where}, session_id")
        yield (
            n,
            TraceRequest(
                (at_ms - start_ms) / 1e3,
                prompt,
                _tokens(record["output_length"], f"{where}, output_length"),
                _hashes(record.get("hash_ids"), prompt, f"{where}, hash_ids"),
                session,
            ),
        )


def _hashes(value: object, prompt_tokens: int, where: str) -> tuple[int, ...]:
    if value is None:
        return ()
    found = items(value, where)
    n_blocks = -(-prompt_tokens // HASH_BLOCK_TOKENS)
    if found and len(found) != n_blocks:
        raise InputError(
            f"{where}: {len(found)} ids; a prompt of {prompt_tokens} tokens has {n_blocks} blocks of "
            f"{HASH_BLOCK_TOKENS} tokens"
        )
    for one in found:
        if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one < 2**64:
            raise bad(where, "whole numbers from 0 to 2^64 - 1", one)
    return tuple(found)  # type: ignore[arg-type]  # checked above


def _azure(first: _Numbered, rest: Iterator[_Numbered], name: str) -> Iterator[tuple[int, TraceRequest]]:
    header = tuple(cell.strip() for cell in _cells(first, name))
    if header != _AZURE:
        raise InputError(
            f"{name}: neither Mooncake JSON Lines nor a CSV with the header {','.join(_AZURE)}; it starts with "
            f"{first[1][:40]!a}"
        )
    start: datetime | None = None
    for n, line in rest:
        where = f"{name}, line {n}"
        cells = _cells((n, line), name)
        if len(cells) != len(_AZURE):
            raise InputError(f"{where}: {len(cells)} cells, the header has {len(_AZURE)}")
        at = _moment(cells[0].strip(), f"{where}, TIMESTAMP")
        start = at if start is None else start
        prompt, output = (
            _tokens(cell.strip(), f"{where}, {key}") for key, cell in zip(_AZURE[1:], cells[1:], strict=True)
        )
        yield n, TraceRequest((at - start).total_seconds(), prompt, output)


def _cells(line: _Numbered, name: str) -> list[str]:
    try:
        return next(csv.reader([line[1]], strict=True))
    except csv.Error as error:
        raise InputError(f"{name}, line {line[0]}: not CSV: {error}") from None


def _moment(value: str, where: str) -> datetime:
    if not _TIME.fullmatch(value):
        raise bad(where, "an ISO 8601 time with seconds", value)
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise bad(where, "an ISO 8601 time with seconds", value) from None


def _tokens(value: object, where: str) -> int:
    found = count(value, where)
    if found < 1:
        raise bad(where, "at least 1 token", value)
    return found


def _with(first: _Numbered, rest: Iterator[_Numbered]) -> Iterator[_Numbered]:
    yield first
    yield from rest
