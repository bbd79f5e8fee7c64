"""OTLP JSON spans, reduced to what the GenAI importer needs while the file is read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from simulator.traces.load import TraceFile
from simulator.traces.raw import RawCall, Warnings, parsed_arguments
from simulator.traces.values import bad, items, mapping, optional, text

_DROPPED = ("gen_ai.input.messages", "gen_ai.system_instructions", "gen_ai.tool.call.result", "gen_ai.tool.definitions")
_TEXTS = (
    "gen_ai.operation.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.conversation.id",
    "gen_ai.agent.name",
    "gen_ai.tool.name",
    "gen_ai.tool.call.id",
    "mcp.method.name",
    "service.name",
)


@dataclass(slots=True, kw_only=True)
class Span:
    """One span: identity, times in nanoseconds, GenAI attributes, calls and text of its output messages."""

    where: str
    trace: str
    id: str
    parent: str
    order: int
    start_ns: int | None
    end_ns: int | None
    failed: bool
    attributes: dict[str, object]
    calls: list[RawCall] = field(default_factory=list)
    spoke: bool = False
    told: bool = False

    def text(self, key: str) -> str | None:
        """A text attribute, or None."""
        return optional(text, self.attributes.get(key), f"{self.where}: {key}")

    @property
    def operation(self) -> str | None:
        """What the span did: `chat`, `execute_tool`, `invoke_agent`, ...; None for spans of other conventions."""
        named = self.text("gen_ai.operation.name")
        if named is not None:
            return "chat" if named in ("generate_content", "text_completion") else named
        if self.text("mcp.method.name") == "tools/call" and self.text("gen_ai.tool.name"):
            return "execute_tool"
        counted = any(f"gen_ai.usage.{k}" in self.attributes for k in ("input_tokens", "prompt_tokens"))
        return "chat" if counted else None


def spans(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[Span]:
    """The spans of OTLP files, each once, in file order."""
    seen: set[tuple[str, str]] = set()
    order = 0
    for source in sources:
        for where, value in source.records():
            document = mapping(value, where)
            for i, entry in enumerate(items(document.get("resourceSpans"), f"{where}: resourceSpans")):
                for span in _resource(mapping(entry, f"{where}: resourceSpans[{i}]"), f"{where}: resourceSpans[{i}]"):
                    key = (span.trace, span.id)
                    if key in seen:
                        warnings.add("a span occurs twice: counted once", span.where)
                        continue
                    seen.add(key)
                    span.order = order = order + 1
                    yield span


def _resource(entry: dict[str, object], where: str) -> Iterator[Span]:
    resource = optional(mapping, entry.get("resource"), f"{where}.resource") or {}
    common = _attributes(resource.get("attributes"), f"{where}.resource")
    name = {k: v for k, v in common.items() if k == "service.name"}
    scopes = entry.get("scopeSpans", [])
    for i, scope in enumerate(items(scopes, f"{where}.scopeSpans")):
        place = f"{where}.scopeSpans[{i}]"
        for j, value in enumerate(items(mapping(scope, place).get("spans", []), f"{place}.spans")):
            yield _span(mapping(value, f"{place}.spans[{j}]"), name, f"{place}.spans[{j}]")


def _span(found: dict[str, object], common: dict[str, object], where: str) -> Span:
    span_id = text(found.get("spanId"), f"{where}.spanId")
    where = f"{where.partition(':')[0]}: span {span_id}"
    status = optional(mapping, found.get("status"), f"{where}.status") or {}
    attributes = {**common, **_attributes(found.get("attributes"), where)}
    span = Span(
        where=where,
        trace=text(found.get("traceId"), f"{where}.traceId"),
        id=span_id,
        parent=optional(text, found.get("parentSpanId"), f"{where}.parentSpanId") or "",
        order=0,
        start_ns=_nanoseconds(found.get("startTimeUnixNano"), f"{where}.startTimeUnixNano"),
        end_ns=_nanoseconds(found.get("endTimeUnixNano"), f"{where}.endTimeUnixNano"),
        failed=status.get("code") in (2, "STATUS_CODE_ERROR") or "error.type" in attributes,
        attributes=attributes,
    )
    _output(span, attributes.pop("gen_ai.output.messages", None))
    for i, value in enumerate(optional(items, found.get("events"), f"{where}.events") or []):
        event = _attributes(mapping(value, f"{where}.events[{i}]").get("attributes"), f"{where}.events[{i}]")
        _output(span, event.get("gen_ai.output.messages"))
    return span


def _nanoseconds(value: object, where: str) -> int | None:
    """A time in nanoseconds, written as text or a number; 0 and absent are unknown."""
    if value is None or value in (0, "0", ""):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**20:
        return value
    raise bad(where, "nanoseconds since 1970 as a whole number", value)


def _attributes(value: object, where: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for i, entry in enumerate(optional(items, value, f"{where}.attributes") or []):
        place = f"{where}.attributes[{i}]"
        pair = mapping(entry, place)
        key = text(pair.get("key"), f"{place}.key")
        if key in _TEXTS or (key.startswith(("gen_ai.", "openinference.", "error.type")) and key not in _DROPPED):
            found[key] = _value(pair.get("value"), place)
    return found


def _value(value: object, where: str) -> object:
    """The plain value of an OTLP AnyValue."""
    if value is None:
        return None
    found = mapping(value, where)
    if "arrayValue" in found:
        array = optional(mapping, found["arrayValue"], where) or {}
        return [_value(v, where) for v in items(array.get("values", []), where)]
    if "kvlistValue" in found:
        pairs = optional(mapping, found["kvlistValue"], where) or {}
        entries = [mapping(p, where) for p in items(pairs.get("values", []), where)]
        return {text(p.get("key"), where): _value(p.get("value"), where) for p in entries}
    if "intValue" in found and isinstance(found["intValue"], str):
        digits = found["intValue"]
        if not digits.lstrip("-").isdigit() or len(digits) > 20:
            raise bad(where, "a whole number", digits)
        return int(digits)
    return next((found[k] for k in ("stringValue", "intValue", "doubleValue", "boolValue") if k in found), None)


def _output(span: Span, value: object) -> None:
    """Calls and text in output messages (JSON text or structured)."""
    if value is None:
        return
    try:
        messages = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise bad(f"{span.where}: gen_ai.output.messages", "JSON", value) from None
    span.told = True
    for message in items(messages, f"{span.where}: gen_ai.output.messages"):
        parts = mapping(message, f"{span.where}: gen_ai.output.messages").get("parts", [])
        for entry in items(parts, f"{span.where}: parts"):
            part = mapping(entry, f"{span.where}: parts")
            if part.get("type") == "tool_call":
                span.calls.append(_requested(part, span.where))
            elif part.get("type") == "text":
                content = part.get("content")
                span.spoke = span.spoke or (isinstance(content, str) and bool(content.strip()))


def _requested(part: dict[str, object], where: str) -> RawCall:
    return RawCall(
        name=text(part.get("name"), f"{where}: tool_call.name"),
        id=optional(text, part.get("id"), f"{where}: tool_call.id"),
        arguments=parsed_arguments(part.get("arguments")),
    )
