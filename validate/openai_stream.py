"""One streamed answer of a chat server: its pieces put together, and read strictly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from validate.actions import Clock
from validate.calls import read_json
from validate.chat import ToolSpec, ToolUse
from validate.engine import Ask

REPLY_TOOL = ToolSpec(
    name="reply_to_user",
    description="Speak to the user; ends the turn.",
    parameters={
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)
"""Offered beside the tools where a call is required, so that the model can still speak."""

VERDICT_KEY = "verdict"
"""Where servers that only know JSON schemas put a verdict's label."""

Finish = Literal["stop", "tool_calls", "length"]


@dataclass(slots=True)
class StreamedAnswer:
    """What has come of one answer so far."""

    text: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)
    finish: str | None = None
    usage: Any = None
    first_s: float | None = None

    def take(self, chunk: Any, clock: Clock) -> None:
        """Add one piece."""
        if chunk.usage is not None:
            self.usage = chunk.usage
        if not chunk.choices:
            return
        delta = chunk.choices[0].delta
        if self.first_s is None and (delta.content or delta.tool_calls or (delta.model_extra or {}).get("reasoning")):
            self.first_s = clock.now_s()
        self.text += delta.content or ""
        for piece in delta.tool_calls or ():
            call = self.calls.setdefault(piece.index, ["", "", ""])
            call[0] = piece.id or call[0]
            if piece.function is not None:
                call[1] += piece.function.name or ""
                call[2] += piece.function.arguments or ""
        self.finish = chunk.choices[0].finish_reason or self.finish

    def read(self, ask: Ask) -> tuple[str, tuple[ToolUse, ...], Finish]:
        """Text, calls and end; calls that are not all well-formed are none, and the answer counts as cut."""
        cut = self.finish == "length"
        if ask.labels:
            return _verdict(self.text), (), "length" if cut else "stop"
        if not self.calls:
            return self.text, (), "length" if cut else "stop"
        calls = [self.calls[index] for index in sorted(self.calls)]
        names = {tool.name for tool in (*ask.tools, REPLY_TOOL)}
        uses = [_tool_use(call, names) for call in calls]
        good = [use for use in uses if use is not None]
        if cut or len(good) < len(uses):
            return self.text + "".join(f"{name} {arguments}" for _, name, arguments in calls), (), "length"
        said = [str(use.arguments.get("text", "")) for use in good if use.name == REPLY_TOOL.name]
        rest = tuple(use for use in good if use.name != REPLY_TOOL.name)
        return "\n".join(part for part in (self.text, *said) if part), rest, "tool_calls" if rest else "stop"


def _tool_use(call: list[str], names: set[str]) -> ToolUse | None:
    call_id, name, arguments = call
    parsed = read_json(arguments or "{}")
    return ToolUse(id=call_id, name=name, arguments=parsed) if name in names and isinstance(parsed, dict) else None


def _verdict(text: str) -> str:
    """The label in a verdict, which some servers wrap in an object; anything else stays as it is."""
    match read_json(text):
        case {"verdict": str(label), **rest} if not rest:
            return label
    return text
