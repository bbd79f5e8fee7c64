"""One span, run or observation of a trace, whatever its source calls it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from simulator.traces.raw import RawCall


@dataclass(slots=True, kw_only=True)
class Node:
    """One span, run or observation.

    Parameters
    ----------
    kind : `llm`, `tool`, `agent` or `other`
    start_ns, end_ns : nanoseconds since the epoch; `zoned` says whether the source named a zone
    prompt, cached, created : input tokens, and cache reads and writes as reported (parts of it or beside it)
    total : tokens in and out as reported, to check the others
    name, call_id, arguments : of a tool; `failed` for tools and LLM calls
    agent, service : who acted
    guessed : whether `kind` was told from token counts only
    """

    where: str
    trace: str
    id: str
    parent: str = ""
    kind: str = "other"
    order: int = 0
    sort: str = ""
    start_ns: int | None = None
    end_ns: int | None = None
    zoned: bool = True
    conversation: str | None = None
    agent: str | None = None
    service: str | None = None
    model: str | None = None
    prompt: int | None = None
    cached: int | None = None
    created: int | None = None
    output: int | None = None
    thinking: int | None = None
    total: int | None = None
    calls: list[RawCall] = field(default_factory=list)
    spoke: bool = False
    told: bool = False
    finish: str | None = None
    failed: bool | None = None
    name: str | None = None
    call_id: str | None = None
    arguments: Any = None
    guessed: bool = False

    @property
    def used(self) -> bool:
        """Whether token counts came with it."""
        return self.prompt is not None or self.output is not None


_FIELDS = tuple(f.name for f in fields(Node))
_CALL = tuple(f.name for f in fields(RawCall))


def packed_node(node: Node) -> list[Any]:
    """A node as plain values (see `unpacked_node`)."""
    row = [getattr(node, name) for name in _FIELDS]
    row[_FIELDS.index("calls")] = [[getattr(c, k) for k in _CALL] for c in node.calls]
    return row


def unpacked_node(row: list[Any]) -> Node:
    """The node in plain values that `packed_node` made."""
    found = dict(zip(_FIELDS, row, strict=True))
    found["calls"] = [RawCall(**dict(zip(_CALL, call, strict=True))) for call in found["calls"]]
    return Node(**found)
