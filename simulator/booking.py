"""Books what trajectories did once its fate is known: the rows of steps and phases, and the sums of a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import simpy

from costmodel.cost import COLUMNS
from costmodel.pricing import USD, WALL
from costmodel.protocol import Role
from costmodel.request import RequestPlan
from costmodel.round_result import RoundResult
from costmodel.session import EngineRequest, ToolRun, Work
from costmodel.task import Task
from simulator.answers import Call
from simulator.parts import NO_COST, Cost, Part, without_wall
from simulator.record import Record
from simulator.results import Recorder

_ENERGY, _BUSY = COLUMNS.index("energy_j"), COLUMNS.index("busy_s")
_NEVER_WASTED = ("host", "network", "queue")


@dataclass(slots=True, eq=False)
class Item:
    """A piece of work of a round: under way until `ended`, and cancelled or not.

    `cost` and `queue_s` are of all `parts`. `on_path` is False for what ran in the shadow of other work, which takes no
    wall time; `call` and `process` are there where it goes on beside others.
    """

    work: Work
    round: int
    start_s: float
    end_s: float = 0.0
    parts: tuple[Part, ...] = ()
    cost: Cost = NO_COST
    queue_s: float = 0.0
    plan: RequestPlan | None = None
    emitted_tokens: int = 0
    ended: bool = False
    cancelled: bool = False
    on_path: bool = True
    error: Exception | None = None
    call: Call | None = None
    process: simpy.Process | None = None


class Books:
    """Takes down what has been judged.

    Parameters
    ----------
    recorder : takes the rows of steps and phases
    usd_per_busy_s : price of an engine's second by role, where it has one
    """

    def __init__(self, recorder: Recorder, usd_per_busy_s: Mapping[Role, float] | None = None) -> None:
        self.details = recorder.details
        self.steps = recorder.steps
        self.phases = recorder.phases
        prices = (usd_per_busy_s or {}).items()
        self.usd_per_busy_s: dict[Role | None, float] = {None: 0.0} | dict(prices)

    def count(self, record: Record, result: RoundResult) -> None:
        """Add what a round did to a trajectory's counts."""
        record.n_steps += len(result.committed)
        record.n_rounds += 1
        record.n_drafted += result.drafted
        record.n_accepted += result.accepted
        record.n_reviews += result.verified
        record.n_repairs += result.repaired

    def write(self, record: Record, task: Task, item: Item, *, wasted: bool, reviewed: bool) -> None:
        """Book a piece of work; `reviewed` tells an accepted draft from one that merely made the right call."""
        work, cost = item.work, item.cost
        if item.on_path:
            record.queue_s += item.queue_s
        else:
            cost = without_wall(cost)
        record.cost += cost
        role = None if isinstance(work, ToolRun) else work.role
        if wasted:
            record.wasted_output_tokens += item.emitted_tokens
            record.wasted_tool_calls += role is None
            record.wasted_energy_j += cost[_ENERGY]
            record.wasted_busy_s += cost[_BUSY]
            record.wasted_usd += cost[USD] + cost[_BUSY] * self.usd_per_busy_s.get(role, 0.0)
        if role is not None:
            record.output_tokens[role] += item.emitted_tokens
        if self.details:
            self._write_phases(record, item, wasted=wasted)
            if isinstance(work, EngineRequest) and work.kind != "verify":
                self._write_step(record, task, item, work, fate=_fate(item, wasted=wasted, reviewed=reviewed))

    def _write_phases(self, record: Record, item: Item, *, wasted: bool) -> None:
        at_s = item.start_s
        kind = item.work.kind if isinstance(item.work, EngineRequest) else "tool"
        for lane, label, full in merged(item.parts):
            phase = _wasted_phase(label) if wasted else label
            end_s = at_s + full[WALL]
            cost = full if item.on_path else without_wall(full)
            if item.on_path or any(cost):
                row = (record.number, item.round, item.work.step, kind, lane, phase, at_s, end_s, *cost)
                self.phases.append(row)
            at_s = end_s

    def _write_step(self, record: Record, task: Task, item: Item, work: EngineRequest, *, fate: str) -> None:
        effect = task.steps[work.step].effect.value
        key = (record.number, item.round, work.step, work.role.value, fate, effect)
        self.steps.append((*key, item.start_s, item.end_s, item.emitted_tokens))


def _fate(item: Item, *, wasted: bool, reviewed: bool) -> str:
    assert isinstance(item.work, EngineRequest)
    if item.work.kind != "draft":
        return {"write": "written", "repair": "repaired"}[item.work.kind]
    if wasted:
        return "cancelled" if item.cancelled else "discarded"
    return "accepted" if reviewed else "matched"


def _wasted_phase(phase: str) -> str:
    """Where the cost of a discarded draft goes, as in `costmodel.ledger.work_shares`."""
    if phase in _NEVER_WASTED:
        return phase
    return "wasted_tool" if phase == "tool" else "wasted_draft"


def merged(parts: tuple[Part, ...]) -> list[Part]:
    """Parts that cost something, neighbours of one lane and phase as one."""
    out: list[Part] = []
    for part in parts:
        if not any(part.cost):
            continue
        if out and (out[-1].lane, out[-1].phase) == (part.lane, part.phase):
            out[-1] = part._replace(cost=out[-1].cost + part.cost)
        else:
            out.append(part)
    return out
