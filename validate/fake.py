"""A fast engine in this process: seeded or scripted behaviour, a virtual clock, honest token counts and caches.

It answers the same interface as a real one, so the protocol can be tried and tested without any engine. Time is that
of the cost model: the prompt is rendered to text, four characters are a token, a prefix that an earlier request of the
role computed is cached as the deployment's cache rule says, and `plan_request` gives the passes. A cache belongs to one
conversation: nothing is shared between tasks.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from costmodel.ledger import request_shares
from costmodel.pricing import WALL, Pricing
from costmodel.protocol import Role
from costmodel.request import RequestPlan
from costmodel.session import EngineRequest
from validate.actions import Tools, ToolsAround
from validate.chat import Message, ToolSpec, ToolUse
from validate.engine import Answer, Ask
from validate.tools import ToolResult

_CHARS_PER_TOKEN = 4
_TEXTS, _CONVERSATIONS = 32, 8
"""How much a fake cache holds: texts of a conversation that diverge, and conversations."""


class VirtualClock:
    """A clock that moves only when somebody spends time on it, from `start_s` on."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        """Seconds since the run began."""
        return self._now_s

    def spend(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s += seconds


@dataclass(frozen=True, slots=True)
class Words:
    """What a behaviour makes a model say: text, calls, and thinking tokens that are decoded but not shown."""

    text: str = ""
    uses: tuple[ToolUse, ...] = ()
    thinking_tokens: int = 0


class Behaviour(Protocol):
    """What the fake models write and how the fake reviewer judges."""

    def write(self, ask: Ask) -> Words:
        """The step a model writes."""

    def judge(self, ask: Ask, segment: Sequence[Message]) -> int:
        """How many of the segment's assistant messages, from the first, are valid."""


def rendered(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
    """The prompt as text: tools, then messages; a longer chat extends a shorter one character for character."""
    head = "".join(f"<tool>{t.name} {t.description} {sorted(t.parameters.items())}\n" for t in tools)
    return head + "".join(_line(m) for m in messages)


def _line(m: Message) -> str:
    calls = "".join(f"<call>{u.name} {sorted(u.arguments.items())}</call>" for u in m.tool_uses)
    return f"<{m.role}>{m.text}{calls}</{m.role}>\n"


def tokens_of(text: str) -> int:
    """Tokens of a text: four characters each, rounded up, at least one."""
    return max(1, -(-len(text) // _CHARS_PER_TOKEN))


def common_chars(a: str, b: str) -> int:
    """Length of the longest common prefix."""
    n = min(len(a), len(b))
    x, y = (np.frombuffer(t[:n].encode("utf-32-le", "surrogatepass"), dtype=np.uint32) for t in (a, b))
    different = np.flatnonzero(x != y)
    return int(different[0]) if len(different) else n


@dataclass(frozen=True, slots=True)
class _Cached:
    """A text that was computed, and the prefix lengths of it that can be found again, in tokens."""

    text: str
    saved: tuple[int, ...]


class FakeEngine:
    """One role's engine.

    Parameters
    ----------
    role : Role
    pricing : Pricing
        Prices of the deployment or API that stands for this role.
    behaviour : Behaviour
    clock : VirtualClock
        Shared by both engines and the tools of a run.
    """

    def __init__(self, role: Role, pricing: Pricing, behaviour: Behaviour, clock: VirtualClock) -> None:
        self.role, self.pricing, self.behaviour, self.clock = role, pricing, behaviour, clock
        self._computed: dict[str, list[_Cached]] = {}

    def restart(self) -> None:
        """The engine starts again: its cache is empty."""
        self._computed.clear()

    async def ask(self, ask: Ask) -> Answer:
        """Answer one request and let its time pass."""
        prompt = rendered(ask.messages, ask.tools) + "<assistant>"
        if ask.labels:
            words = Words(text=str(self.behaviour.judge(ask, ask.messages[:-1])))
            written = ""
        else:
            words = self.behaviour.write(ask)
            written = _line(Message(role="assistant", text=words.text, tool_uses=words.uses)).removeprefix(
                "<assistant>"
            )
        output = 1 if ask.labels else min(ask.max_tokens, tokens_of(written) + words.thinking_tokens)
        cut = not ask.labels and tokens_of(written) + words.thinking_tokens > ask.max_tokens
        request = self._request(ask, prompt, output)
        plan = self.pricing.plan(request)
        prefill_s, decode_s = self._seconds(request, plan)
        sent_s = self.clock.now_s()
        self.clock.spend(prefill_s)
        first_s = self.clock.now_s()
        self.clock.spend(decode_s)
        self._remember(ask.conversation, prompt + ("" if words.thinking_tokens else written), plan)
        return Answer(
            text=words.text,
            tool_uses=words.uses,
            finish="length" if cut else "tool_calls" if words.uses else "stop",
            prompt_tokens=request.prompt_tokens,
            cached_tokens=plan.cached_tokens,
            output_tokens=output,
            sent_s=sent_s,
            first_token_s=first_s,
            done_s=self.clock.now_s(),
            server={
                "prefill_passes": float(len(plan.passes)),
                "decode_passes": float(plan.decode_passes),
                "thinking_tokens": float(words.thinking_tokens),
            },
        )

    def _request(self, ask: Ask, prompt: str, output: int) -> EngineRequest:
        known = self._computed.get(ask.conversation, [])
        reusable = max((self._reusable(prompt, c) for c in known), default=0)
        n = tokens_of(prompt)
        phase = "verify_prefill" if ask.kind == "verify" else "observation_prefill"
        return EngineRequest(self.role, ask.kind, 0, n, reusable, output, ((phase, n),), "decode")

    def _seconds(self, request: EngineRequest, plan: RequestPlan) -> tuple[float, float]:
        """Time to the first token, and from there to the end."""
        prefill = decode = 0.0
        for row, _, count in request_shares(request, plan, self.pricing.shapes[self.role]):
            seconds = float(self.pricing.row(row)[WALL]) * count
            if row.kind.startswith("decode") or row.kind == "api_output_token":
                decode += seconds
            else:
                prefill += seconds
        return prefill, decode

    def _reusable(self, prompt: str, cached: _Cached) -> int:
        """Longest prefix of the prompt, in tokens, that a cached text still gives."""
        common = common_chars(prompt, cached.text) // _CHARS_PER_TOKEN
        if self.pricing.rules[self.role].state_aligned:
            return max((s for s in cached.saved if s <= common), default=0)
        return min(common, max(cached.saved))

    def _remember(self, conversation: str, text: str, plan: RequestPlan) -> None:
        """Keep what was computed; a text that this one extends is merged into it."""
        known = self._computed.pop(conversation, [])
        merged = {s for c in known if text.startswith(c.text) for s in c.saved}
        kept = [c for c in known if not text.startswith(c.text)]
        now = _Cached(text, tuple(sorted({*plan.saved_tokens, *merged})))
        self._computed[conversation] = [*kept[1 - _TEXTS :], now]
        for old in list(self._computed)[:-_CONVERSATIONS]:
            del self._computed[old]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """Follows a script per conversation, with seeded mistakes; the reviewer compares with the script.

    Parameters
    ----------
    scripts : mapping conversation -> calls in order, as (tool, arguments); a closing reply follows
        A mistaken step is an action out of some other script: well-formed, and wrong here.
    weak_hazard, strong_hazard, detection, false_reject : float
        Probabilities as in a scenario's [quality].
    thinking : mapping Role -> thinking tokens per step
    seed : int
    """

    scripts: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]]
    weak_hazard: float
    strong_hazard: float
    detection: float
    false_reject: float
    thinking: Mapping[Role, int]
    seed: int = 0

    def write(self, ask: Ask) -> Words:
        """The script's next step, or a mistake."""
        position = ask.step
        hazard = self.weak_hazard if ask.role is Role.WEAK else self.strong_hazard
        rng = self._rng(ask.conversation, position, ask.kind)
        right = self._step(ask.conversation, position)
        thinking = self.thinking.get(ask.role, 0)
        if rng.random() < hazard:
            right = rng.choice([a for script in self.scripts.values() for a in script])
        if right is None:
            return Words(text="Done; everything you asked for has been looked at.", thinking_tokens=thinking)
        use = ToolUse(id="", name=right[0], arguments=dict(right[1]))
        return Words(uses=(use,), thinking_tokens=thinking)

    def judge(self, ask: Ask, segment: Sequence[Message]) -> int:
        """The first step that differs from the script and is noticed, or that is right and rejected all the same."""
        n = len(ask.labels) - 1
        written = [m for m in segment if m.role == "assistant"]
        for m, message in enumerate(written[-n:]):
            position = ask.step + m
            rng = self._rng(ask.conversation, position, "judge")
            wrong = not self._matches(ask.conversation, position, message)
            if rng.random() < (self.detection if wrong else self.false_reject):
                return m
        return n

    def _matches(self, conversation: str, position: int, message: Message) -> bool:
        right = self._step(conversation, position)
        if right is None or not message.tool_uses:
            return right is None and not message.tool_uses
        use = message.tool_uses[0]
        return (use.name, dict(use.arguments)) == (right[0], dict(right[1]))

    def _step(self, conversation: str, position: int) -> tuple[str, Mapping[str, Any]] | None:
        script = self.scripts[conversation]
        return script[position] if position < len(script) else None

    def _rng(self, conversation: str, position: int, kind: str) -> random.Random:
        return random.Random(f"{self.seed}/{conversation}/{position}/{kind}")


class VirtualTools(ToolsAround):
    """Tools whose calls take `tool_s` on the virtual clock, whatever they take in truth."""

    def __init__(self, tools: Tools, clock: VirtualClock, tool_s: float) -> None:
        super().__init__(tools)
        self.clock, self.tool_s = clock, tool_s

    async def call(self, use: ToolUse, *, key: str) -> ToolResult:
        """Call, and let the time pass."""
        result = await self.tools.call(use, key=key)
        self.clock.spend(self.tool_s)
        return result
