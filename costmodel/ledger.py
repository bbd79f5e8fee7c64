"""Breaks engine requests into priced rows, and rows into phases.

A *row* is a unit of work whose cost depends on the deployment alone: one prefill pass, a decode step's fixed part, a
token of decode context, a request's host time, a round trip, an API's input token. The hardware-free tape of a
strategy is a table of how many of each row it needs in each phase; `walk` and `expect` price the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from costmodel.protocol import Role
from costmodel.request import RequestPlan
from costmodel.session import EngineRequest, ToolRun, Work
from costmodel.spans import run_sum


class Row(NamedTuple):
    """A kind of work, the role that does it and up to three sizes (prefill: new, context, emits; else one)."""

    kind: str
    role: Role | None
    a: int | None = None
    b: int = 0
    c: int = 0


class Share(NamedTuple):
    """How many of `row` belong to `phase`."""

    row: Row
    phase: str
    count: float  # type: ignore[assignment]  # hides tuple.count, which nobody needs here


class Shape(NamedTuple):
    """How a role's requests are priced: `windows` of its attention, API or not, behind a link or not.

    `pass_tokens` and `tokens_per_pass` are those of `CacheRule`.
    """

    windows: tuple[int | None, ...]
    is_api: bool
    has_link: bool
    min_cacheable_tokens: int = 0
    pass_tokens: int = 1
    tokens_per_pass: float = 1.0


def phase_tokens(request: EngineRequest, start: int, end: int) -> Iterator[tuple[str, int]]:
    """Tokens of each phase among prompt positions `start` .. `end`."""
    low = 0
    for phase, high in request.spans:
        n = min(high, end) - max(low, start)
        if n > 0:
            yield phase, n
        low = high


@lru_cache(maxsize=1 << 17)
def request_shares(request: EngineRequest, plan: RequestPlan, shape: Shape) -> tuple[Share, ...]:
    """Rows of one request on an idle engine, by phase.

    A prefill pass is shared among phases by tokens; decode passes cost a fixed part and one per token of context.
    """
    if shape.is_api:
        return tuple(_api_shares(request, plan, shape))
    role = request.role
    out = []
    for p in plan.passes:
        row = Row("prefill", role, p.new_tokens, p.context_tokens, int(p.emits))
        for phase, n in phase_tokens(request, p.context_tokens, p.context_tokens + p.new_tokens):
            out.append(Share(row, phase, n / p.new_tokens))
    if plan.decode_passes:
        n = plan.decode_passes
        out.append(Share(Row("decode_step", role), request.decode_phase, float(n)))
        for w in shape.windows:
            seen = float(run_sum(float(request.prompt_tokens), float(n), w, shape.pass_tokens, shape.tokens_per_pass))
            out.append(Share(Row("decode_context", role, w), request.decode_phase, seen))
    out.append(Share(Row("host_request", role), "host", 1.0))
    out.append(Share(Row("host_token", role), "host", float(request.prompt_tokens)))
    return (*out, *_link_shares(request, shape))


def _api_shares(request: EngineRequest, plan: RequestPlan, shape: Shape) -> Iterator[Share]:
    role, phase = request.role, request.spans[-1][0]
    yield Share(Row("api_request", role), "host", 1.0)
    yield Share(Row("api_output_token", role), request.decode_phase, float(request.output_tokens))
    cached = plan.cached_tokens if plan.cached_tokens >= shape.min_cacheable_tokens else 0
    if cached:
        yield Share(Row("api_cached_token", role), phase, float(cached))
    writes = request.prompt_tokens >= shape.min_cacheable_tokens
    kind = "api_write_token" if writes else "api_input_token"
    for label, n in phase_tokens(request, cached, request.prompt_tokens):
        yield Share(Row(kind, role), label, float(n))
    yield from _link_shares(request, shape)


def _link_shares(request: EngineRequest, shape: Shape) -> Iterator[Share]:
    if shape.has_link:
        yield Share(Row("link_round_trip", request.role), "network", 1.0)
        sent = request.prompt_tokens + request.output_tokens
        yield Share(Row("link_token", request.role), "network", float(sent))


def work_shares(work: Work, plan: RequestPlan | None, shape: Shape | None, *, wasted: bool) -> tuple[Share, ...]:
    """Rows of any work; those of a discarded draft move to the `wasted_*` phases (host and network time stay)."""
    if isinstance(work, ToolRun):
        return (Share(Row("tool_second", None), "wasted_tool" if wasted else "tool", work.seconds),)
    assert plan is not None
    assert shape is not None
    shares = request_shares(work, plan, shape)
    if not wasted:
        return shares
    return tuple(s if s.phase in ("host", "network") else s._replace(phase="wasted_draft") for s in shares)
