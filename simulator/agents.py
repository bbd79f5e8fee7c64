"""A trajectory as a process: rounds of a strategy, each request and tool taking its time, everything written down."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy

from costmodel.acceptance import AcceptanceLaw
from costmodel.cost import COLUMNS, TRAFFIC
from costmodel.pricing import WALL
from costmodel.protocol import Role, Strategy
from costmodel.request import RequestPlan
from costmodel.rounds import RoundResult, VerdictRule, play_round
from costmodel.session import EngineRequest, ProtocolSizes, Session, ToolRun, Work
from costmodel.task import Task
from hwprofiles.errors import InputError
from simulator.fleet import Cost, Fleet, Part, wall_cost
from simulator.load import uniforms

Verdicts = Callable[[int, Task], VerdictRule]
"""From a trajectory's number and task to its verdicts."""

_TRAFFIC = [COLUMNS.index(name) for name in TRAFFIC]
_NEVER_WASTED = ("host", "network", "queue")


@dataclass(slots=True)
class Record:
    """What is known of one trajectory; costs and counts are of the rounds that ended."""

    number: int
    task: str
    counted: bool
    arrival_s: float
    status: str = "unfinished"
    reason: str = ""
    finish_s: float = math.nan
    n_steps: int = 0
    n_rounds: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_reviews: int = 0
    n_repairs: int = 0
    n_preemptions: int = 0
    queue_s: float = 0.0
    output_tokens: dict[Role, int] = field(default_factory=lambda: dict.fromkeys(Role, 0))
    cost: Cost = field(default_factory=lambda: np.zeros(len(COLUMNS)))

    def row(self) -> tuple[Any, ...]:
        """A row of the frame `trajectories`."""
        return (
            self.number,
            self.task,
            self.status,
            self.reason,
            self.counted,
            self.arrival_s,
            self.finish_s,
            self.finish_s - self.arrival_s,
            self.queue_s,
            self.n_steps,
            self.n_rounds,
            self.n_drafted,
            self.n_accepted,
            self.n_reviews,
            self.n_repairs,
            self.n_preemptions,
            self.output_tokens[Role.WEAK],
            self.output_tokens[Role.STRONG],
            float(self.cost[_TRAFFIC].sum()),
            *self.cost.tolist(),
        )


@dataclass(slots=True)
class _Done:
    """A piece of work that has run."""

    work: Work
    start_s: float
    end_s: float
    parts: tuple[Part, ...]


class Agents:
    """All trajectories of a run: `live` is the process of one, the lists are the rows they leave.

    Parameters
    ----------
    env, fleet : the clock and the engines
    strategy, sizes, verdicts : how rounds go
    """

    def __init__(
        self, env: simpy.Environment, fleet: Fleet, strategy: Strategy, sizes: ProtocolSizes, verdicts: Verdicts
    ) -> None:
        self.env = env
        self.fleet = fleet
        self.strategy = strategy
        self.sizes = sizes
        self.verdicts = verdicts
        self.records: list[Record] = []
        self.steps: list[tuple[Any, ...]] = []
        self.phases: list[tuple[Any, ...]] = []

    def live(self, number: int, task: Task, *, counted: bool) -> Generator[simpy.Event, object, None]:
        """Live one trajectory to its end; a request that can never run ends it as rejected."""
        record = Record(number, task.id, counted, self.env.now)
        self.records.append(record)
        session = Session(task, self.fleet.pricing.rules, self.sizes)
        verdict = self.verdicts(number, task)
        seats = self.fleet.seat()
        try:
            while session.remaining:
                yield from self._round(session, verdict, record, seats)
            record.status = "finished"
            record.finish_s = self.env.now
        except InputError as error:
            record.status = "rejected"
            record.reason = str(error)
        self.fleet.leave(seats)

    def _round(
        self, session: Session, verdict: VerdictRule, record: Record, seats: dict[Role, int]
    ) -> Generator[simpy.Event, object, None]:
        game = play_round(session, self.strategy, verdict)
        done: list[_Done] = []
        plan: RequestPlan | None = None
        while True:
            try:
                work = game.send(plan)
            except StopIteration as stop:
                self._write(record, session.task, stop.value, done)
                return
            start_s = self.env.now
            parts: tuple[Part, ...]
            if isinstance(work, ToolRun):
                answer = None
                if work.seconds > 0:
                    yield self.env.timeout(work.seconds)
                parts = (Part("tools", "tool", wall_cost(work.seconds)),)
            else:
                answer = yield from self.fleet.ask(work, record.number, seats)
                parts = answer.parts
                record.n_preemptions += answer.n_preemptions
            plan = None if answer is None else answer.plan
            done.append(_Done(work, start_s, self.env.now, parts))

    def _write(self, record: Record, task: Task, result: RoundResult, done: list[_Done]) -> None:
        """Book a round that has ended: what was wasted is known only now."""
        for item, wasted in zip(done, result.wasted, strict=True):
            self._write_phases(record, item, wasted=wasted)
            if isinstance(item.work, EngineRequest):
                record.output_tokens[item.work.role] += item.work.output_tokens
                if item.work.kind != "verify":
                    self._write_step(record, task, item, item.work, wasted=wasted)
        record.n_steps += len(result.committed)
        record.n_rounds += 1
        record.n_drafted += result.drafted
        record.n_accepted += result.accepted
        record.n_reviews += result.verified
        record.n_repairs += result.repaired

    def _write_phases(self, record: Record, item: _Done, *, wasted: bool) -> None:
        at_s = item.start_s
        kind = item.work.kind if isinstance(item.work, EngineRequest) else "tool"
        for lane, label, cost in _merged(item.parts):
            phase = _wasted_phase(label) if wasted else label
            end_s = at_s + float(cost[WALL])
            self.phases.append(
                (record.number, record.n_rounds, item.work.step, kind, lane, phase, at_s, end_s, *cost.tolist())
            )
            at_s = end_s
            record.cost += cost
            if phase == "queue":
                record.queue_s += float(cost[WALL])

    def _write_step(self, record: Record, task: Task, item: _Done, work: EngineRequest, *, wasted: bool) -> None:
        fate = {"write": "written", "repair": "repaired", "draft": "discarded" if wasted else "accepted"}[work.kind]
        effect = task.steps[work.step].effect.value
        key = (record.number, record.n_rounds, work.step, work.role.value, fate, effect)
        self.steps.append((*key, item.start_s, item.end_s, work.output_tokens))


def _wasted_phase(phase: str) -> str:
    """Where the cost of a discarded draft goes, as in `costmodel.ledger.work_shares`."""
    if phase in _NEVER_WASTED:
        return phase
    return "wasted_tool" if phase == "tool" else "wasted_draft"


def _merged(parts: tuple[Part, ...]) -> list[Part]:
    """Parts that cost something, neighbours of one lane and phase as one."""
    out: list[Part] = []
    for part in parts:
        if not part.cost.any():
            continue
        if out and (out[-1].lane, out[-1].phase) == (part.lane, part.phase):
            out[-1] = part._replace(cost=out[-1].cost + part.cost)
        else:
            out.append(part)
    return out


def drawn_verdicts(law: AcceptanceLaw, shift: float, seed: int) -> Verdicts:
    """Step j is kept iff U_j < p_j(m), one uniform per (seed, trajectory, step) for any strategy and load."""

    def of(number: int, task: Task) -> VerdictRule:
        drawn = uniforms(seed, number, len(task.steps))
        effects = [step.effect for step in task.steps]

        def verdict(start: int, n: int) -> int:
            kept = np.array(drawn[start : start + n]) < law.probabilities(shift, effects[start : start + n])
            return n if kept.all() else int(kept.argmin())

        return verdict

    return of
