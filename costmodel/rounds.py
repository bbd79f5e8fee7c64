"""Plays one round of a strategy on a session: the one driver behind `walk`, `expect` and the simulator.

`play_round` is a generator. It yields work (`EngineRequest`, `ToolRun`) and is sent the `RequestPlan` that the engine
followed (None for tools); it returns a `RoundResult`. Who answers decides what time means.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, cast

from costmodel.guard import RoundGuard
from costmodel.protocol import CallTool, Draft, Repair, Request, Role, Strategy, Verify, Write
from costmodel.request import RequestPlan
from costmodel.session import EngineRequest, Session, ToolRun, Work
from costmodel.task import TaskStep
from costmodel.trajectory import Effect

VerdictRule = Callable[[int, int], int]
"""(index of the segment's first step, its length) -> number of steps accepted."""


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a round did.

    `works` lists all work in order; `wasted[i]` is True where it belongs to a discarded draft. `committed` steps were
    accepted drafts except, when `written_by` is not None, the last one.
    """

    committed: tuple[TaskStep, ...]
    drafted: int
    accepted: int
    verified: bool
    written_by: Role | None
    works: tuple[Work, ...]
    wasted: tuple[bool, ...]

    @property
    def repaired(self) -> bool:
        """True when the reviewer wrote the last committed step."""
        return self.verified and self.written_by is not None


COUNTS: tuple[str, ...] = (
    "rounds",
    "steps",
    "drafted_steps",
    "reviews",
    "repairs",
    "wasted_steps",
    "wasted_tool_calls",
    "strong_output_tokens",
    "weak_output_tokens",
)
"""Counts per trajectory beside the ledger."""


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

    def ended(self, segment: Any) -> bool:
        return len(segment) >= self.remaining


Answers = Generator[Work, RequestPlan | None, RoundResult]


def play_round(session: Session, strategy: Strategy, verdict: VerdictRule) -> Answers:
    """One round of `strategy`, from the session's committed steps to its next ones.

    Raises
    ------
    HoldViolation
        The strategy would run a held step before a verdict accepted it or a repair wrote it, or goes on as if an
        unrun step's observation were known.
    ValueError
        The strategy reviews what nobody drafted, repairs twice, or commits anything but a prefix of its segment and
        the step it had written.
    """
    return (yield from _Play(session, strategy, verdict).run())


class _Play:
    """One round in progress."""

    def __init__(self, session: Session, strategy: Strategy, verdict: VerdictRule) -> None:
        self.session = session
        self.strategy = strategy
        self.verdict = verdict
        self.guard = RoundGuard(strategy.name)
        self.works: list[Work] = []
        self.owner: list[int | None] = []
        self.review: tuple[EngineRequest, RequestPlan] | None = None
        self.author: Role | None = None

    def run(self) -> Answers:
        rounds = self.strategy.round(_View(self.session.remaining))
        answer: object = None
        while True:
            try:
                request = rounds.send(answer)
            except StopIteration as stop:
                return (yield from self._commit(stop.value.steps))
            answer = yield from self._answer(request)

    def _answer(self, request: Request) -> Generator[Work, RequestPlan | None, object]:
        match request:
            case Draft(role, segment):
                self.guard.before_draft(len(segment))
                step = yield from self._author(role, "draft", len(segment), "draft_decode")
                self.guard.after_draft(step.offset, step.effect)
                return step
            case Write(role):
                self.guard.before_write()
                self.author = role
                return (yield from self._author(role, "write", 0, "decode"))
            case CallTool(step):
                drafted: _Step = cast(Any, step)
                self.guard.before_call(drafted.offset)
                yield from self._do(ToolRun(drafted.step.index, drafted.step.tool_s), drafted.offset)
                return None
            case Verify(role, segment):
                return (yield from self._verify(role, len(segment)))
            case Repair(role, _, accepted):
                self.guard.before_repair(accepted)
                self.author = role
                return (yield from self._repair(role, accepted))
        raise TypeError(f"not a request: {request!r}")

    def _do(self, work: Work, owner: int | None) -> Generator[Work, RequestPlan | None, RequestPlan | None]:
        self.works.append(work)
        self.owner.append(owner)
        return (yield work)

    def _author(self, role: Role, kind: str, offset: int, phase: str) -> Generator[Work, RequestPlan | None, _Step]:
        work = self.session.write(role, kind, offset, phase)
        plan = yield from self._do(work, offset if kind == "draft" else None)
        self.session.wrote(work, cast(RequestPlan, plan))
        step = self.session.task.steps[work.step]
        return _Step(step.effect, offset, step)

    def _verify(self, role: Role, n: int) -> Generator[Work, RequestPlan | None, _Verdict]:
        self.guard.before_review(n)
        work = self.session.verify(role, n)
        plan = cast(RequestPlan, (yield from self._do(work, None)))
        self.session.verified(work, plan, n)
        accepted = self.verdict(self.session.index, n)
        self.guard.after_review(accepted)
        self.review = (work, plan)
        return _Verdict(accepted)

    def _repair(self, role: Role, accepted: int) -> Generator[Work, RequestPlan | None, _Step]:
        assert self.review is not None
        review, plan = self.review
        self.session.reject(accepted)
        if self.session.sizes.repair_mode == "continue" and role is review.role:
            work = self.session.repair_continued(review, plan, accepted)
            yield from self._do(work, None)
            step = self.session.task.steps[work.step]
            return _Step(step.effect, accepted, step)
        return (yield from self._author(role, "repair", accepted, "repair_decode"))

    def _commit(self, steps: tuple[Any, ...]) -> Answers:
        accepted, unrun = self.guard.before_commit([s.offset for s in steps])
        for offset in unrun:
            step = steps[offset].step
            yield from self._do(ToolRun(step.index, step.tool_s), None)
        written_by = self.author if accepted < len(steps) else None
        committed = self.session.commit(accepted, written_by)
        return RoundResult(
            committed,
            self.guard.drafted,
            accepted,
            self.guard.accepted is not None,
            written_by,
            tuple(self.works),
            tuple(owner is not None and owner >= accepted for owner in self.owner),
        )


def round_counts(result: RoundResult) -> tuple[float, ...]:
    """The `COUNTS` of one round."""
    requests = [w for w in result.works if isinstance(w, EngineRequest)]
    wasted_calls = sum(isinstance(w, ToolRun) and x for w, x in zip(result.works, result.wasted, strict=True))
    return (
        1.0,
        float(len(result.committed)),
        float(result.drafted),
        float(result.verified),
        float(result.repaired),
        float(result.drafted - result.accepted),
        float(wasted_calls),
        float(sum(w.output_tokens for w in requests if w.role is Role.STRONG)),
        float(sum(w.output_tokens for w in requests if w.role is Role.WEAK)),
    )
