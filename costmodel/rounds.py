"""Plays one round of a strategy on a session: the one driver behind `walk`, `expect` and the simulator.

`play_round` is a generator. It yields the orders of `costmodel.orders` and is sent what came of them; it returns a
`RoundResult`. Who answers decides what time means.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, cast

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
from costmodel.round_view import SeenStep, SeenTask, SeenVerdict
from costmodel.session import EngineRequest, Session, ToolRun, Work
from costmodel.task import TaskStep

Orders = Generator[Order, object, RoundResult]


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
    """One round in progress.

    `owner` has the offset of the drafted step that each work belongs to, None for those that are never wasted. As long
    as nothing has been begun beside other work (`path` is None), the round waits for each work in turn.
    """

    def __init__(self, session: Session, strategy: Strategy, draws: Draws, carry: Carry) -> None:
        self.session = session
        self.strategy = strategy
        self.draws = draws
        self.carry = carry
        steps = session.task.steps[session.index : session.index + carry.n_steps] if carry.n_steps else ()
        self.carried = tuple([SeenStep(s.effect, i, s) for i, s in enumerate(steps)])
        self.guard = RoundGuard(strategy.name, [s.effect for s in steps])
        self.works: list[Work] = []
        self.owner: list[int | None] = []
        self.cut: set[int] = set()
        self.running: dict[int, tuple[Request, Work]] = {}
        self.path: CriticalPath | None = None
        self.n_drafted = 0
        self.review: tuple[EngineRequest, RequestPlan] | None = None
        self.author: Role | None = None
        self.reused = False

    def run(self) -> Orders:
        at, steps = self.session.index, self.session.task.steps
        last = steps[at - 1].effect if at else None
        view = SeenTask(len(steps) - at, self.carried, self.carry.memory, last, len(steps))
        ask = self.strategy.round(view).send
        works = self.works
        answer: object = None
        while True:
            try:
                request = ask(answer)
            except StopIteration as stop:
                return (yield from self._commit(stop.value))
            handlers = _TAKES_TIME.get(type(request))
            if handlers is None:
                answer = yield from self._at_once(request)
                continue
            begin, settle = handlers
            work = begin(self, request)
            if self.path is None:
                plan = yield work
            else:
                number = len(works) - 1
                self.path.begin(number)
                plan = yield work
                self.path.resume(number)
            answer = settle(self, request, work, plan)

    def _at_once(self, request: Request) -> Generator[Order, object, object]:
        """What takes no time, and what starts, awaits or gives up something beside other work."""
        match request:
            case Start(asked):
                work: Work = _TAKES_TIME[type(asked)][0](self, asked)
                number = len(self.works) - 1
                if self.path is None:
                    self.path = CriticalPath.in_turn(number)
                self.path.begin(number)
                self.running[number] = asked, work
                yield Begin(number, work)
                return Ticket(number)
            case Wait(tickets):
                return (yield from self._wait(tuple([t.number for t in tickets])))
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
                return self._reuse(cast(SeenStep, step), cast(SeenStep, guess))
        raise TypeError(f"not a request: {request!r}")

    def _wait(self, numbers: tuple[int, ...]) -> Generator[Order, object, Done]:
        if self.path is None or not numbers or any(n not in self.running for n in numbers):
            raise ValueError(f"{self.strategy.name}: waits for what is not running")
        came = cast(Came, (yield Await(numbers)))
        self.path.resume(came.number if came.waited else None)
        request, work = self.running.pop(came.number)
        return Done(Ticket(came.number), _TAKES_TIME[type(request)][1](self, request, work, came.plan))

    def _book(self, work: Work, owner: int | None) -> Work:
        self.works.append(work)
        self.owner.append(owner)
        return work

    def _draft(self, request: Draft) -> Work:
        n = len(request.segment)
        self.guard.before_draft(n)
        return self._book(self.session.write(request.role, "draft", n, "draft_decode"), n)

    def _drafted(self, request: Draft, work: EngineRequest, plan: RequestPlan) -> SeenStep:
        offset = len(request.segment)
        step = self._written(offset, work, plan)
        self.n_drafted += 1
        self.guard.after_draft(offset, step.effect)
        return step

    def _call(self, request: CallTool) -> Work:
        found = cast(SeenStep, request.step)
        self.guard.before_call(found.offset)
        return self._book(ToolRun(found.step.index, found.step.tool_s), found.offset)

    def _called(self, request: CallTool, _work: Work, _plan: None) -> None:
        self.guard.after_call(cast(SeenStep, request.step).offset)

    def _verify(self, request: Verify) -> Work:
        n = len(request.segment)
        self.guard.before_review(n)
        return self._book(self.session.verify(request.role, n), None)

    def _verified(self, request: Verify, work: EngineRequest, plan: RequestPlan) -> SeenVerdict:
        n = len(request.segment)
        self.session.verified(work, plan, n)
        accepted = self.draws.verdict(self.session.index, n)
        self.guard.after_review(accepted)
        self.review = (work, plan)
        return SeenVerdict(accepted)

    def _write(self, request: Write) -> Work:
        self.guard.before_write()
        self.author = request.role
        return self._book(self.session.write(request.role, "write", 0, "decode"), None)

    def _wrote(self, _request: Write, work: EngineRequest, plan: RequestPlan) -> SeenStep:
        return self._written(0, work, plan)

    def _repair(self, request: Repair) -> Work:
        role, _, accepted = request
        self.guard.before_repair(accepted)
        self.author = role
        self.session.reject(accepted)
        review = self._continued(role)
        if review is not None:
            return self._book(self.session.repair_continued(*review, accepted), None)
        return self._book(self.session.write(role, "repair", accepted, "repair_decode"), None)

    def _repaired(self, request: Repair, work: EngineRequest, plan: RequestPlan) -> SeenStep:
        if self._continued(request.role) is None:
            return self._written(request.accepted, work, plan)
        step = self.session.task.steps[work.step]
        return SeenStep(step.effect, request.accepted, step)

    def _continued(self, role: Role) -> tuple[EngineRequest, RequestPlan] | None:
        """The review that a repair by `role` goes on from, if it does."""
        assert self.review is not None
        return self.review if self.session.sizes.repair_mode == "continue" and role is self.review[0].role else None

    def _written(self, offset: int, work: EngineRequest, plan: RequestPlan) -> SeenStep:
        self.session.wrote(work, plan)
        step = self.session.task.steps[work.step]
        return SeenStep(step.effect, offset, step)

    def _reuse(self, step: SeenStep, guess: SeenStep) -> bool:
        if step.step is not guess.step or not self.draws.matches(step.step.index):
            return False
        self.guard.before_reuse(step.offset)
        self.reused = True
        return True

    def _commit(self, commit: Commit) -> Orders:
        if self.running:
            raise ValueError(f"{self.strategy.name}: a round ends with a request still running")
        steps = cast("tuple[SeenStep, ...]", commit.steps)
        kept, unrun = self.guard.before_commit([s.offset for s in steps])
        self.guard.before_carry(len(steps), [cast(Any, s).offset for s in commit.carried])
        for offset in unrun:
            step = steps[offset].step
            work = self._book(ToolRun(step.index, step.tool_s), None)
            number = len(self.works) - 1
            if self.path is not None:
                self.path.begin(number)
            yield work
            if self.path is not None:
                self.path.resume(number)
        written_by = self.author if kept < len(steps) else None
        committed = self.session.commit(kept, written_by, len(commit.carried))
        return self._result(committed, kept, written_by, commit)

    def _result(
        self, committed: tuple[TaskStep, ...], kept: int, written_by: Role | None, commit: Commit
    ) -> RoundResult:
        n, cut, n_works = len(committed), self.cut, len(self.works)
        goes_on = n + len(commit.carried) if commit.carried else 0

        def fate(owner: int | None, number: int) -> bool | None:
            """Whether work was wasted; None while nobody knows."""
            if owner is None or owner < kept or (self.reused and number not in cut):
                return False
            return None if n <= owner < goes_on else True

        wasted = tuple([fate(owner, i) for i, owner in enumerate(self.owner)])
        old = self.carry.open
        earlier = tuple([fate(owner, -1) for _, owner in old])
        left = [(work, owner - n) for (work, owner), f in zip(old, earlier, strict=True) if f is None]
        if goes_on:
            own = zip(self.works, self.owner, wasted, strict=True)
            left += [(work, cast(int, owner) - n) for work, owner, f in own if f is None]
        on_path = None if self.path is None else self.path.found()
        return RoundResult(
            committed=committed,
            drafted=self.n_drafted,
            accepted=kept,
            discarded=len(self.carried) + self.n_drafted - kept - len(commit.carried) - self.reused,
            verified=self.guard.accepted is not None,
            written_by=written_by,
            works=tuple(self.works),
            wasted=wasted,
            on_path=(True,) * n_works if on_path is None else tuple([i in on_path for i in range(n_works)]),
            cut=tuple([i in cut for i in range(n_works)]) if cut else (False,) * n_works,
            before=tuple([work for work, _ in old]),
            earlier=earlier,
            carry=Carry(len(commit.carried), commit.memory, tuple(left)),
        )


_TAKES_TIME: dict[type, tuple[Callable[..., Any], Callable[..., Any]]] = {
    Draft: (_Play._draft, _Play._drafted),
    CallTool: (_Play._call, _Play._called),
    Verify: (_Play._verify, _Play._verified),
    Write: (_Play._write, _Play._wrote),
    Repair: (_Play._repair, _Play._repaired),
}
"""How a request that takes time becomes a work, and what the strategy is answered when that has run."""
