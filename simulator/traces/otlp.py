"""Importer for OTLP JSON with OpenTelemetry GenAI attributes: one `chat` span is one step.

`execute_tool` spans are its tools (matched by call id, else by time). Spans are grouped by `gen_ai.conversation.id`,
else by trace; an agent invoked by another one is a trajectory of its own. The conventions count cached tokens inside
the input; instrumentations that do not are recognised by a cache read larger than the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from hwprofiles.errors import InputError
from simulator.traces.load import TraceFile
from simulator.traces.otlp_spans import Span, spans
from simulator.traces.raw import RawCall, RawStep, RawTrajectory, Warnings, parsed_arguments
from simulator.traces.values import count, optional

NAME = "otlp"
DESCRIPTION = "OTLP JSON with OpenTelemetry GenAI attributes (resourceSpans)"
_ENDINGS = ("stop", "end_turn", "length", "max_tokens", "stop_sequence", "content_filter")


def looks_like(sample: object) -> bool:
    """Whether a parsed document (or line) is OTLP trace data."""
    return isinstance(sample, dict) and isinstance(sample.get("resourceSpans"), list)


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories in OTLP files.

    Raises
    ------
    InputError
        If no span is an LLM call.
    """
    forest = _Forest(list(spans(sources, warnings)))
    groups: dict[str, list[Span]] = {}
    for span in forest.spans:
        if span.operation == "chat" or (span.operation == "execute_tool" and not forest.inside_tool(span)):
            groups.setdefault(forest.group(span), []).append(span)
    if not any(s.operation == "chat" for group in groups.values() for s in group):
        raise InputError(_no_call(forest.spans))
    for key, group in groups.items():
        yield _trajectory(key, group, forest, warnings)


def _no_call(found: list[Span]) -> str:
    if not found:
        return "the OTLP files hold no span"
    name = found[0].where.partition(":")[0]
    if any("openinference.span.kind" in s.attributes for s in found):
        return f"{name}: OpenInference spans are not read by this version; gen_ai.* attributes are needed"
    return f"{name}: no span is an LLM call: expected gen_ai.operation.name = chat, generate_content or text_completion"


class _Forest:
    """The spans with their parents."""

    def __init__(self, found: list[Span]) -> None:
        self.spans = found
        self.by_id = {(s.trace, s.id): s for s in found}
        self.conversations: dict[str, set[str]] = {}
        for span in found:
            name = span.text("gen_ai.conversation.id")
            if name is not None:
                self.conversations.setdefault(span.trace, set()).add(name)

    def ancestors(self, span: Span) -> Iterator[Span]:
        """Parent, grandparent, ...; stops at a parent that is not in the files, or at a circle."""
        seen = {span.id}
        parent = self.by_id.get((span.trace, span.parent))
        while parent is not None and parent.id not in seen:
            yield parent
            seen.add(parent.id)
            parent = self.by_id.get((parent.trace, parent.parent))

    def inside_tool(self, span: Span) -> bool:
        """Whether a tool span only repeats one above it (an MCP client span inside the agent's own)."""
        name = span.text("gen_ai.tool.name")
        for above in self.ancestors(span):
            if above.operation == "invoke_agent":
                return False
            if above.operation == "execute_tool" and above.text("gen_ai.tool.name") in (name, None):
                return True
        return False

    def group(self, span: Span) -> str:
        """Conversation or trace, and the agent's span where the agent was invoked by another agent."""
        named = span.text("gen_ai.conversation.id")
        agents = []
        for above in self.ancestors(span):
            named = named or above.text("gen_ai.conversation.id")
            if above.operation == "invoke_agent":
                agents.append(above)
        known = self.conversations.get(span.trace, set())
        base = named or (next(iter(known)) if len(known) == 1 else span.trace)
        return base if len(agents) < 2 else f"{base}/{agents[0].id}"


def _trajectory(key: str, group: list[Span], forest: _Forest, warnings: Warnings) -> RawTrajectory:
    group = sorted(group, key=lambda s: (s.start_ns is None, s.start_ns or 0, s.order))
    chats = []
    for span in group:
        if span.operation != "chat":
            continue
        if span.failed and not any(k.startswith("gen_ai.usage.") for k in span.attributes):
            warnings.add("a failed LLM call without usage is left out", span.where)
            continue
        chats.append(span)
    zero = min((s.start_ns for s in group if s.start_ns is not None), default=0)
    raw = RawTrajectory(id=key, task=key.partition("/")[0], domain=_domain(group, forest))
    apart = any(_tokens(s, "cache_read.input_tokens", "cache_read_input_tokens", default=0) > _input(s) for s in chats)
    if apart:
        warnings.add("cached tokens exceed the input: taken as not counted in it, and added", key)
    raw.steps = [_step(span, i, zero, apart) for i, span in enumerate(chats)]
    _attach([s for s in group if s.operation == "execute_tool"], chats, raw.steps, zero, warnings)
    _speaking(chats, raw.steps)
    _gaps(raw.steps)
    return raw


def _domain(group: list[Span], forest: _Forest) -> str | None:
    for span in group:
        for candidate in (span, *forest.ancestors(span)):
            if name := candidate.text("gen_ai.agent.name"):
                return name
    return group[0].text("service.name") if group else None


def _tokens(span: Span, *keys: str, default: int) -> int:
    value = _maybe(span, *keys)
    return default if value is None else value


def _maybe(span: Span, *keys: str) -> int | None:
    for key in keys:
        found = optional(count, span.attributes.get(f"gen_ai.usage.{key}"), f"{span.where}: gen_ai.usage.{key}")
        if found is not None:
            return found
    return None


def _input(span: Span) -> int:
    return _tokens(span, "input_tokens", "prompt_tokens", default=10**9)


def _step(span: Span, index: int, zero: int, apart: bool) -> RawStep:
    prompt = _maybe(span, "input_tokens", "prompt_tokens")
    cached = _maybe(span, "cache_read.input_tokens", "cache_read_input_tokens")
    made = _maybe(span, "cache_creation.input_tokens", "cache_creation_input_tokens")
    if apart and prompt is not None:
        prompt += (cached or 0) + (made or 0)
    return RawStep(
        where=f"{span.where}, step {index}",
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=_maybe(span, "output_tokens", "completion_tokens"),
        thinking_tokens=_maybe(span, "reasoning.output_tokens", "reasoning_tokens"),
        calls=span.calls,
        spoke=span.spoke,
        told=span.told,
        start_s=_relative(span.start_ns, zero),
        end_s=_relative(span.end_ns, zero),
        model=span.text("gen_ai.response.model") or span.text("gen_ai.request.model"),
    )


def _relative(at_ns: int | None, zero: int) -> float | None:
    return None if at_ns is None else (at_ns - zero) / 1e9


def _attach(tools: list[Span], chats: list[Span], steps: list[RawStep], zero: int, warnings: Warnings) -> None:
    """Give each tool span to the call that asked for it, else to the last step that began before it."""
    asked = {call.id: call for step in steps for call in step.calls if call.id is not None}
    done: set[int] = set()
    for span in tools:
        call = asked.get(span.text("gen_ai.tool.call.id") or "")
        if call is None or id(call) in done:
            call = _by_time(span, chats, steps, done, warnings)
        if call is None:
            continue
        done.add(id(call))
        call.start_s, call.end_s = _relative(span.start_ns, zero), _relative(span.end_ns, zero)
        if call.start_s is not None and call.end_s is not None and call.end_s < call.start_s:
            warnings.add("a tool ends before it starts; its times are left out", span.where)
            call.start_s = call.end_s = None
        call.error = span.failed
        if call.arguments is None:
            call.arguments = parsed_arguments(span.attributes.get("gen_ai.tool.call.arguments"))


def _by_time(span: Span, chats: list[Span], steps: list[RawStep], done: set[int], warnings: Warnings) -> RawCall | None:
    name = span.text("gen_ai.tool.name")
    if name is None:
        warnings.add("a tool span without gen_ai.tool.name is left out", span.where)
        return None
    at = span.start_ns
    owner = None
    for chat, step in zip(chats, steps, strict=True):
        if at is not None and chat.start_ns is not None and chat.start_ns <= at:
            owner = step
    if owner is None:
        warnings.add("a tool span belongs to no LLM call", span.where)
        return None
    for call in owner.calls:
        if call.name == name and id(call) not in done:
            return call
    call = RawCall(name=name, id=span.text("gen_ai.tool.call.id"))
    owner.calls.append(call)
    return call


def _speaking(chats: list[Span], steps: list[RawStep]) -> None:
    """Where content was not recorded, a step that simply stopped without a call spoke to the user."""
    for span, step in zip(chats, steps, strict=True):
        if step.told or step.calls:
            continue
        reasons = span.attributes.get("gen_ai.response.finish_reasons")
        reasons = reasons if isinstance(reasons, list) else [reasons]
        step.spoke = any(r in _ENDINGS for r in reasons if isinstance(r, str))


def _gaps(steps: list[RawStep]) -> None:
    """Time between a reply and the next step is the user's."""
    for before, step in pairwise(steps):
        ends = [t for t in (before.end_s, *(c.end_s for c in before.calls)) if t is not None]
        if not (before.spoke and not before.calls):
            step.user_gap_s = 0.0
        elif ends and step.start_s is not None:
            step.user_gap_s = max(0.0, step.start_s - max(ends))
