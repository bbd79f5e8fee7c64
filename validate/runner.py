"""The fourth evaluator: plays a strategy on real engines with real tools, and never breaks the hold.

The strategy classes are those of `costmodel.strategies`, the rules those of `costmodel.guard`. Everything that matters
is journaled before and after; a killed run goes on from its journal: answers already there are not asked for again,
actions already run are not run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from costmodel.guard import RoundGuard
from costmodel.protocol import CallTool, Commit, Draft, Repair, Request, Role, Strategy, Verify, Write
from costmodel.trajectory import RUNS_FREELY, Effect, strictest
from hwprofiles.errors import InputError
from validate.actions import Actions, Clock, Tools, Unresolved
from validate.chat import Message, ToolUse
from validate.engine import Answer, Ask, ChatEngine, EngineError, Kind
from validate.journal import Journal
from validate.steps import RealStep, from_document, to_document

MAX_WINDOW = 9
"""Verdict labels are single digits, so that a verdict is one token."""

_VERDICT_TOKENS = 4
"""Room for a verdict: one digit, and what a tokenizer may put around it."""

INSTRUCTION = (
    "Review the last {n} assistant steps above. Answer with one digit: how many of them, counted from the first of "
    "these {n}, are valid before the first invalid one (0 to {n})."
)
REPAIR = "Step {m} of these was not valid. Write the step that should stand there instead."


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask:
    """One task: the chat before the agent's first step."""

    id: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop: committed steps of a task, decoded tokens of a step, tries of a failing engine."""

    max_steps: int = 30
    max_tokens: int = 512
    tries: int = 3


@dataclass(frozen=True, slots=True)
class _Verdict:
    accepted: int


@dataclass(frozen=True, slots=True)
class _View:
    remaining: int

    def ended(self, segment: Sequence[Any]) -> bool:
        return len(segment) >= self.remaining or any(s.is_final for s in segment)


class TaskRunner:
    """Plays one task to its end.

    Parameters
    ----------
    task : AgentTask
    strategy : Strategy
    engines : mapping Role -> ChatEngine
    tools : Tools
    journal : Journal
        An empty one, or that of a run that was cut.
    run : str
        Name of the run, the first part of every idempotency key.
    repair_mode : "fresh" or "continue"
    """

    def __init__(
        self,
        task: AgentTask,
        strategy: Strategy,
        engines: Mapping[Role, ChatEngine],
        tools: Tools,
        journal: Journal,
        *,
        clock: Clock,
        run: str = "run",
        limits: Limits | None = None,
        repair_mode: str = "fresh",
    ) -> None:
        self.task, self.strategy, self.engines, self.tools, self.journal = task, strategy, engines, tools, journal
        self.clock = clock
        self.run_name = run
        self.limits = limits or Limits()
        self.repair_mode = repair_mode
        self.actions = Actions(task.id, tools, journal, clock)
        self.chat: list[Message] = list(task.messages)
        self.n_committed = 0
        self.round = 0

    async def run(self) -> str:
        """Play to the end; returns the status: finished, step_limit or unresolved.

        Raises
        ------
        EngineError
            An engine failed `tries` times; the journal is whole and the run can be resumed.
        JournalError
            The journal cannot be written; nothing was done that it does not know of.
        """
        before = self.journal.finished(self.task.id)
        if before is not None:
            return str(before["status"])
        self.journal.record(self.task.id, 0, "task", at_s=self.clock.now_s())
        final = self._recall()
        try:
            while not final and self.n_committed < self.limits.max_steps:
                final = await _Round(self).play()
            status = "finished" if final else "step_limit"
        except Unresolved:
            status = "unresolved"
        self.journal.record(self.task.id, self.round, "finished", status=status, at_s=self.clock.now_s())
        return status

    def _recall(self) -> bool:
        """Put committed rounds of an earlier attempt back into the chat; True when the last step was final."""
        final = False
        for document in self.journal.committed(self.task.id):
            steps = [from_document(d) for d in document["steps"]]
            final = self.take(steps)
        return final

    def take(self, steps: Sequence[RealStep]) -> bool:
        """Append committed steps to the chat and begin the next round; True when the task is over."""
        for step in steps:
            self.chat.extend(step.messages())
        self.n_committed += len(steps)
        self.round += 1
        return bool(steps) and steps[-1].is_final


class _Round:
    """One round: a generator of the strategy, answered for real."""

    def __init__(self, runner: TaskRunner) -> None:
        self.r = runner
        self.guard = RoundGuard(runner.strategy.name)
        self.sequence = 0
        self.segment: list[RealStep] = []
        self.review: tuple[Ask, str] | None = None

    async def play(self) -> bool:
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
                await self._call_drafted(cast(RealStep, step))
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
            known = {"ask": kind, "role": str(role), "step": ask.step, **_answer_document(await self._try(ask))}
        event = r.journal.record(r.task.id, r.round, "asked", slot, **known)
        return ask, known, event

    async def _try(self, ask: Ask) -> Answer:
        """Send a request again while the engine fails: nothing in the world has changed."""
        for attempt in range(self.r.limits.tries):
            try:
                return await self.r.engines[ask.role].ask(ask)
            except EngineError:
                if attempt + 1 == self.r.limits.tries:
                    raise
        raise InputError(f"limits.tries must be >= 1, got {self.r.limits.tries}")

    async def _author(self, role: Role, kind: Kind, messages: tuple[Message, ...], offset: int) -> tuple[RealStep, int]:
        _, data, event = await self._ask(role, kind, messages, offset)
        origin = "d" if kind == "draft" else "w"
        place = f"{self.r.run_name}:{self.r.task.id}:{self.r.round}:{origin}{offset}"
        # call ids are ours, not the model's: the same text must render to the same tokens for both models
        uses = tuple(
            ToolUse(id=f"call_{self.r.n_committed + offset}_{i}", name=u["name"], arguments=u["arguments"])
            for i, u in enumerate(data["tool_uses"])
        )
        malformed = data["malformed"]
        step = RealStep(
            author=role,
            offset=offset,
            effect=_effect(self.r.tools, uses, data["text"], malformed=malformed),
            text=data["text"],
            uses=uses,
            malformed=malformed,
            keys=tuple(f"{place}.{i}" for i in range(max(1, len(uses)))),
            output_tokens=data["output_tokens"],
        )
        for i, key in enumerate(step.keys):
            self.r.actions.intend(self.r.round, key, step, i, origin)
        return step, event

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


def _effect(tools: Tools, uses: Sequence[ToolUse], text: str, *, malformed: bool) -> Effect:
    """The strictest of a step's calls; words beside a call make it a reply at least; malformed is unknown."""
    if malformed:
        return Effect.UNKNOWN
    if not uses:
        return Effect.REPLY
    found = [tools.effect(u.name, u.arguments) for u in uses]
    return strictest([*found, Effect.REPLY] if text.strip() else found)


def _answer_document(answer: Answer) -> dict[str, Any]:
    """An answer as plain values; a cut step, or one that neither calls nor says anything, is malformed."""
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
