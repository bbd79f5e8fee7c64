"""Importer of OpenAI Agents SDK traces: `response` and `generation` spans are steps, `function` spans their tools.

The SDK's exporter writes `trace` and `trace.span` objects. A `response` span carries only an id and the usage, so what
it asked for is known from the functions that ran after it, and one after which none ran is taken as a reply. A
`handoff` is the call of the tool `transfer_to_AGENT`. `turn` and `task` spans repeat the usage of the steps inside.

Source: spans exported by openai-agents 0.24.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from simulator.traces.entries import entries
from simulator.traces.load import TraceFile
from simulator.traces.messages import said
from simulator.traces.node import Node
from simulator.traces.nodes import trajectories
from simulator.traces.raw import RawTrajectory, Warnings
from simulator.traces.spans import nanoseconds
from simulator.traces.values import first_count, label, mapping, moment, optional, words

NAME = "openai_agents"
DESCRIPTION = "OpenAI Agents SDK traces (trace and trace.span objects)"
LISTS = ("data", "spans")
_TYPES = {"response": "llm", "generation": "llm", "function": "tool", "handoff": "tool", "agent": "agent"}


def looks_like(sample: object) -> bool:
    """Whether a parsed document, line or list element is a trace or span of the SDK."""
    if not isinstance(sample, dict):
        return False
    return sample.get("object") == "trace.span" or (sample.get("object") == "trace" and "workflow_name" in sample)


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories in exported traces."""
    yield from trajectories(_nodes(sources), warnings, declared="openai-agents")


def _nodes(sources: Iterable[TraceFile]) -> Iterator[Node]:
    for source in sources:
        for entry in entries(source, *LISTS):
            found = mapping(entry.value, entry.where)
            if found.get("object") == "trace":
                yield _trace(found, entry.where)
            elif "span_data" in found:
                yield _span(found, entry.where)


def _trace(found: dict[str, object], where: str) -> Node:
    trace = label(found.get("id"), f"{where}: id")
    return Node(
        where=where,
        trace=trace,
        id=trace,
        service=words(found.get("workflow_name")),
        conversation=optional(label, found.get("group_id"), f"{where}: group_id"),
    )


def _span(found: dict[str, object], where: str) -> Node:
    span_id = label(found.get("id"), f"{where}: id")
    place = f"{where.partition(': ')[0].partition('[')[0]}: span {span_id}"
    data = mapping(found.get("span_data"), f"{place}: span_data")
    start = optional(moment, found.get("started_at"), f"{place}: started_at")
    end = optional(moment, found.get("ended_at"), f"{place}: ended_at")
    node = Node(
        where=place,
        trace=label(found.get("trace_id"), f"{place}: trace_id"),
        id=span_id,
        parent=optional(label, found.get("parent_id"), f"{place}: parent_id") or "",
        kind=_TYPES.get(str(data.get("type")), "other"),
        start_ns=nanoseconds(start),
        end_ns=nanoseconds(end),
        zoned=start[1] if start else True,
        failed=found.get("error") is not None,
    )
    if node.kind == "llm":
        _llm(data, node, place)
    elif node.kind == "tool":
        to = words(data.get("to_agent"))
        node.name = f"transfer_to_{re.sub(r'[^a-zA-Z0-9_]', '_', to).lower()}" if to else words(data.get("name"))
        node.arguments = data.get("input")
    elif node.kind == "agent":
        node.agent = words(data.get("name"))
    return node


def _llm(data: dict[str, object], node: Node, where: str) -> None:
    usage = optional(mapping, data.get("usage"), f"{where}: usage") or {}
    node.model = words(data.get("model"))
    if data.get("type") == "response":
        node.finish = "stop"
    else:
        heard = said(data.get("output"), f"{where}: output")
        node.calls, node.spoke, node.told, node.finish = heard.calls, heard.spoke, heard.told, heard.finish

    node.prompt = first_count(where, [usage], "input_tokens", "prompt_tokens")
    node.output = first_count(where, [usage], "output_tokens", "completion_tokens")
    node.total = first_count(where, [usage], "total_tokens")
    node.cached = first_count(
        where, [usage], "input_tokens_details.cached_tokens", "prompt_tokens_details.cached_tokens"
    )
    node.thinking = first_count(
        where, [usage], "output_tokens_details.reasoning_tokens", "completion_tokens_details.reasoning_tokens"
    )
