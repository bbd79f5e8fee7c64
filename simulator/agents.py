"""A trajectory as a process: rounds of a strategy, each request and tool taking its time, everything written down."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import cast

import simpy

from costmodel.acceptance import MATCH_PRIOR, AcceptanceLaw, expit
from costmodel.draws import Draws, VerdictRule
from costmodel.orders import Await, Begin, Came, Halt, Look
from costmodel.protocol import Role, Strategy
from costmodel.round_result import START, Carry, RoundResult
from costmodel.rounds import play_round
from costmodel.session import EngineRequest, ProtocolSizes, Session, ToolRun, Work
from costmodel.task import Task
from hwprofiles.errors import InputError
from simulator.answers import Call
from simulator.booking import Books, Item
from simulator.fleet import Fleet
from simulator.load import COIN_STREAM, uniforms
from simulator.parts import total
from simulator.record import Record
from simulator.results import Recorder
from simulator.world import Ended, Visit

Verdicts = Callable[[int, Task], Draws | VerdictRule]
"""From a trajectory's number and task to its draws."""

_Events = Generator[simpy.Event, object, None]
_WORK = (EngineRequest, ToolRun)


@dataclass(slots=True, eq=False)
class _Life:
    """One trajectory in progress; `open` are works whose fate later rounds decide, `late` cancelled ones under way."""

    record: Record
    session: Session
    draws: Draws | VerdictRule
    seats: dict[Role, int]
    visit: Visit
    carry: Carry = START
    open: list[Item] = field(default_factory=list)
    late: list[Item] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)


class Agents:
    """All trajectories of a run: `live` is the process of one, `records` and the recorder's rows are what they leave.

    Parameters
    ----------
    env, fleet : the clock and the engines
    strategy, sizes, verdicts : how rounds go
    recorder : takes the rows of steps and phases
    usd_per_busy_s : price of an engine's second by role, where it has one
    """

    def __init__(
        self,
        env: simpy.Environment,
        fleet: Fleet,
        strategy: Strategy,
        sizes: ProtocolSizes,
        verdicts: Verdicts,
        recorder: Recorder,
        usd_per_busy_s: Mapping[Role, float] | None = None,
    ) -> None:
        self.env = env
        self.fleet = fleet
        self.strategy = strategy
        self.sizes = sizes
        self.verdicts = verdicts
        self.records: list[Record] = []
        self.books = Books(recorder, usd_per_busy_s)

    def live(self, number: int, task: Task, visit: Visit, *, counted: bool) -> _Events:
        """Live one trajectory to its end; a request that can never run rejects it, a world that gives out fails it."""
        record = Record(number, task.id, counted, self.env.now)
        self.records.append(record)
        session = Session(task, self.fleet.pricing.rules, self.sizes)
        life = _Life(record, session, self.verdicts(number, task), self.fleet.seat(), visit)
        try:
            while session.remaining:
                if user_s := visit.user_s(session.index):
                    yield self.env.timeout(user_s)
                    record.user_s += user_s
                yield from self._round(life)
            record.status = "finished"
            record.finish_s = self.env.now
        except InputError as error:
            record.status = "rejected"
            record.reason = str(error)
        except Ended as end:
            record.status = "failed"
            record.reason = str(end)
        if record.status != "finished":
            self._abandon(life)
        for item in life.late:
            if not item.ended and item.process is not None:
                yield item.process
        self._write_late(life)
        self.fleet.leave(life.seats)

    def _round(self, life: _Life) -> _Events:
        """One round, from order to order."""
        game = play_round(life.session, self.strategy, life.draws, life.carry)
        items: list[Item] = []
        life.items = items
        answer: object = None
        while True:
            try:
                order = game.send(answer)
            except StopIteration as stop:
                self._write(life, stop.value, items)
                return
            answer = None
            if isinstance(order, _WORK):
                items.append(item := Item(order, life.record.n_rounds, self.env.now))
                yield from self._do(life, item)
                answer = item.plan
                continue
            match order:
                case Begin(_, work):
                    self._begin(life, work)
                case Await(numbers):
                    answer = yield from self._first(items, numbers)
                case Halt(number):
                    self._cancel(items[number])
                case Look():
                    answer = self.env.now - life.record.arrival_s - life.record.user_s

    def _do(self, life: _Life, item: Item) -> _Events:
        """Let a piece of work take its time."""
        work = item.work
        if isinstance(work, ToolRun):
            item.parts = yield from life.visit.tool(work)
            item.cost, item.queue_s = total(item.parts)
        else:
            answer = yield from self.fleet.ask(work, life.record.number, life.seats, item.call)
            item.plan, item.parts, item.cost, item.queue_s, item.emitted_tokens, n_preemptions = answer
            life.record.n_preemptions += n_preemptions
        item.end_s, item.ended = self.env.now, True

    def _begin(self, life: _Life, work: Work) -> None:
        item = Item(work, life.record.n_rounds, self.env.now, call=Call())
        life.items.append(item)
        item.process = self.env.process(self._beside(life, item))

    def _beside(self, life: _Life, item: Item) -> _Events:
        """The same beside other work; what goes wrong matters only to who waits for it."""
        try:
            yield from self._do(life, item)
        except (InputError, Ended) as error:
            item.error = error
            item.end_s, item.ended = self.env.now, True

    def _first(self, items: list[Item], numbers: tuple[int, ...]) -> Generator[simpy.Event, object, Came]:
        """Wait for the first of several works; at the same instant the one named first."""
        waited = not any(items[n].ended for n in numbers)
        if waited:
            yield self.env.any_of([cast(simpy.Process, items[n].process) for n in numbers])
        number = next(n for n in numbers if items[n].ended)
        error = items[number].error
        if error is not None:
            raise error
        return Came(number, waited, items[number].plan)

    def _cancel(self, item: Item) -> None:
        """Give a work up; a tool is left alone, and nobody looks at what it says."""
        item.cancelled = True
        if item.call is not None and isinstance(item.work, EngineRequest) and not item.ended:
            self.fleet.cancel(item.call)

    def _abandon(self, life: _Life) -> None:
        """A trajectory that cannot go on leaves nothing running."""
        for item in life.items:
            if item.process is not None and not item.ended:
                self._cancel(item)

    def _write(self, life: _Life, result: RoundResult, items: list[Item]) -> None:
        """Book a round that has ended, and what it tells of earlier ones."""
        if False in result.on_path:
            for item, on_path in zip(items, result.on_path, strict=True):
                item.on_path = on_path
        fates = (*result.earlier, *result.wasted)
        left = []
        for item, wasted in zip([*life.open, *items] if life.open else items, fates, strict=True):
            if wasted is None:
                left.append(item)
            elif not item.ended and isinstance(item.work, EngineRequest):
                life.late.append(item)
            else:
                self.books.write(life.record, life.session.task, item, wasted=wasted, reviewed=result.verified)
        self.books.count(life.record, result)
        life.open, life.carry = left, result.carry
        if life.late:
            self._write_late(life)

    def _write_late(self, life: _Life) -> None:
        """Book cancelled requests that have left their engine since."""
        for item in life.late:
            if item.ended:
                self.books.write(life.record, life.session.task, item, wasted=True, reviewed=False)
        life.late = [item for item in life.late if not item.ended]


def drawn_verdicts(law: AcceptanceLaw, shift: float, seed: int, match: float = MATCH_PRIOR[0]) -> Verdicts:
    """Step j is kept iff U_j < p_j(m), one uniform per (seed, trajectory, step) for any strategy and load.

    The same number decides whether a draft makes the strong model's call (U_j < match); a router's coins are others.
    """
    chances: dict[float, float] = {}

    def of(number: int, task: Task) -> Draws:
        drawn = uniforms(seed, number, len(task.steps))
        effects = [step.effect for step in task.steps]
        coins: list[float] = []

        def verdict(start: int, n: int) -> int:
            for m in range(n):
                offset = law.offset(m, effects[start + m])
                if offset not in chances:
                    chances[offset] = float(expit(shift + offset))
                if not drawn[start + m] < chances[offset]:
                    return m
            return n

        def toss(index: int, share: float) -> bool:
            if not coins:
                coins.extend(uniforms(seed, number, len(task.steps), stream=COIN_STREAM))
            return coins[index] < share

        return Draws(verdict, lambda index: drawn[index] < match, toss)

    return of
