"""What a span says under the conventions of attributes: GenAI, OpenInference, OpenLLMetry (traceloop), the AI SDK."""

from __future__ import annotations

from simulator.traces.messages import Said, said
from simulator.traces.node import Node
from simulator.traces.raw import RawCall, parsed_arguments
from simulator.traces.spans import Span
from simulator.traces.values import count, optional, words

_CHAT = ("chat", "generate_content", "text_completion", "completion", "responses")
_CONTENT = ("gen_ai.output.messages", "gen_ai.event.content", "gen_ai.completion", "ai.response.text")
_INFERENCE = {"LLM": "llm", "TOOL": "tool", "AGENT": "agent"}
_AI_SDK = {"ai.toolCall": "tool", "ai.generateText": "other", "ai.streamText": "other"}
_TRACELOOP = {"tool": "tool", "agent": "agent", "workflow": "other", "task": "other"}
_TOKENS = {
    "prompt": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt",
               "llm.usage.prompt_tokens"),
    "output": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
               "llm.usage.completion_tokens"),
    "cached": ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
               "gen_ai.usage.input_tokens.cached", "llm.token_count.prompt_details.cache_read"),
    "created": ("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens",
                "llm.token_count.prompt_details.cache_write"),
    "total": ("llm.token_count.total", "llm.usage.total_tokens", "gen_ai.usage.total_tokens"),
    "thinking": ("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens",
                 "gen_ai.usage.output_tokens.reasoning", "llm.usage.reasoning_tokens",
                 "llm.token_count.completion_details.reasoning"),
}  # fmt: skip


def is_openinference(span: Span) -> bool:
    """Whether a span follows OpenInference."""
    return "openinference.span.kind" in span.attributes


def kind(span: Span) -> str:
    """What a span is: `llm`, `tool`, `agent` or `other`."""
    operation = span.text("gen_ai.operation.name")
    if operation is not None:
        if operation in _CHAT:
            return "llm"
        return {"execute_tool": "tool", "invoke_agent": "agent"}.get(operation, "other")
    inference = span.text("openinference.span.kind")
    if inference is not None:
        return _INFERENCE.get(inference.upper(), "other")
    traceloop = span.text("traceloop.span.kind")
    if traceloop is not None:
        return _TRACELOOP.get(traceloop, "other")
    sdk = span.text("ai.operationId")
    if sdk in _AI_SDK:
        return _AI_SDK[sdk]
    if span.text("mcp.method.name") == "tools/call" and span.text("gen_ai.tool.name"):
        return "tool"
    if span.text("llm.request.type") in (*_CHAT, None) and any(k in span.attributes for k in _TOKENS["prompt"]):
        return "llm"
    return "other"


def node(span: Span) -> Node:
    """The span as a node."""
    found = Node(
        where=span.where,
        trace=span.trace,
        id=span.id,
        parent=span.parent,
        kind=kind(span),
        guessed="gen_ai.operation.name" not in span.attributes and "openinference.span.kind" not in span.attributes,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        zoned=span.zoned,
        conversation=span.text("gen_ai.conversation.id") or span.text("session.id"),
        service=span.text("service.name"),
        failed=span.failed,
    )
    if found.kind == "agent":
        found.agent = span.text("gen_ai.agent.name") or span.text("agent.name") or span.text("traceloop.entity.name")
    elif found.kind == "llm":
        _llm(span, found)
    elif found.kind == "tool":
        _tool(span, found)
    if found.agent is None:
        found.agent = span.text("gen_ai.agent.name")
    return found


def _llm(span: Span, found: Node) -> None:
    for name, keys in _TOKENS.items():
        for key in keys:
            value = optional(count, span.attributes.get(key), f"{span.where}: {key}")
            if value is not None:
                setattr(found, name, value)
                break
    found.model = next(
        (v for k in ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name") if (v := span.text(k))), None
    )
    reasons = span.attributes.get("gen_ai.response.finish_reasons")
    reasons = reasons if isinstance(reasons, list) else [reasons]
    found.finish = next((r for r in reasons if isinstance(r, str) and len(r) < 40), None)
    heard = [said(table.get(k), f"{span.where}: {k}") for table in (span.attributes, *span.events) for k in _CONTENT]
    heard.append(_numbered(span, "llm.output_messages.", "message.", found))
    heard.append(_numbered(span, "gen_ai.completion.", "", found))
    asked = span.attributes.get("ai.response.toolCalls")
    if asked is not None:
        heard.append(said({"tool_calls": parsed_arguments(asked)}, f"{span.where}: ai.response.toolCalls"))
    if not any(h.told for h in heard):
        heard.append(said(_output_value(span), f"{span.where}: output.value"))
    for one in heard:
        found.told = found.told or one.told
        found.spoke = found.spoke or one.spoke
        found.finish = found.finish or one.finish
        known = {c.id for c in found.calls if c.id is not None}
        found.calls.extend(c for c in one.calls if c.id is None or c.id not in known)


def _output_value(span: Span) -> object:
    """OpenInference's whole output, where it is a message; plain text there may be anything."""
    value = span.attributes.get("output.value")
    return value if isinstance(value, str) and value.lstrip()[:1] in ("{", "[") else None


def _numbered(span: Span, prefix: str, inner: str, found: Node) -> Said:
    """Messages under flattened keys: `<prefix><i>.<inner>tool_calls.<j>....` and `....content`."""
    heard = Said()
    calls: dict[tuple[str, str], dict[str, object]] = {}
    for key, value in span.attributes.items():
        if not key.startswith(prefix):
            continue
        number, _, rest = key.removeprefix(prefix).partition(".")
        rest = rest.removeprefix(inner)
        heard.told = True
        if rest.startswith("tool_calls."):
            j, _, leaf = rest.removeprefix("tool_calls.").partition(".")
            calls.setdefault((number, j), {})[leaf.rpartition(".")[2]] = value
        elif rest in ("content", "contents") or (rest.startswith("contents.") and rest.endswith(".text")):
            heard.spoke = heard.spoke or (isinstance(value, str) and bool(value.strip()))
        elif rest == "function_call_name" and isinstance(value, str):
            calls.setdefault((number, ""), {})["name"] = value
        elif rest == "finish_reason" and isinstance(value, str) and found.finish is None and len(value) < 40:
            found.finish = value
    for fields in calls.values():
        if name := words(fields.get("name")):
            heard.calls.append(
                RawCall(
                    name=name,
                    id=words(fields.get("id")),
                    arguments=parsed_arguments(fields.get("arguments")),
                )
            )
    if heard.told and not heard.calls and not heard.spoke and _only_roles(span, prefix):
        heard.spoke = found.finish in (None, "stop", "end_turn")
    return heard


def _only_roles(span: Span, prefix: str) -> bool:
    """Whether the messages are there but their content was hidden (recorded without text)."""
    return not any(k.startswith(prefix) and k.rpartition(".")[2] in ("content", "text") for k in span.attributes)


def _tool(span: Span, found: Node) -> None:
    names = ("gen_ai.tool.name", "tool.name", "traceloop.entity.name", "ai.toolCall.name")
    found.name = next((v for k in names if (v := span.text(k))), None)
    ids = ("gen_ai.tool.call.id", "tool.id", "tool_call.id", "ai.toolCall.id")
    found.call_id = next((v for k in ids if (v := span.text(k))), None)
    given = ("gen_ai.tool.call.arguments", "tool_call.function.arguments", "tool.parameters", "input.value",
             "traceloop.entity.input", "ai.toolCall.args", "ai.toolCall.input")  # fmt: skip
    found.arguments = next((span.attributes[k] for k in given if span.attributes.get(k) is not None), None)
