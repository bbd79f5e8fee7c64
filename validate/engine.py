"""The one interface every engine answers: real vLLM in this process, a server behind a URL, the fake one in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from costmodel.protocol import Role
from validate.chat import Message, ToolSpec, ToolUse

Kind = Literal["draft", "write", "verify", "repair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request to a model.

    Parameters
    ----------
    kind : str
        draft, write and repair ask for a step (tool calls or a reply); verify asks for a verdict.
    conversation : str
        The task it belongs to; requests of one conversation share a prefix.
    messages : tuple of Message
        The whole prompt. For verify: committed chat, segment as it would be committed, instruction last.
    tools : tuple of ToolSpec
        Tools the model may call; the same tuple in every request of a conversation, verify included, so that the
        rendered prefix stays the same.
    labels : tuple of str
        For verify: the only allowed answers, one token each ("0" .. "n": how many steps are valid). Empty otherwise.
    step : int
        Index in the task of the step to write, or of the first one to review.
    max_tokens : int
    """

    role: Role
    kind: Kind
    conversation: str
    step: int = 0
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    labels: tuple[str, ...] = ()
    max_tokens: int = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back.

    Parameters
    ----------
    finish : str
        stop, tool_calls or length (cut: a verdict that was cut is no verdict).
    prompt_tokens, cached_tokens, output_tokens : int
        As the engine counts them; `cached_tokens` None where it does not say.
    sent_s, first_token_s, done_s : float
        Client times on the run's clock; `first_token_s` None where the answer came whole.
    server : mapping
        What the engine reports besides (queue, prefill, decode seconds, metric deltas).
    """

    text: str
    tool_uses: tuple[ToolUse, ...] = ()
    finish: Literal["stop", "tool_calls", "length"] = "stop"
    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int
    sent_s: float
    first_token_s: float | None
    done_s: float
    server: Mapping[str, float] = field(default_factory=dict)


class ChatEngine(Protocol):
    """Answers asks of one role; raises `EngineError` where it cannot."""

    async def ask(self, ask: Ask) -> Answer:
        """One request."""


class EngineError(ConnectionError):
    """The engine failed or restarted; the request may be sent again, nothing in the world has changed."""
