"""Chats as token ids, by the model's own chat template, and the check that nothing rendered before ever changes.

The protocol rests on it: the reviewer's prompt is the committed chat and the segment, token for token as they would be
committed, with the instruction last; only then does the engine's prefix cache spare what was computed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hwprofiles.errors import InputError
from validate.calls import chat_message, tool_document
from validate.chat import Message, ToolSpec, ToolUse
from validate.engine import Ask

_REMEMBERED = 16

_PROBE_TOOL = ToolSpec(
    name="look_up",
    description="Looks one thing up.",
    parameters={"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
)


@dataclass(frozen=True, slots=True)
class _Base:
    """A chat that was rendered before."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    tokens: list[int]

    def is_extended_by(self, ask: Ask) -> bool:
        return ask.tools == self.tools and ask.messages[: len(self.messages)] == self.messages


class ChatRenderer:
    """Renders one model's prompts.

    Parameters
    ----------
    tokenizer : a Hugging Face tokenizer with a chat template
    model : str
        Name for messages.

    Raises
    ------
    InputError
        There is no chat template, or it rewrites earlier messages when later ones are added.
    """

    def __init__(self, tokenizer: Any, model: str) -> None:
        self._tokenizer, self._model = tokenizer, model
        self._bases: dict[str, list[_Base]] = {}
        self._probe()

    def prompt(self, ask: Ask) -> list[int]:
        """The prompt of a request, opened for the model to write.

        Raises
        ------
        InputError
            The rendering of an earlier request of the conversation, whose chat this one extends, is not a prefix.
        """
        tokens = self.tokens(ask.messages, ask.tools, opened=True)
        bases = self._bases.setdefault(ask.conversation, [])
        known = max((b for b in bases if b.is_extended_by(ask)), key=lambda b: len(b.messages), default=None)
        if known is not None:
            self._expect_prefix(known.tokens, tokens)
        chat = _settled(ask.messages[:-1] if ask.kind == "verify" else ask.messages)
        if chat and (known is None or chat != known.messages):
            base = _Base(chat, ask.tools, self.tokens(chat, ask.tools, opened=False))
            self._expect_prefix(base.tokens, tokens)
            self._bases[ask.conversation] = [*bases[1 - _REMEMBERED :], base]
        return tokens

    def tokens(self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, opened: bool) -> list[int]:
        """Token ids of a chat; `opened` adds what comes before the model's own words."""
        text = self._tokenizer.apply_chat_template(
            [chat_message(message, as_text=False) for message in messages],
            tools=[tool_document(tool) for tool in tools] or None,
            add_generation_prompt=opened,
            tokenize=False,
            enable_thinking=False,
        )
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def label_tokens(self, labels: Sequence[str]) -> dict[int, str]:
        """Token id -> verdict label; every label must be exactly one token, so that a verdict is never half a label."""
        out: dict[int, str] = {}
        for label in labels:
            tokens = self._tokenizer.encode(label, add_special_tokens=False)
            if len(tokens) != 1:
                raise InputError(
                    f"verdict label {label!r} is {len(tokens)} tokens of {self._model}; labels must be one token each"
                )
            out[tokens[0]] = label
        return out

    def _expect_prefix(self, base: Sequence[int], tokens: Sequence[int]) -> None:
        same = common_prefix(base, tokens)
        if same < len(base):
            raise InputError(
                f"the chat template of {self._model} rewrites earlier messages when later ones are added: token "
                f"{same} of {len(base)} changed, so a cached prefix cannot be used; give the model a template that "
                "only appends"
            )

    def _probe(self) -> None:
        """Render a small chat the way the protocol does, so that a bad template shows before the first task."""
        call = Message(role="assistant", tool_uses=(ToolUse(id="call_0", name="look_up", arguments={"what": "a"}),))
        held = Message(role="assistant", tool_uses=(ToolUse(id="call_1", name="look_up", arguments={"what": "b"}),))
        result = Message(role="tool", text="found", tool_call_id="call_0")
        chat = (Message(role="system", text="Be brief."), Message(role="user", text="Look a and b up."), call, result)
        review = (*chat, held, Message(role="user", text="How many steps are right?"))
        onward = (*chat, held, Message(role="tool", text="found", tool_call_id="call_1"))
        try:
            base = self.tokens(chat, (_PROBE_TOOL,), opened=False)
            prompts = [self.tokens(messages, (_PROBE_TOOL,), opened=True) for messages in (chat, review, onward)]
        except Exception as error:  # templates are programs: jinja, type and value errors alike
            why = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"the chat template of {self._model} cannot render a chat with tools: {why}") from None
        for tokens in prompts:
            self._expect_prefix(base, tokens)
        shared = self._tokenizer.decode(prompts[1][len(base) : common_prefix(prompts[1], prompts[2])])
        if "look_up" not in shared or '"b"' not in shared:
            raise InputError(
                f"the chat template of {self._model} renders a call differently before a review and before its result, "
                "or leaves it out; give the model a template that only appends"
            )


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences share from their start."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _settled(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The chat without model messages at its end: some templates write those differently until something follows."""
    end = len(messages)
    while end and messages[end - 1].role == "assistant":
        end -= 1
    return messages[:end]
