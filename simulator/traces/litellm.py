"""Importer of LiteLLM request logs (StandardLoggingPayload, or rows of the proxy's spend logs): a request is a step.

Requests are gathered by session (`litellm_session_id`, `session_id`) or `trace_id`. The tools themselves are not
logged, so their times and failures are missing. LiteLLM is believed to count cached tokens inside the prompt; rows
where they exceed it are recognised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from simulator.traces.entries import entries
from simulator.traces.load import TraceFile
from simulator.traces.messages import said
from simulator.traces.node import Node
from simulator.traces.nodes import trajectories
from simulator.traces.raw import RawTrajectory, Warnings, parsed_arguments
from simulator.traces.spans import nanoseconds
from simulator.traces.values import first_count, label, mapping, moment, optional, words

NAME = "litellm"
DESCRIPTION = "LiteLLM request logs (JSON or JSON Lines)"
LISTS = ("data", "logs")
_CALLS = ("completion", "responses", "anthropic_messages", "generate_content", "text_completion")


def looks_like(sample: object) -> bool:
    """Whether a parsed document, line or list element is a logged request."""
    if not isinstance(sample, dict) or "call_type" not in sample:
        return False
    return any(k in sample for k in ("startTime", "prompt_tokens", "response", "custom_llm_provider"))


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories in logs of requests."""
    for raw in trajectories(_nodes(sources, warnings), warnings):
        raw.missing.append("tool_times")
        yield raw


def _nodes(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[Node]:
    for source in sources:
        for i, entry in enumerate(entries(source, *LISTS)):
            node = _node(mapping(entry.value, entry.where), entry.where, i)
            if node is None:
                warnings.add(
                    "rows that are no LLM call (embeddings, health checks, cache hits) are left out", entry.where
                )
            else:
                yield node


def _node(found: dict[str, object], where: str, index: int) -> Node | None:
    call_type = found.get("call_type")
    if isinstance(call_type, str) and call_type and not any(c in call_type for c in _CALLS):
        return None
    if found.get("cache_hit") is True or found.get("cache_hit") == "True":
        return None
    metadata = parsed_arguments(found.get("metadata"))
    metadata = metadata if isinstance(metadata, dict) else {}
    request_id = found.get("id") or found.get("request_id") or f"row {index}"
    start = optional(moment, found.get("startTime"), f"{where}: startTime")
    end = optional(moment, found.get("endTime"), f"{where}: endTime")
    keys = ("litellm_session_id", "session_id")
    session = next((t[k] for t in (found, metadata) for k in keys if t.get(k) not in (None, "")), None)
    trace = found.get("trace_id") or session or request_id
    heard = said(parsed_arguments(found.get("response")), f"{where}: response")
    node = Node(
        where=where,
        trace=label(trace, f"{where}: trace_id"),
        id=label(request_id, f"{where}: id"),
        kind="llm",
        start_ns=nanoseconds(start),
        end_ns=nanoseconds(end),
        zoned=start[1] if start else True,
        conversation=optional(label, session, f"{where}: session_id"),
        model=words(found.get("model")),
        calls=heard.calls,
        spoke=heard.spoke,
        told=heard.told,
        finish=heard.finish,
        failed=found.get("status") == "failure",
    )
    _tokens(found, metadata, node, where)
    return node


def _tokens(found: dict[str, object], metadata: dict[str, Any], node: Node, where: str) -> None:
    usage = metadata.get("usage_object")
    response = parsed_arguments(found.get("response"))
    inner = response.get("usage") if isinstance(response, dict) else None
    tables = [t for t in (found, usage, inner) if isinstance(t, dict)]

    node.prompt = first_count(where, tables, "prompt_tokens", "input_tokens")
    node.output = first_count(where, tables, "completion_tokens", "output_tokens")
    node.cached = first_count(
        where,
        tables,
        "prompt_tokens_details.cached_tokens",
        "cache_read_input_tokens",
        "input_tokens_details.cached_tokens",
    )
    node.created = first_count(
        where, tables, "cache_creation_input_tokens", "prompt_tokens_details.cache_creation_tokens"
    )
    node.thinking = first_count(
        where,
        tables,
        "completion_tokens_details.reasoning_tokens",
        "output_tokens_details.reasoning_tokens",
        "reasoning_tokens",
    )
    node.total = first_count(where, tables, "total_tokens")
    if not node.total and not node.prompt and not node.output:
        node.prompt = node.output = None
