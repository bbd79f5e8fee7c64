"""`walk`: one path through a task with verdicts given, idle engines, exact seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.cost import COLUMNS, PHASES
from costmodel.ledger import work_shares
from costmodel.pricing import WALL, Array, Pricing
from costmodel.protocol import Role, Strategy
from costmodel.rounds import RoundResult, VerdictRule, play_round
from costmodel.session import EngineRequest, ProtocolSizes, Session, State, Work
from costmodel.task import Task

_PHASE = {p: i for i, p in enumerate(PHASES)}


@dataclass(frozen=True, slots=True)
class Event:
    """A stretch of wall time: who is busy (`lane`), in which phase, for which step of which round."""

    start_s: float
    end_s: float
    lane: str
    phase: str
    step: int
    round: int


@dataclass(frozen=True, slots=True)
class Walk:
    """A finished path: `ledger` is an array (len(PHASES), len(COLUMNS)); its `wall_s` column sums to `wall_s`."""

    rounds: tuple[RoundResult, ...]
    ledger: Array
    events: tuple[Event, ...]

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


def play(session: Session, strategy: Strategy, verdict: VerdictRule, pricing: Pricing) -> tuple[RoundResult, list[Any]]:
    """One round on idle engines: the result, and the plan each work followed."""
    plans: list[Any] = []
    game = play_round(session, strategy, verdict)
    plan = None
    while True:
        try:
            work = game.send(plan)
        except StopIteration as stop:
            return stop.value, plans
        plan = pricing.plan(work) if isinstance(work, EngineRequest) else None
        plans.append(plan)


def walk(
    task: Task,
    strategy: Strategy,
    verdict: VerdictRule,
    pricing: Pricing,
    sizes: ProtocolSizes,
    state: State | None = None,
) -> Walk:
    """Walk one path to the end of the task.

    Wall time is the sum of all work on the path: the strategies here do one thing at a time.
    """
    session = Session(task, pricing.rules, sizes, state)
    ledger = np.zeros((len(PHASES), len(COLUMNS)))
    rounds: list[RoundResult] = []
    events: list[Event] = []
    clock = 0.0
    while session.remaining:
        result, plans = play(session, strategy, verdict, pricing)
        for work, plan, wasted in zip(result.works, plans, result.wasted, strict=True):
            shape = pricing.shapes[work.role] if isinstance(work, EngineRequest) else None
            for row, phase, count in work_shares(work, plan, shape, wasted=wasted):
                cost = pricing.row(row) * count
                ledger[_PHASE[phase]] += cost
                if cost[WALL] > 0:
                    events.append(_event(clock, float(cost[WALL]), work, phase, len(rounds)))
                    clock = events[-1].end_s
        rounds.append(result)
    return Walk(tuple(rounds), ledger, tuple(_merge(events)))


def _event(clock: float, seconds: float, work: Work, phase: str, round_index: int) -> Event:
    if phase == "network":
        lane = "network"
    elif isinstance(work, EngineRequest):
        lane = "weak" if work.role is Role.WEAK else "strong"
    else:
        lane = "tools"
    return Event(clock, clock + seconds, lane, phase, work.step, round_index)


def _merge(events: list[Event]) -> list[Event]:
    """Join neighbours of one lane, phase and step."""
    out: list[Event] = []
    for e in events:
        last = out[-1] if out else None
        if last and (last.lane, last.phase, last.step, last.round) == (e.lane, e.phase, e.step, e.round):
            out[-1] = Event(last.start_s, e.end_s, e.lane, e.phase, e.step, e.round)
        else:
            out.append(e)
    return out
