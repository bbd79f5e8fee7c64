"""The load of a serving row: clients or arrival rates, lengths, and the limits of the engine that served it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from validate.accuracy.tables import Row

CHUNK_TOKENS = 8192
"""Token budget of a step where the row states none: default of vLLM and TensorRT-LLM servers on data-centre GPUs."""

MAX_SEQS = 256
"""Most sequences at once where the row states none and the load is open: default of vLLM's server."""

OFFLINE_SEQS = 2048
"""Most sequences at once of a run with everything queued: default batch limit of trtllm-bench."""

PREFILLS_ALONE = frozenset({"sglang"})
"""Libraries whose default scheduler runs prefills in steps of their own, decodes waiting."""

_WORKLOADS: Mapping[str, tuple[tuple[float, ...], int]] = {
    "codegen": ((5.0, 10.0), 247),
    "general": ((8.0, 20.0), 248),
    "roleplay": ((6.0,), 251),
}
"""Workloads of the BLIS tables: requests per second of each stage, tokens generated per request.

Rates: the rows that state one. Tokens: the lengths of the rows that state the order, not what a client counted: runs
whose clients counted 195 tokens take the time of 247.
"""
_FILE_RATE = re.compile(r"at (\d+(?:\.\d+)?) req/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What was asked of an engine.

    Parameters
    ----------
    clients : int
        Of a closed loop; 0: open, at `rates_per_s` requests per second, one stage after the other for the same time.
    n_requests : int
        Of an open loop from an idle start; 0: the middle of a long run.
    shared_tokens : int
        Of the prompt, the same for all; `turns`: a client's prompts go on from each other.
    alone : bool
        Prefills have steps of their own.
    """

    clients: int
    rates_per_s: tuple[float, ...]
    n_requests: int
    prompt_tokens: int
    output_tokens: int
    shared_tokens: int
    turns: bool
    chunk_tokens: int
    max_seqs: int
    alone: bool


def load_of(row: Row, library: str) -> Load | str:
    """The load that a row states, or why it is unknown."""
    note = row.note
    if not row.input_tokens or not row.output_tokens:
        return "lengths not stated"
    output = int(row.output_tokens)
    rates: tuple[float, ...] = ()
    clients = int(row.batch or 0)
    everything = any(key.startswith("maximum load") for key in note)
    if everything:
        clients = OFFLINE_SEQS
    elif not clients:
        rates = _rates(row)
        if not rates:
            return "neither concurrency nor request rate stated"
        output = _workload(row)[1] or output
    return Load(
        clients=clients,
        rates_per_s=rates,
        n_requests=_whole(note, "requests") or 0,
        prompt_tokens=int(row.input_tokens),
        output_tokens=output,
        shared_tokens=min(_whole(note, "shared_prefix_tokens") or 0, int(row.input_tokens) - 1),
        turns=note.get("multi_turn") == "1",
        chunk_tokens=_whole(note, "max_batched_tokens") or CHUNK_TOKENS,
        max_seqs=_whole(note, "max_num_seqs") or (clients or MAX_SEQS),
        alone=library in PREFILLS_ALONE,
    )


def _rates(row: Row) -> tuple[float, ...]:
    stated = row.note.get("rate_req_s", "")
    if stated:
        return _numbers(stated)
    named = _FILE_RATE.search(row.note.get("dataset", ""))
    if named:
        return (float(named[1]),)
    stages = _workload(row)[0]
    stage = row.note.get("stage", "")
    if not stages or stage in ("-1", "summary"):
        return stages
    place = int(stage) if stage.isdigit() else len(stages)
    return stages[place : place + 1]


def _workload(row: Row) -> tuple[tuple[float, ...], int]:
    name = row.note.get("workload", "")
    if not row.source.startswith("BLIS") or name not in _WORKLOADS or "-lite" in row.note.get("run", ""):
        return (), 0
    return _WORKLOADS[name]


def _numbers(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split("/"))
    except ValueError:
        return ()
    return found if all(0 < rate < float("inf") for rate in found) else ()


def _whole(note: Mapping[str, str], key: str) -> int | None:
    try:
        value = float(note.get(key, ""))
    except ValueError:
        return None
    return int(value) if 0 < value < 1e9 else None
