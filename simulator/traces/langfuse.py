"""Importer of Langfuse observations: a `GENERATION` is a step, a `TOOL` its tool.

Read: the API's and the interface's JSON (`traceId`), the batch export's (`trace_id`), lists, lines, `{"data": [...]}`,
and traces with their `observations`. Langfuse usually takes cached and reasoning tokens out of `input` and `output`, so
all parts are added; where `total` shows that `input` already is the whole, it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulator.traces.entries import entries
from simulator.traces.load import TraceFile
from simulator.traces.messages import said
from simulator.traces.node import Node
from simulator.traces.nodes import trajectories
from simulator.traces.raw import RawTrajectory, Warnings
from simulator.traces.spans import nanoseconds
from simulator.traces.values import count, first_count, items, label, mapping, moment, optional, words

NAME = "langfuse"
DESCRIPTION = "Langfuse observations (JSON or JSON Lines)"
LISTS = ("data", "observations")
_TYPES = {"GENERATION": "llm", "TOOL": "tool", "AGENT": "agent"}
_OTHERS = ("SPAN", "EVENT", "CHAIN", "RETRIEVER", "EMBEDDING", "EVALUATOR", "GUARDRAIL")
_CACHED = ("input_cached_tokens", "input_cache_read", "cache_read_input_tokens", "cached_tokens",
           "input_cache_read_input_tokens", "prompt_tokens_details.cached_tokens")  # fmt: skip
_CREATED = ("input_cache_creation", "cache_creation_input_tokens", "input_cache_creation_input_tokens",
            "input_cache_write")  # fmt: skip
_THINKING = ("output_reasoning_tokens", "output_reasoning", "reasoning_tokens", "output_thinking_tokens",
             "completion_tokens_details.reasoning_tokens")  # fmt: skip


def looks_like(sample: object) -> bool:
    """Whether a parsed document, line or list element is an observation, or a trace with observations."""
    if not isinstance(sample, dict):
        return False
    if isinstance(sample.get("observations"), list) and ("id" in sample or "traceId" in sample):
        return True
    return (
        isinstance(sample.get("type"), str)
        and str(sample["type"]).upper() in (*_TYPES, *_OTHERS)
        and ("traceId" in sample or "trace_id" in sample)
        and ("startTime" in sample or "start_time" in sample)
    )


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories in files of observations."""
    yield from trajectories(_nodes(sources), warnings)


def _nodes(sources: Iterable[TraceFile]) -> Iterator[Node]:
    for source in sources:
        for entry in entries(source, *LISTS):
            found = mapping(entry.value, entry.where)
            around = {**entry.head, **found} if isinstance(found.get("observations"), list) else entry.head
            if "observations" in found:
                for i, inner in enumerate(items(found["observations"], f"{entry.where}: observations")):
                    place = f"{entry.where}: observations[{i}]"
                    yield _node(mapping(inner, place), around, place)
            else:
                yield _node(found, around, entry.where)


def _get(found: dict[str, object], camel: str) -> object:
    """A field by its name in the API, or in the batch export's spelling."""
    value = found.get(camel)
    if value is None:
        value = found.get("".join(f"_{c.lower()}" if c.isupper() else c for c in camel))
    return value


def _node(found: dict[str, object], around: dict[str, object], where: str) -> Node:
    span_id = label(found.get("id"), f"{where}: id")
    place = f"{where.partition(': ')[0].partition('[')[0]}: observation {span_id}"
    start = optional(moment, _get(found, "startTime"), f"{place}: startTime")
    end = optional(moment, _get(found, "endTime"), f"{place}: endTime")
    trace = _get(found, "traceId")
    session = _get(found, "sessionId") or _get(around, "sessionId")
    node = Node(
        where=place,
        trace=label(trace if trace is not None else around.get("id"), f"{place}: traceId"),
        id=span_id,
        parent=optional(label, _get(found, "parentObservationId"), f"{place}: parentObservationId") or "",
        kind=_TYPES.get(str(found.get("type")).upper(), "other"),
        start_ns=nanoseconds(start),
        end_ns=nanoseconds(end),
        zoned=start[1] if start else True,
        conversation=optional(label, session or None, f"{place}: sessionId"),
        failed=found.get("level") == "ERROR",
    )
    if node.kind == "llm":
        _generation(found, node, place)
    elif node.kind == "tool":
        node.name = words(found.get("name"))
        node.call_id = _call_id(found)
        node.arguments = found.get("input")
    elif node.kind == "agent":
        node.agent = words(found.get("name"))
    return node


def _call_id(found: dict[str, object]) -> str | None:
    """The call's id, where an integration wrote it into the metadata or the input."""
    for table in (found.get("metadata"), found.get("input"), found.get("output")):
        if isinstance(table, dict):
            for key in ("tool_call_id", "toolCallId", "call_id"):
                value = table.get(key)
                if isinstance(value, str) and value.isprintable():
                    return value[:200]
    return None


def _generation(found: dict[str, object], node: Node, where: str) -> None:
    model = _get(found, "providedModelName") or found.get("model") or found.get("modelId")
    node.model = words(model)
    heard = said(found.get("output"), f"{where}: output")
    node.calls, node.spoke, node.told, node.finish = heard.calls, heard.spoke, heard.told, heard.finish
    details = optional(mapping, _get(found, "usageDetails"), f"{where}: usageDetails")
    usage = optional(mapping, found.get("usage"), f"{where}: usage") or {}
    if details:
        _details(details, node, f"{where}: usageDetails")
        return
    own = {k: found.get(k) for k in ("promptTokens", "completionTokens", "inputUsage", "outputUsage")}
    node.prompt = first_count(where, [usage, own], "input", "promptTokens", "prompt_tokens", "inputUsage")
    node.output = first_count(where, [usage, own], "output", "completionTokens", "completion_tokens", "outputUsage")
    if node.prompt == 0 and node.output == 0:
        node.prompt = node.output = None


def _details(details: dict[str, object], node: Node, where: str) -> None:
    """Sum the parts of input and output unless `total` says that `input` and `output` are the wholes."""
    parts = {k: count(v, f"{where}.{k}") for k, v in details.items() if v is not None}
    own_in = first_count(where, [parts], "input", "input_tokens", "prompt_tokens", "promptTokens")
    own_out = first_count(where, [parts], "output", "output_tokens", "completion_tokens", "completionTokens")
    node.cached = first_count(where, [parts], *_CACHED)
    node.created = first_count(where, [parts], *_CREATED)
    node.thinking = first_count(where, [parts], *_THINKING)
    whole_in, whole_out = _sum(parts, "input", (*_CACHED, *_CREATED)), _sum(parts, "output", _THINKING)
    total = parts.get("total", parts.get("total_tokens"))
    node.total = total
    base_in = own_in if own_in is not None else 0
    base_out = own_out if own_out is not None else 0
    more_in, more_out = base_in + whole_in, base_out + whole_out
    choices = {(more_in, more_out), (base_in, more_out), (more_in, base_out), (base_in, base_out)}
    fitting = [c for c in choices if total is not None and sum(c) == total]
    chosen = (more_in, more_out) if not fitting or (more_in, more_out) in fitting else max(fitting)
    if own_in is not None or whole_in:
        node.prompt = chosen[0]
    if own_out is not None or whole_out:
        node.output = chosen[1]


_WHOLES = ("input", "input_tokens", "prompt_tokens", "promptTokens", "output", "output_tokens", "completion_tokens",
           "completionTokens", "total", "total_tokens")  # fmt: skip


def _sum(parts: dict[str, int], side: str, also: tuple[str, ...]) -> int:
    """Everything on one side that is not its plain count."""
    return sum(
        v
        for k, v in parts.items()
        if k not in _WHOLES and (k.startswith(f"{side}_") or k in also) and not k.endswith("cost")
    )
