"""A finished engine request as parts of wall time, by phase, with their cost, and as a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import add
from typing import Any

from costmodel.ledger import phase_tokens
from costmodel.request import Pass
from costmodel.session import EngineRequest
from simulator.jobs import JobResult
from simulator.parts import Cost, Part, wall_cost


def engine_parts(request: EngineRequest, result: JobResult) -> list[Part]:
    """Host time, queue, passes by phase (shared by tokens), decode: in order, end to end."""
    lane = request.role.value
    parts = _waits(lane, result)
    computed = 0
    for (part, share), seconds in zip(result.prefill, result.pass_s, strict=True):
        cost = Cost((*share, 0.0, seconds))
        for phase, n in _pass_phases(request, part, computed):
            parts.append(Part(lane, phase, cost if n == part.new_tokens else cost * (n / part.new_tokens)))
        computed = max(computed, part.context_tokens + part.new_tokens)
    if result.decode_s > 0:
        parts.append(Part(lane, request.decode_phase, Cost((*result.decode, 0.0, result.decode_s))))
    return parts


def engine_cost(result: JobResult) -> tuple[Cost, float]:
    """The cost of all parts of a request, and the seconds of it spent in queues."""
    queue_s = result.start_s - result.ready_s + result.stalled_s
    wall_s = result.ready_s - result.submit_s + queue_s + result.decode_s
    cost: Iterable[float] = result.decode
    for (_, share), seconds in zip(result.prefill, result.pass_s, strict=True):
        cost = map(add, cost, share)
        wall_s += seconds
    return Cost((*cost, 0.0, wall_s)), queue_s


def _waits(lane: str, result: JobResult) -> list[Part]:
    host_s, queue_s = result.ready_s - result.submit_s, result.start_s - result.ready_s + result.stalled_s
    parts = [Part(lane, "host", wall_cost(host_s))] if host_s > 0 else []
    if queue_s > 0:
        parts.append(Part(lane, "queue", wall_cost(queue_s)))
    return parts


def _pass_phases(request: EngineRequest, part: Pass, computed: int) -> Iterator[tuple[str, int]]:
    """Tokens of a pass by phase; positions below `computed`, and output before the last token, are recomputed."""
    start, end = part.context_tokens, part.context_tokens + part.new_tokens
    fresh = min(max(start, computed), end)
    prompt_end = max(fresh, min(end, request.prompt_tokens))
    decoded = int(part.emits and end > request.prompt_tokens)
    again = fresh - start + end - prompt_end - decoded
    if again > 0:
        yield "reprefill", again
    yield from phase_tokens(request, fresh, prompt_end)
    if decoded:
        yield request.decode_phase, decoded


def request_row(key: int, request: EngineRequest, replica: int, result: JobResult) -> tuple[Any, ...]:
    """A row of the frame `requests`."""
    return (
        key,
        request.step,
        request.kind,
        request.role.value,
        replica,
        result.submit_s,
        result.start_s,
        result.first_token_s,
        result.finish_s,
        request.prompt_tokens,
        result.cached_tokens,
        result.emitted_tokens,
        result.n_preemptions,
        result.cancelled,
    )
