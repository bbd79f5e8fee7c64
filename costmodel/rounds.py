"""Plays one round of a strategy on a session: the one driver behind `walk`, `expect` and the simulator.

`play_round` is a generator. It yields work (`EngineRequest`, `ToolRun`) and is sent the `RequestPlan` that the engine
followed (None for tools); it returns a `RoundResult`. Who answers decides what time means.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, cast

from costmodel.protocol import CallTool, Draft, Repair, Request, Role, Strategy, Verify, Write
from costmodel.request import RequestPlan
from costmodel.session import EngineRequest, Session, ToolRun, Work
from costmodel.task import TaskStep
from costmodel.trajectory import RUNS_FREELY, Effect

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


class HoldViolation(RuntimeError):
    """A strategy asked to run a held step before a verdict; the protocol forbids it."""


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
    """The books of one round."""

    def __init__(self, session: Session, strategy: Strategy, verdict: VerdictRule) -> None:
        self.session = session
        self.strategy = strategy
        self.verdict = verdict
        self.works: list[Work] = []
        self.owner: list[int | None] = []
        self.ran: set[int] = set()
        self.drafted = 0
        self.review: tuple[EngineRequest, RequestPlan, int, int] | None = None
        self.written: tuple[int, Role] | None = None

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
                self._need_run(len(segment))
                return (yield from self._author(role, "draft", len(segment), "draft_decode"))
            case Write(role):
                self._write_once(0, role)
                return (yield from self._author(role, "write", 0, "decode"))
            case CallTool(step):
                yield from self._call_drafted(cast(_Step, step))
                return None
            case Verify(role, segment):
                return (yield from self._verify(role, len(segment)))
            case Repair(role, _, accepted):
                return (yield from self._repair(role, accepted))
        raise TypeError(f"not a request: {request!r}")

    def _do(self, work: Work, owner: int | None) -> Generator[Work, RequestPlan | None, RequestPlan | None]:
        self.works.append(work)
        self.owner.append(owner)
        return (yield work)

    def _author(self, role: Role, kind: str, offset: int, phase: str) -> Generator[Work, RequestPlan | None, _Step]:
        work = self.session.write(role, kind, offset, phase)
        if kind == "draft":
            self.drafted = max(self.drafted, offset + 1)
        plan = yield from self._do(work, offset if kind == "draft" else None)
        self.session.wrote(work, cast(RequestPlan, plan))
        step = self.session.task.steps[work.step]
        return _Step(step.effect, offset, step)

    def _call_drafted(self, step: _Step) -> Generator[Work, RequestPlan | None, None]:
        if step.effect not in RUNS_FREELY:
            raise HoldViolation(f"{self.strategy.name}: step {step.step.index} ({step.effect}) is held until a verdict")
        self.ran.add(step.offset)
        yield from self._do(ToolRun(step.step.index, step.step.tool_s), step.offset)

    def _need_run(self, n: int) -> None:
        """The next request sees the observations of the first `n` drafted steps, so their tools must have run."""
        unseen = sorted({*range(n)} - self.ran)
        if unseen:
            raise HoldViolation(
                f"{self.strategy.name}: drafted step {unseen[0]} of the segment has not run, so nothing can follow it"
            )

    def _verify(self, role: Role, n: int) -> Generator[Work, RequestPlan | None, _Verdict]:
        if not 1 <= n <= self.drafted:
            raise ValueError(f"{self.strategy.name}: {self.drafted} steps are drafted, so {n} cannot be reviewed")
        held = self.session.task.steps[self.session.index + n - 1].effect not in RUNS_FREELY
        self._need_run(n - 1 if held else n)
        work = self.session.verify(role, n)
        plan = cast(RequestPlan, (yield from self._do(work, None)))
        self.session.verified(work, plan, n)
        accepted = self.verdict(self.session.index, n)
        self.review = (work, plan, n, accepted)
        return _Verdict(accepted)

    def _repair(self, role: Role, accepted: int) -> Generator[Work, RequestPlan | None, _Step]:
        if self.review is None or accepted > self.review[3]:
            raise ValueError(
                f"{self.strategy.name}: a repair needs a verdict that accepts the {accepted} steps before it"
            )
        self._write_once(accepted, role)
        review, plan, _, _ = self.review
        self.session.reject(accepted)
        if self.session.sizes.repair_mode == "continue" and role is review.role:
            work = self.session.repair_continued(review, plan, accepted)
            yield from self._do(work, None)
            step = self.session.task.steps[work.step]
            return _Step(step.effect, accepted, step)
        return (yield from self._author(role, "repair", accepted, "repair_decode"))

    def _write_once(self, offset: int, role: Role) -> None:
        if self.written is not None:
            raise ValueError(f"{self.strategy.name}: at most one step per round may be written or repaired")
        self.written = (offset, role)

    def _commit(self, steps: tuple[Any, ...]) -> Answers:
        n = len(steps)
        written = self.written if self.written is not None and self.written[0] == n - 1 else None
        accepted = n - 1 if written else n
        allowed = self.review[3] if self.review else 0
        if [s.offset for s in steps] != list(range(n)) or accepted > allowed:
            raise ValueError(
                f"{self.strategy.name}: a round commits a prefix of its segment: {allowed} steps are accepted, {n} came"
            )
        for s in steps:
            if s.offset not in self.ran or (written and s.offset == written[0]):
                yield from self._do(ToolRun(s.step.index, s.step.tool_s), None)
        committed = self.session.commit(accepted, written[1] if written else None)
        wasted = tuple(owner is not None and owner >= accepted for owner in self.owner)
        return RoundResult(
            committed,
            self.drafted,
            accepted,
            self.review is not None,
            written[1] if written else None,
            tuple(self.works),
            wasted,
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
