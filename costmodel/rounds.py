"""Plays one round of a strategy on a session: the one driver behind `walk`, `expect` and the simulator.

`play_round` is a generator. It yields the orders of `costmodel.orders` and is sent what came of them; it returns a
`RoundResult`. Who answers decides what time means.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from costmodel.critical_path import CriticalPath
from costmodel.draws import Draws, VerdictRule, draws_of
from costmodel.guard import RoundGuard
from costmodel.orders import Await, Begin, Came, Halt, Look, Order
from costmodel.protocol import (
    CallTool,
    Cancel,
    Commit,
    Done,
    Draft,
    Observe,
    Repair,
    Request,
    Reuse,
    Role,
    Start,
    Strategy,
    Ticket,
    Toss,
    Verify,
    Wait,
    Write,
)
from costmodel.request import RequestPlan
from costmodel.round_result import START, Carry, RoundResult
from costmodel.session import EngineRequest, Session, ToolRun, Work
from costmodel.task import TaskStep
from costmodel.trajectory import Effect

Orders = Generator[Order, object, RoundResult]


@dataclass(frozen=True, slots=True)
class _Step:
    """A step as the strategy sees it; `offset` counts from the committed ones."""

    effect: Effect
    offset: int
    step: TaskStep


@dataclass(frozen=True, slots=True)
class _Verdict:
    accepted: int


@dataclass(frozen=True, slots=True)
class _View:
    remaining: int
    carried: tuple[_Step, ...]
    memory: Hashable
    last_effect: Effect | None
    length: int

    def ended(self, segment: Any) -> bool:
        return len(segment) >= self.remaining


class _Job(NamedTuple):
    """A work with what it belongs to, and what becomes of the strategy's request when it has run."""

    work: Work
    owner: int | None
    settle: Callable[[RequestPlan | None], object]


def play_round(session: Session, strategy: Strategy, draws: Draws | VerdictRule, carry: Carry = START) -> Orders:
    """One round of `strategy`, from the session's committed steps to its next ones.

    Parameters
    ----------
    draws : Draws or VerdictRule
        What chance decides.
    carry : Carry
        What the round before left.

    Raises
    ------
    HoldViolation
        The strategy would run a held step before a verdict accepted it or a repair wrote it, or goes on as if an
        unrun step's observation were known.
    ValueError
        The strategy reviews what nobody drafted, repairs twice, leaves something running, or commits anything but a
        prefix of its segment and the step it had written.

    Limits
    ------
    What a cancelled request has computed is not found again by the next one.
    """
    return (yield from _Play(session, strategy, draws_of(draws), carry).run())


class _Play:
    """One round in progress."""

    def __init__(self, session: Session, strategy: Strategy, draws: Draws, carry: Carry) -> None:
        self.session = session
        self.strategy = strategy
        self.draws = draws
        self.carry = carry
        steps = session.task.steps[session.index : session.index + carry.n_steps]
        self.carried = tuple(_Step(s.effect, i, s) for i, s in enumerate(steps))
        self.guard = RoundGuard(strategy.name, [s.effect for s in steps])
        self.works: list[Work] = []
        self.owner: list[int | None] = []
        self.cut: set[int] = set()
        self.running: dict[int, _Job] = {}
        self.path = CriticalPath()
        self.n_drafted = 0
        self.review: tuple[EngineRequest, RequestPlan] | None = None
        self.author: Role | None = None
        self.reused = False

    def run(self) -> Orders:
        at = self.session.index
        last = self.session.task.steps[at - 1].effect if at else None
        view = _View(self.session.remaining, self.carried, self.carry.memory, last, len(self.session.task.steps))
        rounds = self.strategy.round(view)
        answer: object = None
        while True:
            try:
                request = rounds.send(answer)
            except StopIteration as stop:
                return (yield from self._commit(stop.value))
            answer = yield from self._answer(request)

    def _answer(self, request: Request) -> Generator[Order, object, object]:
        match request:
            case Draft() | CallTool() | Verify() | Write() | Repair():
                return (yield from self._do(self._job(request)))
            case Start(asked):
                job = self._job(asked)
                number = self._begin(job)
                self.running[number] = job
                yield Begin(number, job.work)
                return Ticket(number)
            case Wait(tickets):
                return (yield from self._wait(tuple(t.number for t in tickets)))
            case Cancel(ticket):
                if self.running.pop(ticket.number, None) is not None:
                    self.cut.add(ticket.number)
                    yield Halt(ticket.number)
                return None
            case Observe():
                return (yield Look())
            case Toss(share):
                return self.draws.toss(self.session.index, share)
            case Reuse(step, guess):
                return self._reuse(cast(_Step, step), cast(_Step, guess))
        raise TypeError(f"not a request: {request!r}")

    def _job(self, request: Draft | CallTool | Verify | Write | Repair) -> _Job:
        match request:
            case Draft(role, segment):
                self.guard.before_draft(len(segment))
                return self._writing(role, "draft", len(segment), "draft_decode")
            case Write(role):
                self.guard.before_write()
                self.author = role
                return self._writing(role, "write", 0, "decode")
            case CallTool(step):
                return self._calling(cast(_Step, step))
            case Verify(role, segment):
                return self._verifying(role, len(segment))
            case Repair(role, _, accepted):
                self.guard.before_repair(accepted)
                self.author = role
                return self._repairing(role, accepted)

    def _begin(self, job: _Job) -> int:
        self.works.append(job.work)
        self.owner.append(job.owner)
        self.path.begin(len(self.works) - 1)
        return len(self.works) - 1

    def _do(self, job: _Job) -> Generator[Order, object, object]:
        number = self._begin(job)
        plan = cast("RequestPlan | None", (yield job.work))
        self.path.resume(number)
        return job.settle(plan)

    def _wait(self, numbers: tuple[int, ...]) -> Generator[Order, object, Done]:
        strange = [n for n in numbers if n not in self.running]
        if strange or not numbers:
            raise ValueError(f"{self.strategy.name}: waits for what is not running")
        came = cast(Came, (yield Await(numbers)))
        self.path.resume(came.number if came.waited else None)
        return Done(Ticket(came.number), self.running.pop(came.number).settle(came.plan))

    def _writing(self, role: Role, kind: str, offset: int, phase: str) -> _Job:
        work = self.session.write(role, kind, offset, phase)

        def settle(plan: RequestPlan | None) -> _Step:
            self.session.wrote(work, cast(RequestPlan, plan))
            step = self.session.task.steps[work.step]
            if kind == "draft":
                self.n_drafted += 1
                self.guard.after_draft(offset, step.effect)
            return _Step(step.effect, offset, step)

        return _Job(work, offset if kind == "draft" else None, settle)

    def _calling(self, step: _Step) -> _Job:
        self.guard.before_call(step.offset)
        return _Job(
            ToolRun(step.step.index, step.step.tool_s), step.offset, lambda _: self.guard.after_call(step.offset)
        )

    def _verifying(self, role: Role, n: int) -> _Job:
        self.guard.before_review(n)
        work = self.session.verify(role, n)

        def settle(plan: RequestPlan | None) -> _Verdict:
            assert plan is not None
            self.session.verified(work, plan, n)
            accepted = self.draws.verdict(self.session.index, n)
            self.guard.after_review(accepted)
            self.review = (work, plan)
            return _Verdict(accepted)

        return _Job(work, None, settle)

    def _repairing(self, role: Role, accepted: int) -> _Job:
        assert self.review is not None
        review, plan = self.review
        self.session.reject(accepted)
        if self.session.sizes.repair_mode == "continue" and role is review.role:
            work = self.session.repair_continued(review, plan, accepted)
            step = self.session.task.steps[work.step]
            return _Job(work, None, lambda _: _Step(step.effect, accepted, step))
        return self._writing(role, "repair", accepted, "repair_decode")

    def _reuse(self, step: _Step, guess: _Step) -> bool:
        if step.step is not guess.step or not self.draws.matches(step.step.index):
            return False
        self.guard.before_reuse(step.offset)
        self.reused = True
        return True

    def _commit(self, commit: Commit) -> Orders:
        if self.running:
            raise ValueError(f"{self.strategy.name}: a round ends with a request still running")
        steps = cast("tuple[_Step, ...]", commit.steps)
        kept, unrun = self.guard.before_commit([s.offset for s in steps])
        self.guard.before_carry(len(steps), [cast(Any, s).offset for s in commit.carried])
        for offset in unrun:
            step = steps[offset].step
            yield from self._do(_Job(ToolRun(step.index, step.tool_s), None, lambda _: None))
        written_by = self.author if kept < len(steps) else None
        committed = self.session.commit(kept, written_by, len(commit.carried))
        return self._result(committed, kept, written_by, commit)

    def _result(
        self, committed: tuple[TaskStep, ...], kept: int, written_by: Role | None, commit: Commit
    ) -> RoundResult:
        n = len(committed)
        goes_on = n + len(commit.carried) if commit.carried else 0

        def fate(owner: int | None, number: int) -> bool | None:
            """Whether work was wasted; None while nobody knows."""
            if owner is None or owner < kept or (self.reused and number not in self.cut):
                return False
            return None if n <= owner < goes_on else True

        on_path = self.path.found()
        wasted = tuple(fate(o, i) for i, o in enumerate(self.owner))
        earlier = tuple(fate(o, -1) for _, o in self.carry.open)
        own = zip(self.works, self.owner, strict=True)
        left = [(w, o) for (w, o), f in zip(self.carry.open, earlier, strict=True) if f is None]
        left += [(w, cast(int, o)) for (w, o), f in zip(own, wasted, strict=True) if f is None]
        return RoundResult(
            committed=committed,
            drafted=self.n_drafted,
            accepted=kept,
            discarded=len(self.carried) + self.n_drafted - kept - len(commit.carried) - self.reused,
            verified=self.guard.accepted is not None,
            written_by=written_by,
            works=tuple(self.works),
            wasted=wasted,
            on_path=tuple(i in on_path for i in range(len(self.works))),
            cut=tuple(i in self.cut for i in range(len(self.works))),
            before=tuple(w for w, _ in self.carry.open),
            earlier=earlier,
            carry=Carry(len(commit.carried), commit.memory, tuple((w, o - n) for w, o in left)),
        )
