"""`walk`: one path through a task with its draws given, idle engines, exact seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from costmodel.clock import Clock, Consumed, Rates, Running, cut_shares
from costmodel.cost import COLUMNS, PHASES
from costmodel.draws import Draws, VerdictRule
from costmodel.ledger import Share, work_shares
from costmodel.orders import Await, Begin, Came, Halt, Look
from costmodel.pricing import WALL, Array, Pricing
from costmodel.protocol import Role, Strategy
from costmodel.request import RequestPlan
from costmodel.round_result import COUNTS, START, RoundResult, round_counts
from costmodel.rounds import play_round
from costmodel.session import EngineRequest, ProtocolSizes, Session, State, Work
from costmodel.task import Task

_PHASE = {p: i for i, p in enumerate(PHASES)}


@dataclass(frozen=True, slots=True)
class Event:
    """A stretch of time: who is busy (`lane`), in which phase, for which step of which round.

    `hidden` ones ran in the shadow of others; the rest tile the wall time.
    """

    start_s: float
    end_s: float
    lane: str
    phase: str
    step: int
    round: int
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Walk:
    """A finished path.

    `ledger` is an array (len(PHASES), len(COLUMNS)); its `wall_s` column sums to `wall_s`. `counts` are those of
    `costmodel.round_result.COUNTS`.
    """

    rounds: tuple[RoundResult, ...]
    ledger: Array
    events: tuple[Event, ...]
    counts: Array

    @property
    def wall_s(self) -> float:
        """Agent time of the trajectory, user gaps left out."""
        return float(self.ledger[:, WALL].sum())

    def column(self, name: str) -> float:
        """Total of one ledger column."""
        return float(self.ledger[:, COLUMNS.index(name)].sum())


def forced(bits: Sequence[bool]) -> VerdictRule:
    """Verdicts from one bit per committed index: the segment is accepted up to its first False."""

    def verdict(start: int, n: int) -> int:
        for m in range(n):
            if not bits[start + m]:
                return m
        return n

    return verdict


class _Item(NamedTuple):
    """A work that has run or was cut, to be charged once its fate is known."""

    job: Running
    on_path: bool
    cut: Consumed | None
    halted_s: float
    round: int


@dataclass(slots=True)
class _Books:
    """What a path has cost so far."""

    pricing: Pricing
    ledger: Array = field(default_factory=lambda: np.zeros((len(PHASES), len(COLUMNS))))
    events: list[Event] = field(default_factory=list)
    counts: Array = field(default_factory=lambda: np.zeros(len(COUNTS)))

    def charge(self, item: _Item, *, wasted: bool) -> None:
        """Book a work whose fate is known."""
        work, plan = item.job.work, item.job.plan
        shape = self.pricing.shapes[work.role] if isinstance(work, EngineRequest) else None
        if item.cut is not None:
            self._charge_cut(item, item.cut)
            return
        at_s = float(item.job.start_s)
        queue_s = float(item.job.queue_s)
        if queue_s > 0:
            self._event(item, at_s, queue_s, "queue")
            at_s += queue_s
            self.ledger[_PHASE["queue"], WALL] += queue_s * item.on_path
        for share in work_shares(work, plan, shape, wasted=wasted):
            cost = self._add(share, on_path=item.on_path)
            if cost[WALL] > 0:
                self._event(item, at_s, float(cost[WALL]), share.phase)
                at_s = self.events[-1].end_s

    def _charge_cut(self, item: _Item, cut: Consumed) -> None:
        work, plan = item.job.work, item.job.plan
        phase = "wasted_draft"
        if isinstance(work, EngineRequest):
            assert plan is not None
            shape = self.pricing.shapes[work.role]
            shares, tokens = cut_shares(work, plan, shape, int(cut.passes), int(cut.decoded))
            for share in shares:
                self._add(share, on_path=False)
            self.counts[COUNTS.index(f"{work.role}_output_tokens")] += tokens
        else:
            phase = "wasted_tool"
        spent_s = min(item.halted_s, float(item.job.end_s)) - float(item.job.start_s)
        if spent_s > 0:
            self._event(item, float(item.job.start_s), spent_s, phase)

    def _add(self, share: Share, *, on_path: bool) -> Array:
        """Book a share and return its cost; off the critical path it takes no wall time."""
        cost = self.pricing.row(share.row) * share.count
        self.ledger[_PHASE[share.phase]] += cost
        if not on_path:
            self.ledger[_PHASE[share.phase], WALL] -= cost[WALL]
        return cost

    def _event(self, item: _Item, at_s: float, seconds: float, phase: str) -> None:
        lane = "network" if phase == "network" else _lane(item.job.work)
        row = (at_s, at_s + seconds, lane, phase, item.job.work.step, item.round)
        self.events.append(Event(*row, hidden=not item.on_path))


def walk(
    task: Task,
    strategy: Strategy,
    draws: Draws | VerdictRule,
    pricing: Pricing,
    sizes: ProtocolSizes,
    state: State | None = None,
) -> Walk:
    """Walk one path to the end of the task.

    Works that a round's end did not wait for take no wall time; the wall ledger follows the critical path and sums to
    the time. A cancelled request has consumed the engine iterations that had begun (of an API: the whole prompt and
    the tokens that had begun).
    """
    session = Session(task, pricing.rules, sizes, state)
    books = _Books(pricing)
    clock = Clock(Rates(lambda row: float(pricing.row(row)[WALL]), pricing.shapes))
    rounds: list[RoundResult] = []
    open_: list[_Item] = []
    carry = START
    while session.remaining:
        result, own = _play(session, strategy, draws, pricing, clock, carry, len(rounds))
        left = []
        fates = (*result.earlier, *result.wasted)
        for item, wasted in zip([*open_, *own], fates, strict=True):
            if wasted is None:
                left.append(item)
            else:
                books.charge(item, wasted=wasted)
        open_, carry = left, result.carry
        books.counts += round_counts(result)
        rounds.append(result)
    return Walk(tuple(rounds), books.ledger, _merge(books.events), books.counts)


def _play(
    session: Session,
    strategy: Strategy,
    draws: Draws | VerdictRule,
    pricing: Pricing,
    clock: Clock,
    carry: Any,
    number: int,
) -> tuple[RoundResult, list[_Item]]:
    """One round on the clock: the result, and all its works in the order they were begun."""
    game = play_round(session, strategy, draws, carry)
    begun: list[Running] = []
    cuts: dict[int, tuple[Consumed, float]] = {}
    answer: object = None
    while True:
        try:
            order = game.send(answer)
        except StopIteration as stop:
            result: RoundResult = stop.value
            break
        answer = None
        match order:
            case Begin(i, work):
                begun.append(clock.begin(i, work, _plan(pricing, work)))
            case Await(numbers):
                first = min(numbers, key=lambda i: max(clock.running[i].end_s, clock.now_s))
                waited = bool(clock.running[first].end_s > clock.now_s)
                answer = Came(first, waited, clock.end(first).plan)
            case Halt(i):
                cuts[i] = (clock.halt(i)[1], float(clock.now_s))
            case Look():
                answer = float(clock.now_s)
            case _:
                work = order
                begun.append(clock.begin(len(begun), work, _plan(pricing, work)))
                answer = clock.end(len(begun) - 1).plan
    items = []
    for i, (job, on_path) in enumerate(zip(begun, result.on_path, strict=True)):
        cut, at_s = cuts.get(i, (None, 0.0))
        items.append(_Item(job, on_path, cut, at_s, number))
    return result, items


def _plan(pricing: Pricing, work: Work) -> RequestPlan | None:
    return pricing.plan(work) if isinstance(work, EngineRequest) else None


def _lane(work: Work) -> str:
    if isinstance(work, EngineRequest):
        return "weak" if work.role is Role.WEAK else "strong"
    return "tools"


def _merge(events: list[Event]) -> tuple[Event, ...]:
    """In order of time, neighbours of one lane, phase and step joined; what is not hidden follows without a gap."""
    out: list[Event] = []
    at_s = 0.0
    for e in sorted(events, key=lambda e: e.start_s):
        begin_s = e.start_s if e.hidden else at_s
        last = out[-1] if out else None
        if last and replace(last, start_s=0.0, end_s=0.0) == replace(e, start_s=0.0, end_s=0.0):
            begin_s = out.pop().start_s
        out.append(replace(e, start_s=begin_s))
        at_s = at_s if e.hidden else e.end_s
    return tuple(out)
