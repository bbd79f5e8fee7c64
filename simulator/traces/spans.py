"""OpenTelemetry spans from the shapes in which they are exported, one at a time.

OTLP JSON (`resourceSpans`, also with the field names of protobuf JSON, `resource_spans`), one document or one a line;
spans as flat objects with `context` and an attributes object (the SDKs' `to_json`, Phoenix's API), with attributes
nested or dotted; and rows of Phoenix's span table (`context.span_id`, `attributes.llm...`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from simulator.traces.entries import entries
from simulator.traces.load import TraceFile
from simulator.traces.values import bad, items, label, mapping, moment, optional, text, words

LISTS = ("resourceSpans", "resource_spans", "batches", "data", "spans")
_KEPT = ("gen_ai.", "openinference.", "llm.", "traceloop.", "error.type", "mcp.method.name", "service.name",
         "session.id", "ai.toolCall.", "ai.operationId", "ai.response.", "tool.", "tool_call.", "input.value",
         "output.value", "agent.name")  # fmt: skip
_DROPPED = ("gen_ai.input.messages", "gen_ai.system_instructions", "gen_ai.tool.call.result", "gen_ai.tool.definitions",
            "llm.input_messages", "llm.tools", "gen_ai.prompt", "llm.request.functions", "llm.prompts",
            "llm.invocation_parameters", "llm.prompt_template")  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Span:
    """One span as exported: identity, times in nanoseconds, the attributes that matter here, its events' attributes."""

    where: str
    trace: str
    id: str
    parent: str
    start_ns: int | None
    end_ns: int | None
    zoned: bool
    failed: bool
    attributes: dict[str, object]
    events: list[dict[str, object]] = field(default_factory=list)

    def text(self, key: str) -> str | None:
        """A text attribute, or None (empty text is none)."""
        return words(self.attributes.get(key))


def looks_like(sample: object) -> bool:
    """Whether a parsed document, line or list element holds OpenTelemetry spans."""
    if not isinstance(sample, dict):
        return False
    if any(isinstance(sample.get(k), list) for k in ("resourceSpans", "resource_spans")) or "scopeSpans" in sample:
        return True
    context = sample.get("context")
    if isinstance(context, dict) and "trace_id" in context and "attributes" in sample:
        return True
    return "context.trace_id" in sample and any(k.startswith("attributes") for k in sample)


def spans(sources: Iterable[TraceFile]) -> Iterator[Span]:
    """The spans of files, in file order."""
    for source in sources:
        for entry in entries(source, *LISTS):
            found = mapping(entry.value, entry.where)
            if any(k in found for k in ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")) or (
                "resource" in found and "context" not in found and "attributes" not in found
            ):
                yield from _resource(found, entry.where)
            elif "spanId" in found or "span_id" in found:
                yield _otlp(found, {}, entry.where)
            elif "context" in found or "context.trace_id" in found:
                yield _flat(found, entry.where)
            elif found.keys() & {"resourceMetrics", "resourceLogs"} or not found:
                continue
            else:
                raise bad(entry.where, "a span or a block of resourceSpans", found)


def _of(found: dict[str, object], *keys: str) -> object:
    return next((found[k] for k in keys if found.get(k) is not None), None)


def _resource(entry: dict[str, object], where: str) -> Iterator[Span]:
    resource = optional(mapping, entry.get("resource"), f"{where}.resource") or {}
    common = _pairs(resource.get("attributes"), f"{where}.resource")
    name = {k: v for k, v in common.items() if k == "service.name"}
    scopes = _of(entry, "scopeSpans", "scope_spans", "instrumentationLibrarySpans")
    for i, scope in enumerate(optional(items, scopes, f"{where}.scopeSpans") or []):
        place = f"{where}.scopeSpans[{i}]"
        inside = mapping(scope, place).get("spans")
        for j, value in enumerate(optional(items, inside, f"{place}.spans") or []):
            yield _otlp(mapping(value, f"{place}.spans[{j}]"), name, f"{place}.spans[{j}]")


def _place(where: str, span_id: str) -> str:
    """File (and line) and span, for messages."""
    head = where.partition(": ")[0].partition("[")[0]
    return f"{head}: span {span_id}"


def _otlp(found: dict[str, object], common: dict[str, object], where: str) -> Span:
    span_id = text(_of(found, "spanId", "span_id"), f"{where}.spanId")
    place = _place(where, span_id)
    status = optional(mapping, found.get("status"), f"{place}.status") or {}
    attributes = {**common, **_pairs(found.get("attributes"), place)}
    span = Span(
        where=place,
        trace=text(_of(found, "traceId", "trace_id"), f"{place}.traceId"),
        id=span_id,
        parent=optional(text, _of(found, "parentSpanId", "parent_span_id"), f"{place}.parentSpanId") or "",
        start_ns=_nanoseconds(_of(found, "startTimeUnixNano", "start_time_unix_nano"), f"{place}.startTimeUnixNano"),
        end_ns=_nanoseconds(_of(found, "endTimeUnixNano", "end_time_unix_nano"), f"{place}.endTimeUnixNano"),
        zoned=True,
        failed=status.get("code") in (2, "STATUS_CODE_ERROR") or "error.type" in attributes,
        attributes=attributes,
    )
    for i, value in enumerate(optional(items, found.get("events"), f"{place}.events") or []):
        event = mapping(value, f"{place}.events[{i}]")
        if _answers(event):
            span.events.append(_pairs(event.get("attributes"), f"{place}.events[{i}]"))
    return span


def _flat(found: dict[str, object], where: str) -> Span:
    context = optional(mapping, found.get("context"), f"{where}.context") or {}
    span_id = _hex(label(context.get("span_id", found.get("context.span_id")), f"{where}: context.span_id"))
    place = _place(where, span_id)
    attributes: dict[str, object] = {}
    _flatten("", optional(mapping, found.get("attributes"), f"{place}: attributes") or {}, attributes, 0)
    for key, value in found.items():
        if key.startswith("attributes."):
            _flatten(key.removeprefix("attributes."), value, attributes, 0)
    if isinstance(found.get("span_kind"), str) and found["span_kind"] != "UNKNOWN":
        attributes.setdefault("openinference.span.kind", found["span_kind"])
    resource = found.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("attributes"), dict):
        service = resource["attributes"].get("service.name")
        attributes.setdefault("service.name", service)
    status = found.get("status")
    code = status.get("status_code", status.get("code")) if isinstance(status, dict) else found.get("status_code")
    start = optional(moment, found.get("start_time"), f"{place}: start_time")
    end = optional(moment, found.get("end_time"), f"{place}: end_time")
    parent = optional(label, _of(found, "parent_id", "parent_span_id"), f"{place}: parent_id")
    span = Span(
        where=place,
        trace=_hex(label(context.get("trace_id", found.get("context.trace_id")), f"{place}: context.trace_id")),
        id=span_id,
        parent=_hex(parent or ""),
        start_ns=nanoseconds(start),
        end_ns=nanoseconds(end),
        zoned=start[1] if start else True,
        failed=code in ("ERROR", "StatusCode.ERROR", 2) or "error.type" in attributes,
        attributes=attributes,
    )
    happened = found.get("events")
    for event in happened if isinstance(happened, list) else []:
        if isinstance(event, dict) and isinstance(event.get("attributes"), dict) and _answers(event):
            span.events.append({k: v for k, v in event["attributes"].items() if _kept(k)})
    return span


def _answers(event: dict[str, object]) -> bool:
    """Whether a span event may hold the answer: others repeat the messages that were put to the model."""
    name = event.get("name")
    return not isinstance(name, str) or not name.endswith((".message", ".prompt"))


def _hex(value: str) -> str:
    return value.removeprefix("0x")


def nanoseconds(at: tuple[float, bool] | None) -> int | None:
    """A time in seconds as whole nanoseconds (to a microsecond)."""
    return None if at is None or at[0] > 1e12 else round(at[0] * 1e6) * 1000


def _flatten(key: str, value: object, into: dict[str, object], depth: int) -> None:
    """Nested attributes under dotted keys; lists of objects under their numbers."""
    if depth > 24 or (key and not _kept(key) and not any(p.startswith(key) for p in _KEPT)):
        return
    if isinstance(value, dict):
        for k, v in value.items():
            _flatten(f"{key}.{k}" if key else str(k), v, into, depth + 1)
    elif isinstance(value, list) and value and isinstance(value[0], dict) and not key.startswith("gen_ai."):
        for i, item in enumerate(value):
            _flatten(f"{key}.{i}", item, into, depth + 1)
    elif _kept(key) and value is not None:
        into[key] = value


def _kept(key: str) -> bool:
    return key.startswith(_KEPT) and not key.startswith(_DROPPED)


def _nanoseconds(value: object, where: str) -> int | None:
    """A time in nanoseconds, written as text or a number; 0 and absent are unknown."""
    if value is None or value in (0, "0", ""):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        return int(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e20 and value == int(value):
        return int(value)
    raise bad(where, "nanoseconds since 1970 as a whole number", value)


def _pairs(value: object, where: str) -> dict[str, object]:
    """The attributes of an OTLP list of pairs (or of a plain object) that matter here."""
    found: dict[str, object] = {}
    if isinstance(value, dict):
        _flatten("", value, found, 0)
        return found
    for i, entry in enumerate(optional(items, value, f"{where}.attributes") or []):
        place = f"{where}.attributes[{i}]"
        pair = mapping(entry, place)
        key = text(pair.get("key"), f"{place}.key")
        if _kept(key):
            found[key] = _value(pair.get("value"), place)
    return found


def _value(value: object, where: str) -> object:
    """The plain value of an OTLP AnyValue."""
    if value is None:
        return None
    found = mapping(value, where)
    array = _of(found, "arrayValue", "array_value")
    if array is not None:
        return [_value(v, where) for v in items(mapping(array, where).get("values", []), where)]
    listed = _of(found, "kvlistValue", "kvlist_value")
    if listed is not None:
        entries_ = [mapping(p, where) for p in items(mapping(listed, where).get("values", []), where)]
        return {text(p.get("key"), where): _value(p.get("value"), where) for p in entries_}
    whole = _of(found, "intValue", "int_value")
    if isinstance(whole, str):
        if not whole.lstrip("-").isdigit() or len(whole) > 20:
            raise bad(where, "a whole number", whole)
        return int(whole)
    if whole is not None:
        return whole
    return _of(found, "stringValue", "string_value", "doubleValue", "double_value", "boolValue", "bool_value")
