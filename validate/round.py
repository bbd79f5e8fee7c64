"""One round of a strategy, played for real: its requests go to engines and tools, its commit to the chat."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from costmodel.guard import RoundGuard
from costmodel.protocol import CallTool, Commit, Draft, Repair, Request, Role, Verify, Write
from costmodel.trajectory import RUNS_FREELY, strictest
from hwprofiles.errors import InputError
from validate.chat import Message, ToolUse
from validate.engine import Answer, Ask, EngineError, Kind
from validate.steps import RealStep, answer_document, effect_of, to_document

if TYPE_CHECKING:
    from validate.runner import TaskRunner

MAX_WINDOW = 9
"""Verdict labels are single digits, so that a verdict is one token."""

_VERDICT_TOKENS = 4
"""Room for a verdict: one digit, and what a tokenizer may put around it."""

INSTRUCTION = (
    "Review the last {n} assistant steps above. Answer with one digit: how many of them, counted from the first of "
    "these {n}, are valid before the first invalid one (0 to {n})."
)
REPAIR = "Step {m} of these was not valid. Write the step that should stand there instead."


@dataclass(frozen=True, slots=True)
class _Verdict:
    accepted: int


@dataclass(frozen=True, slots=True)
class _View:
    remaining: int

    def ended(self, segment: Sequence[Any]) -> bool:
        return len(segment) >= self.remaining or any(s.is_final for s in segment)


class Round:
    """One round: a generator of the strategy, answered for real."""

    def __init__(self, runner: TaskRunner) -> None:
        self.r = runner
        self.guard = RoundGuard(runner.strategy.name)
        self.sequence = 0
        self.segment: list[RealStep] = []
        self.review: tuple[Ask, str] | None = None

    async def play(self) -> bool:
        """Play it to its commit; True when the task is over."""
        rounds = self.r.strategy.round(_View(self.r.limits.max_steps - self.r.n_committed))
        answer: object = None
        while True:
            try:
                request = rounds.send(answer)
            except StopIteration as stop:
                return await self._commit(cast(Commit, stop.value))
            answer = await self._answer(request)

    async def _answer(self, request: Request) -> object:
        match request:
            case Draft(role, segment):
                self.guard.before_draft(len(segment))
                step, _ = await self._author(role, "draft", self._chat(self.segment[: len(segment)]), len(segment))
                self.guard.after_draft(step.offset, step.effect)
                self.segment = [*self.segment[: step.offset], step]
                return step
            case CallTool(step):
                await self._call_drafted(step)
                return None
            case Verify(role, segment):
                return await self._verify(role, len(segment))
            case Write(role):
                self.guard.before_write()
                step, event = await self._author(role, "write", self._chat([]), 0)
                self._allow(step, "written", event)
                return step
            case Repair(role, _, accepted):
                self.guard.before_repair(accepted)
                step, event = await self._author(role, "repair", self._repair_chat(accepted), accepted)
                self._allow(step, "written", event)
                return step
        raise TypeError(f"not a request: {request!r}")

    # -- requests to models -----------------------------------------------------------------------------------------

    def _chat(self, segment: Sequence[RealStep]) -> tuple[Message, ...]:
        """Committed chat and drafted steps as they would be committed."""
        return (*self.r.chat, *(m for s in segment for m in s.messages()))

    def _repair_chat(self, accepted: int) -> tuple[Message, ...]:
        if self.r.repair_mode == "continue" and self.review is not None:
            ask, label = self.review
            text = REPAIR.format(m=accepted + 1)
            return (*ask.messages, Message(role="assistant", text=label), Message(role="user", text=text))
        return self._chat(self.segment[:accepted])

    async def _ask(
        self, role: Role, kind: Kind, messages: tuple[Message, ...], offset: int, labels: tuple[str, ...] = ()
    ) -> tuple[Ask, dict[str, Any], int]:
        """Ask a model, or recall what it answered before the run was cut; returns the answer's data and its event."""
        r = self.r
        ask = Ask(
            role=role,
            kind=kind,
            conversation=r.task.id,
            step=r.n_committed + offset,
            messages=messages,
            tools=r.tools.specs,
            labels=labels,
            max_tokens=_VERDICT_TOKENS if labels else r.limits.max_tokens,
        )
        slot = str(self.sequence)
        self.sequence += 1
        known = r.journal.find(r.task.id, r.round, "asked", slot)
        if known is None:
            known = {"ask": kind, "role": str(role), "step": ask.step, **answer_document(await self._try(ask))}
        event = r.journal.record(r.task.id, r.round, "asked", slot, **known)
        return ask, known, event

    async def _try(self, ask: Ask) -> Answer:
        """Send a request again while the engine fails: nothing in the world has changed."""
        engine = self.r.engines[ask.role]
        for _ in range(self.r.limits.tries - 1):
            with suppress(EngineError):
                return await engine.ask(ask)
        return await engine.ask(ask)

    async def _author(self, role: Role, kind: Kind, messages: tuple[Message, ...], offset: int) -> tuple[RealStep, int]:
        asked = str(self.sequence)
        _, data, event = await self._ask(role, kind, messages, offset)
        origin = "d" if kind == "draft" else "w"
        place = f"{self.r.run_name}:{self.r.task.id}:{self.r.round}:{origin}{asked}"
        # call ids are ours, not the model's: the same text must render to the same tokens for both models
        uses = tuple(
            ToolUse(id=f"call_{self.r.n_committed + offset}_{i}", name=u["name"], arguments=u["arguments"])
            for i, u in enumerate(data["tool_uses"] if not data["malformed"] else ())
        )
        malformed = data["malformed"]
        step = RealStep(
            author=role,
            offset=offset,
            effect=effect_of(self.r.tools.effect, uses, data["text"], malformed=malformed),
            text=data["text"],
            uses=uses,
            malformed=malformed,
            keys=tuple(f"{place}.{i}" for i in range(max(1, len(uses)))),
            output_tokens=data["output_tokens"],
        )
        known = [self.r.actions.intend(self.r.round, key, step, i, origin, asked) for i, key in enumerate(step.keys)]
        return replace(step, effect=strictest([step.effect, *known])), event

    async def _verify(self, role: Role, n: int) -> _Verdict:
        self.guard.before_review(n)
        if n > MAX_WINDOW:
            raise InputError(f"a real run reviews at most {MAX_WINDOW} steps at once, got a window of {n}")
        instruction = Message(role="user", text=INSTRUCTION.format(n=n))
        labels = tuple(str(i) for i in range(n + 1))
        slot = str(self.sequence)
        ask, data, _ = await self._ask(role, "verify", (*self._chat(self.segment[:n]), instruction), 0, labels)
        label = data["text"].strip()
        garbled = label not in labels or data["finish"] == "length"
        accepted = 0 if garbled else int(label)
        covers = [k for s in self.segment[:accepted] for k in s.keys]
        r = self.r
        event = r.journal.record(
            r.task.id, r.round, "verdict", slot, accepted=accepted, reviewed=n, garbled=garbled, covers=covers
        )
        self.guard.after_review(accepted)
        for step in self.segment[:accepted]:
            if step.effect not in RUNS_FREELY:
                self._allow(step, "verdict", event)
        self.review = (ask, label)
        return _Verdict(accepted)

    # -- actions ----------------------------------------------------------------------------------------------------

    def _allow(self, step: RealStep, why: str, event: int) -> None:
        for key in step.keys:
            self.r.actions.authorise(self.r.round, key, why, event)

    async def _call_drafted(self, step: RealStep) -> None:
        self.guard.before_call(step.offset)
        for key in step.keys:
            self.r.actions.authorise(self.r.round, key, "free", 0)
        self.segment[step.offset] = await self.r.actions.run(self.r.round, step)

    async def _commit(self, commit: Commit) -> bool:
        steps = [cast(RealStep, s) for s in commit.steps]
        kept, unrun = self.guard.before_commit([s.offset for s in steps])
        steps = [self.segment[s.offset] if s.offset < kept else s for s in steps]
        for offset in unrun:
            steps[offset] = await self.r.actions.run(self.r.round, steps[offset])
        documents = [to_document(s) for s in steps]
        self.r.journal.record(self.r.task.id, self.r.round, "committed", steps=documents, at_s=self.r.clock.now_s())
        return self.r.take(steps)
