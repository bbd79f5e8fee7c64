"""Importer of LangSmith runs: a run of type `llm` is a step, one of type `tool` its tool.

Token counts come from the run (`prompt_tokens`), else from the message's `usage_metadata`, else from the provider's own
`token_usage`. Runs are gathered by thread (`thread_id`, `session_id` or `conversation_id` in the metadata), else by
trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from simulator.traces.entries import entries
from simulator.traces.load import TraceFile
from simulator.traces.messages import said
from simulator.traces.node import Node
from simulator.traces.nodes import trajectories
from simulator.traces.raw import RawTrajectory, Warnings
from simulator.traces.spans import nanoseconds
from simulator.traces.values import first_count, label, mapping, moment, optional, words

NAME = "langsmith"
DESCRIPTION = "LangSmith runs (JSON or JSON Lines)"
LISTS = ("runs", "data")
_TYPES = {"llm": "llm", "tool": "tool"}
_THREADS = ("thread_id", "session_id", "conversation_id")
_DEPTH = 8


def looks_like(sample: object) -> bool:
    """Whether a parsed document, line or list element is a run."""
    return isinstance(sample, dict) and "run_type" in sample and ("trace_id" in sample or "id" in sample)


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories in files of runs."""
    yield from trajectories(_nodes(sources), warnings)


def _nodes(sources: Iterable[TraceFile]) -> Iterator[Node]:
    for source in sources:
        for entry in entries(source, *LISTS):
            yield from _tree(mapping(entry.value, entry.where), entry.where, None, 0)


def _tree(found: dict[str, object], where: str, trace: str | None, depth: int) -> Iterator[Node]:
    """A run, and the runs nested in it as `child_runs`."""
    node = _node(found, where, trace)
    yield node
    children = found.get("child_runs")
    if isinstance(children, list) and depth < 64:
        for i, child in enumerate(children):
            place = f"{where}: child_runs[{i}]"
            inner = dict(mapping(child, place))
            inner.setdefault("parent_run_id", node.id)
            yield from _tree(inner, place, node.trace, depth + 1)


def _node(found: dict[str, object], where: str, trace: str | None) -> Node:
    run_id = label(found.get("id", found.get("run_id")), f"{where}: id")
    place = f"{where.partition(': ')[0].partition('[')[0]}: run {run_id}"
    extra = found.get("extra")
    metadata = extra.get("metadata") if isinstance(extra, dict) else found.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    start = optional(moment, found.get("start_time"), f"{place}: start_time")
    end = optional(moment, found.get("end_time"), f"{place}: end_time")
    given, order = found.get("trace_id"), found.get("dotted_order")
    node = Node(
        where=place,
        trace=label(given, f"{place}: trace_id") if given is not None else (trace or run_id),
        id=run_id,
        parent=optional(label, found.get("parent_run_id"), f"{place}: parent_run_id") or "",
        kind=_TYPES.get(str(found.get("run_type")), "other"),
        sort=order if isinstance(order, str) else "",
        start_ns=nanoseconds(start),
        end_ns=nanoseconds(end),
        zoned=start[1] if start else True,
        conversation=next(
            (label(metadata[k], f"{place}: {k}") for k in _THREADS if metadata.get(k) not in (None, "")), None
        ),
        failed=found.get("status") == "error" or found.get("error") not in (None, "", False),
    )
    if node.kind == "llm":
        _llm(found, metadata, node, place)
    elif node.kind == "tool":
        node.name = words(found.get("name"))
        node.call_id = _call_id(found, metadata)
        node.arguments = _arguments(found.get("inputs"))
    elif node.kind == "other" and found.get("parent_run_id") is None:
        node.service = words(found.get("name"))
    return node


def _arguments(inputs: object) -> object:
    """A tool's arguments: LangChain wraps those that it has as text in `input`."""
    if isinstance(inputs, dict) and list(inputs) == ["input"]:
        return inputs["input"]
    return inputs


def _call_id(found: dict[str, object], metadata: dict[str, Any]) -> str | None:
    output = found.get("outputs")
    output = output.get("output", output) if isinstance(output, dict) else None
    inner = output.get("kwargs", output) if isinstance(output, dict) else {}
    for table in (metadata, inner, found.get("inputs")):
        value = table.get("tool_call_id") if isinstance(table, dict) else None
        if isinstance(value, str) and value.isprintable():
            return value[:200]
    return None


def _llm(found: dict[str, object], metadata: dict[str, Any], node: Node, where: str) -> None:
    outputs = found.get("outputs")
    heard = said(outputs if outputs else None, f"{where}: outputs")
    node.calls, node.spoke, node.told, node.finish = heard.calls, heard.spoke, heard.told, heard.finish
    model = metadata.get("ls_model_name")
    node.model = words(model)
    usage = _usage(outputs, 0) or {}

    tables: list[object] = [found, usage] if found.get("total_tokens") not in (None, 0) else [usage, found]
    node.prompt = first_count(where, tables, "prompt_tokens", "input_tokens")
    node.output = first_count(where, tables, "completion_tokens", "output_tokens")
    node.total = first_count(where, tables, "total_tokens")
    if not usage and not node.prompt and not node.output:
        node.prompt = node.output = None
    node.cached = first_count(
        where,
        tables,
        "prompt_token_details.cache_read",
        "input_token_details.cache_read",
        "prompt_tokens_details.cached_tokens",
        "cache_read_input_tokens",
    )
    node.created = first_count(
        where,
        tables,
        "prompt_token_details.cache_creation",
        "input_token_details.cache_creation",
        "cache_creation_input_tokens",
    )
    node.thinking = first_count(
        where,
        tables,
        "completion_token_details.reasoning",
        "output_token_details.reasoning",
        "completion_tokens_details.reasoning_tokens",
    )


def _usage(value: Any, depth: int) -> dict[str, Any] | None:
    """The usage somewhere inside the outputs."""
    if depth > _DEPTH:
        return None
    if isinstance(value, list):
        return next((u for v in value[-4:] if (u := _usage(v, depth + 1))), None)
    if not isinstance(value, dict):
        return None
    for key in ("usage_metadata", "usage", "token_usage"):
        usage = value.get(key)
        if isinstance(usage, dict) and usage:
            return usage
    inside = ("generations", "message", "kwargs", "output", "messages", "llm_output", "response_metadata", "choices")
    return next((u for k in inside if k in value and (u := _usage(value[k], depth + 1))), None)
