"""What a model's recorded output asked for and said, in the message shapes of the common SDKs.

Read: OpenAI chat and Responses, Anthropic content blocks, LangChain messages, GenAI parts, Gemini parts. Text that no
such shape explains is text for the user; shapes nobody knows say nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from simulator.traces.raw import RawCall, parsed_arguments
from simulator.traces.values import words

_CALLS = ("tool_call", "tool_use", "function_call", "custom_tool_call", "tool-call", "local_shell_call")
_TEXTS = ("text", "output_text")
_OTHERS = ("user", "system", "tool", "human", "developer", "function")
_INSIDE = (
    "choices",
    "generations",
    "candidates",
    "messages",
    "message",
    "output",
    "outputs",
    "kwargs",
    "content",
    "parts",
)
_THOUGHTS = ("thinking", "reasoning", "redacted_thinking", "reasoning_content")
_DEPTH = 12


@dataclass(slots=True)
class Said:
    """Calls and text of an output; `told` says that there was an output to look at."""

    calls: list[RawCall] = field(default_factory=list)
    spoke: bool = False
    told: bool = False
    finish: str | None = None


def said(value: object, where: str) -> Said:
    """Calls and text in a recorded output (a message, a list of them, a response around them, or JSON text of these).

    Raises
    ------
    InputError
        If a tool's name or a call's id is text that no name can be.
    """
    found = Said()
    if value is not None:
        _walk(value, where, found, 0)
    return found


def _walk(value: object, where: str, found: Said, depth: int) -> None:
    if depth > _DEPTH or value is None:
        return
    if isinstance(value, str):
        _text(value, where, found, depth)
    elif isinstance(value, list):
        for item in _last_turn(value):
            _walk(item, where, found, depth + 1)
    elif isinstance(value, dict):
        _object(value, where, found, depth)


def _text(value: str, where: str, found: Said, depth: int) -> None:
    stripped = value.strip()
    if stripped[:1] in ("{", "[") and len(stripped) > 1:
        try:
            inner = json.loads(stripped)
        except (ValueError, RecursionError):
            inner = None
        if _is_message(inner):
            _walk(inner, where, found, depth + 1)
            return
    found.told = True
    found.spoke = found.spoke or bool(stripped)


def _is_message(value: object) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, list) and first:
        first = first[0]
    if not isinstance(first, dict):
        return False
    return any(
        k in first for k in ("role", "tool_calls", "choices", "generations", "kwargs", "candidates", "parts")
    ) or (first.get("type") in (*_CALLS, *_TEXTS, "message", "ai", "constructor"))


def _last_turn(value: list[object]) -> list[object]:
    """The messages after the last one that is not the model's own: outputs may repeat the whole conversation."""
    after = 0
    for i, item in enumerate(value):
        if isinstance(item, dict) and _role(item) in _OTHERS:
            after = i + 1
    return value[after:]


def _role(value: dict[str, object]) -> object:
    role = value.get("role")
    if role is None and value.get("type") in ("human", "system", "tool"):
        return value["type"]
    return role


def _object(value: dict[str, object], where: str, found: Said, depth: int) -> None:
    if _role(value) in _OTHERS:
        return
    found.told = True
    finish = value.get("finish_reason") or value.get("stop_reason") or value.get("finishReason")
    if isinstance(finish, str) and len(finish) < 40:
        found.finish = finish
    kind = value.get("type")
    if kind in _CALLS:
        _call(value, where, found)
    elif kind in _TEXTS:
        _spoken(value.get("text", value.get("content")), found)
    elif kind not in _THOUGHTS:
        if kind is None and "role" not in value and "message" not in value:
            _spoken(value.get("text"), found)
        _inside(value, where, found, depth)


def _spoken(content: object, found: Said) -> None:
    found.spoke = found.spoke or (isinstance(content, str) and bool(content.strip()))


def _inside(value: dict[str, object], where: str, found: Said, depth: int) -> None:
    """What an object holds further in: its content, then the calls beside it."""
    for key in _INSIDE:
        if key in value:
            _walk(value[key], where, found, depth + 1)
            if key in ("choices", "generations", "candidates") and value[key]:
                break
    more = value.get("additional_kwargs")
    also = [value.get(k) for k in ("tool_calls", "function_call", "functionCall")]
    for inside in (*also, more.get("tool_calls") if isinstance(more, dict) else None):
        _calls(inside, where, found)


def _calls(value: object, where: str, found: Said) -> None:
    if isinstance(value, str):
        value = parsed_arguments(value)
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, dict):
            _call(entry, where, found)


def _call(value: dict[str, object], where: str, found: Said) -> None:
    inner = value.get("function")
    inner = inner if isinstance(inner, dict) else value
    local = "local_shell" if value.get("type") == "local_shell_call" else None
    name = words(inner.get("name")) or words(value.get("toolName")) or local
    if name is None:
        return
    call_id = next(
        (v for k in ("id", "call_id", "tool_call_id", "toolCallId") if isinstance(v := value.get(k), str)), None
    )
    given = next(
        (v for k in ("arguments", "args", "input", "parameters", "action") if (v := inner.get(k)) is not None), None
    )
    call = RawCall(
        name=name,
        id=words(call_id),
        arguments=parsed_arguments(given),
    )
    if call.id is not None and any(c.id == call.id for c in found.calls):
        return
    if call.id is None and any(c.name == call.name and c.arguments == call.arguments for c in found.calls):
        return
    found.calls.append(call)
