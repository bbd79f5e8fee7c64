"""A step as a real model wrote it, and its place in the chat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from costmodel.protocol import Role
from costmodel.trajectory import Effect, strictest
from validate.chat import Message, ToolUse
from validate.engine import Answer

MALFORMED = "That was neither a well-formed tool call nor a reply. Write one tool call or one reply."
"""What the model is told after a committed step that nobody could run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealStep:
    """One step: who wrote it, what it says or calls, what it would do to the world, and what came of it.

    `offset` counts from the committed steps; `keys` are the idempotency keys of its calls; `observations` are filled
    when its tools have run.
    """

    author: Role
    offset: int
    effect: Effect
    text: str
    uses: tuple[ToolUse, ...]
    malformed: bool
    keys: tuple[str, ...]
    output_tokens: int
    observations: tuple[Message, ...] = ()

    @property
    def is_final(self) -> bool:
        """A reply without calls ends the task."""
        return not self.uses and not self.malformed

    def messages(self) -> tuple[Message, ...]:
        """The step as it stands in the chat, with its observations as far as they are there."""
        return (Message(role="assistant", text=self.text, tool_uses=self.uses), *self.observations)

    def observed(self, observations: tuple[Message, ...]) -> RealStep:
        """The same step with what its tools answered."""
        return replace(self, observations=observations)


def to_document(step: RealStep) -> dict[str, Any]:
    """A step as plain values for the journal."""
    return {
        "author": str(step.author),
        "offset": step.offset,
        "effect": str(step.effect),
        "text": step.text,
        "uses": [{"id": u.id, "name": u.name, "arguments": dict(u.arguments)} for u in step.uses],
        "malformed": step.malformed,
        "keys": list(step.keys),
        "output_tokens": step.output_tokens,
        "observations": [{"role": m.role, "text": m.text, "tool_call_id": m.tool_call_id} for m in step.observations],
    }


def from_document(document: Mapping[str, Any]) -> RealStep:
    """A step out of the journal."""
    return RealStep(
        author=Role(document["author"]),
        offset=document["offset"],
        effect=Effect(document["effect"]),
        text=document["text"],
        uses=tuple(ToolUse(**u) for u in document["uses"]),
        malformed=document["malformed"],
        keys=tuple(document["keys"]),
        output_tokens=document["output_tokens"],
        observations=tuple(Message(**m) for m in document["observations"]),
    )


def effect_of(
    classify: Callable[[str, Mapping[str, Any]], Effect], uses: Sequence[ToolUse], text: str, *, malformed: bool
) -> Effect:
    """The strictest of a step's calls; words beside a call make it a reply at least; malformed is unknown."""
    if malformed:
        return Effect.UNKNOWN
    if not uses:
        return Effect.REPLY
    found = [classify(u.name, u.arguments) for u in uses]
    return strictest([*found, Effect.REPLY] if text.strip() else found)


def same_calls(one: RealStep, other: RealStep) -> bool:
    """Whether two steps make literally the same calls, in order; without any they do not."""
    calls = [[(u.name, u.arguments) for u in step.uses] for step in (one, other)]
    return bool(calls[0]) and calls[0] == calls[1] and not (one.malformed or other.malformed)


def answer_document(answer: Answer) -> dict[str, Any]:
    """An answer as plain values; a cut step, or one that neither calls nor speaks, is malformed and runs nothing."""
    empty = not answer.tool_uses and not answer.text.strip()
    return {
        "text": answer.text,
        "tool_uses": [{"name": u.name, "arguments": dict(u.arguments)} for u in answer.tool_uses],
        "finish": answer.finish,
        "malformed": empty or answer.finish == "length",
        "prompt_tokens": answer.prompt_tokens,
        "cached_tokens": answer.cached_tokens,
        "output_tokens": answer.output_tokens,
        "sent_s": answer.sent_s,
        "first_token_s": answer.first_token_s,
        "done_s": answer.done_s,
        "server": dict(answer.server),
    }
