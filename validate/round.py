"""One round of a strategy, played for real: its requests go to engines and tools, its commit to the chat."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from costmodel.guard import RoundGuard
from costmodel.protocol import (
    CallTool,
    Cancel,
    Commit,
    Draft,
    Observe,
    Repair,
    Request,
    Reuse,
    Role,
    Start,
    Toss,
    Verify,
    Wait,
    Write,
)
from costmodel.trajectory import RUNS_FREELY, strictest
from hwprofiles.errors import InputError
from validate.beside import Beside
from validate.chat import Message, ToolUse
from validate.engine import Answer, Ask, EngineError, Kind
from validate.steps import RealStep, answer_document, effect_of, same_calls, to_document
from validate.view import RealVerdict, RealView

if TYPE_CHECKING:
    from validate.runner import TaskRunner

MAX_WINDOW = 9
"""Verdict labels are single digits, so that a verdict is one token."""

VERDICT_TOKENS = 4
"""Room for a verdict: one digit, and what a tokenizer may put around it."""

INSTRUCTION = (
    "Review the last {n} assistant steps above. Answer with one digit: how many of them, counted from the first of "
    "these {n}, are valid before the first invalid one (0 to {n})."
)
REPAIR = "Step {m} of these was not valid. Write the step that should stand there instead."


_Settle = Callable[[Any], object]
"""What the round does with an answer, and what the strategy is told."""


class Round:
    """One round: a generator of the strategy, answered for real.

    A request that goes on beside others is a task of its own; the round's books change only when its answer is taken.
    """

    def __init__(self, runner: TaskRunner) -> None:
        self.r = runner
        self.segment: list[RealStep] = [self._adopt(i, s) for i, s in enumerate(runner.carried)]
        self.guard = RoundGuard(runner.strategy.name, [s.effect for s in self.segment])
        self.n_drafts = 0
        self.n_reviews = 0
        self.review: tuple[Ask, str] | None = None
        self.beside = Beside(runner.left)
        self.settle: dict[int, _Settle] = {}

    async def play(self) -> bool:
        """Play it to its commit; True when the task is over."""
        r = self.r
        view = RealView(r.limits.max_steps - r.n_committed, tuple(self.segment), r.memory, r.last_effect)
        rounds = r.strategy.round(view)
        answer: object = None
        try:
            while True:
                try:
                    request = rounds.send(answer)
                except StopIteration as stop:
                    if self.beside.running:
                        raise ValueError(f"{r.strategy.name}: a round ends with a request still running") from None
                    return await self._commit(cast(Commit, stop.value))
                answer = await self._answer(request)
        finally:
            await self.beside.drop()

    async def _answer(self, request: Request) -> object:
        match request:
            case Draft() | CallTool() | Verify() | Write() | Repair():
                work, settle = self._begin(request)
                return settle(await work)
            case Start(asked):
                work, settle = self._begin(asked)
                ticket = self.beside.start(work, can_be_cut=not isinstance(asked, CallTool))
                self.settle[ticket.number] = settle
                return ticket
            case Wait(tickets):
                done = await self.beside.first(tickets)
                return done._replace(answer=self.settle[done.ticket.number](done.answer))
            case Cancel(ticket):
                await self.beside.cancel(ticket)
                return None
            case Observe():
                return self.r.clock.now_s() - self.r.began_s
            case Toss(share):
                return self.r.coin() < share
            case Reuse(step, guess):
                return self._reuse(cast(RealStep, step), cast(RealStep, guess))
        raise TypeError(f"not a request: {request!r}")

    def _begin(self, request: Draft | CallTool | Verify | Write | Repair) -> tuple[Coroutine[Any, Any, Any], _Settle]:
        """Check a request now; the work to do, and what to do with its answer."""
        match request:
            case Draft(role, segment):
                n = len(segment)
                self.guard.before_draft(n)
                slot = str(self.n_drafts)
                self.n_drafts += 1
                return self._author(role, "draft", self._chat(self.segment[:n]), n, slot), self._drafted
            case CallTool(step):
                return self._calling(cast(RealStep, step))
            case Verify(role, segment):
                return self._reviewing(role, len(segment))
            case Write(role):
                self.guard.before_write()
                return self._author(role, "write", self._chat([]), 0, "w"), self._written
            case Repair(role, _, accepted):
                self.guard.before_repair(accepted)
                return self._author(role, "repair", self._repair_chat(accepted), accepted, "w"), self._written

    def _drafted(self, answer: tuple[RealStep, int]) -> RealStep:
        step, _ = answer
        self.guard.after_draft(step.offset, step.effect)
        self.segment = [*self.segment[: step.offset], step]
        return step

    def _written(self, answer: tuple[RealStep, int]) -> RealStep:
        step, event = answer
        self._allow(step, "written", event)
        return step

    def _adopt(self, offset: int, step: RealStep) -> RealStep:
        """A drafted step that the round before left; a held one is announced anew, for this round's verdict."""
        r = self.r
        moved = replace(step, offset=offset)
        if step.effect in RUNS_FREELY:
            return moved
        keys = tuple(f"{r.run_name}:{r.task.id}:{r.round}:c{offset}.{i}" for i in range(len(step.keys)))
        moved = replace(moved, keys=keys)
        for i, (key, old) in enumerate(zip(keys, step.keys, strict=True)):
            r.actions.announce_again(r.round, key, moved, i, old)
        return moved

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
        self,
        role: Role,
        kind: Kind,
        messages: tuple[Message, ...],
        offset: int,
        slot: str,
        labels: tuple[str, ...] = (),
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
            max_tokens=VERDICT_TOKENS if labels else r.limits.max_tokens,
        )
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

    async def _author(
        self, role: Role, kind: Kind, messages: tuple[Message, ...], offset: int, slot: str
    ) -> tuple[RealStep, int]:
        _, data, event = await self._ask(role, kind, messages, offset, slot)
        origin = "d" if kind == "draft" else "w"
        place = f"{self.r.run_name}:{self.r.task.id}:{self.r.round}:{origin}{slot.removeprefix('w')}"
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
        known = [self.r.actions.intend(self.r.round, key, step, i, origin, slot) for i, key in enumerate(step.keys)]
        return replace(step, effect=strictest([step.effect, *known])), event

    def _reviewing(self, role: Role, n: int) -> tuple[Coroutine[Any, Any, Any], _Settle]:
        self.guard.before_review(n)
        if n > MAX_WINDOW:
            raise InputError(f"a real run reviews at most {MAX_WINDOW} steps at once, got a window of {n}")
        instruction = Message(role="user", text=INSTRUCTION.format(n=n))
        labels = tuple(str(i) for i in range(n + 1))
        slot = f"v{self.n_reviews}"
        self.n_reviews += 1
        work = self._ask(role, "verify", (*self._chat(self.segment[:n]), instruction), 0, slot, labels)

        def settle(answer: tuple[Ask, dict[str, Any], int]) -> RealVerdict:
            ask, data, _ = answer
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
            return RealVerdict(accepted)

        return work, settle

    # -- actions ----------------------------------------------------------------------------------------------------

    def _allow(self, step: RealStep, why: str, event: int) -> None:
        for key in step.keys:
            self.r.actions.authorise(self.r.round, key, why, event)

    def _calling(self, step: RealStep) -> tuple[Coroutine[Any, Any, Any], _Settle]:
        self.guard.before_call(step.offset)
        for key in step.keys:
            self.r.actions.authorise(self.r.round, key, "free", 0)

        def settle(ran: RealStep) -> None:
            self.segment[step.offset] = ran
            self.guard.after_call(step.offset)

        return self.r.actions.run(self.r.round, self.segment[step.offset]), settle

    def _reuse(self, step: RealStep, guess: RealStep) -> bool:
        """Whether the written step may take over what was run for the guess: the same calls, and nothing said aloud."""
        if step.effect not in RUNS_FREELY or not same_calls(step, guess):
            return False
        self.guard.before_reuse(step.offset)
        self.r.journal.record(self.r.task.id, self.r.round, "reused", step.keys[0], by=guess.keys[0])
        return True

    async def _commit(self, commit: Commit) -> bool:
        steps = [cast(RealStep, s) for s in commit.steps]
        carried = [cast(RealStep, s).offset for s in commit.carried]
        kept, unrun = self.guard.before_commit([s.offset for s in steps])
        self.guard.before_carry(len(steps), carried)
        steps = [self.segment[s.offset] if s.offset < kept else s for s in steps]
        if self.guard.reused:
            steps[-1] = steps[-1].observed(self.segment[steps[-1].offset].observations)
        for offset in unrun:
            steps[offset] = await self.r.actions.run(self.r.round, steps[offset])
        r = self.r
        told: dict[str, Any] = {"memory": commit.memory} if isinstance(commit.memory, int | str) else {}
        r.journal.record(
            r.task.id, r.round, "committed", steps=[to_document(s) for s in steps], at_s=r.clock.now_s(), **told
        )
        return r.take(steps, [self.segment[o] for o in carried], commit.memory)
