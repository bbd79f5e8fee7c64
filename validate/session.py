"""A whole real run: every task under every strategy, each with a journal, a tool server and a clock."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costmodel.pricing import Pricing
from costmodel.protocol import Role
from costmodel.strategies import strategy as find_strategy
from simulator.case import Case
from validate.actions import Clock, Tools
from validate.chat import Message
from validate.engine import ChatEngine, EngineError
from validate.fake import FakeEngine, Scripted, VirtualClock, VirtualTools
from validate.faults import FaultyEngine, FaultyJournal, FaultyTools, Killed
from validate.journal import Journal, JournalError
from validate.order_desk.desk import Desk
from validate.order_desk.server import desk_command, desk_server
from validate.order_desk.task import Task as DeskTask
from validate.order_desk.tasks import TASKS, check
from validate.runner import AgentTask, Limits, TaskRunner
from validate.tools import ToolBox

SYSTEM = (
    "You work at an order desk. Use the tools to look things up and to act; one step at a time. "
    "When all is done, answer the customer in plain words."
)
_FAKE_TOOL_S = 0.02
"""Virtual time of a tool call: MCP over a local process takes 17 to 22 ms in recorded sessions."""
_FAULT_RATE = 0.08
_JOURNAL_FAULTS = ("killed_before", "killed_after", "full")


class RealClock:
    """Wall-clock seconds since the run began."""

    def __init__(self) -> None:
        self._start_s = time.perf_counter()

    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One task to play: its name in the journal, its chat, and the desk task behind it, if any."""

    name: str
    messages: tuple[Message, ...]
    desk: DeskTask | None = None


@dataclass(slots=True, kw_only=True)
class Played:
    """What became of a job: status, whether the end state is right (None: nobody can say), resumptions, violations."""

    name: str
    status: str
    solved: bool | None
    resumed: int = 0
    changes_twice: int = 0
    faults: list[str] = field(default_factory=list)


def desk_jobs(n: int) -> tuple[Job, ...]:
    """`n` jobs over the desk's twenty tasks, in order and then again."""
    out = []
    for i in range(n):
        task = TASKS[i % len(TASKS)]
        name = task.id if i < len(TASKS) else f"{task.id}~{i // len(TASKS)}"
        messages = (Message(role="system", text=SYSTEM), Message(role="user", text=task.request))
        out.append(Job(name=name, messages=messages, desk=task))
    return tuple(out)


def fake_engines(case: Case, jobs: Sequence[Job], clock: VirtualClock) -> dict[Role, FakeEngine]:
    """Engines priced as the scenario's sites, that behave as its [quality] says."""
    q = case.scenario.quality
    band = case.scenario.workload.thinking_tokens
    thinking = 0 if band is None else round(band.value)
    behaviour = Scripted(
        scripts={j.name: [(a.tool, a.arguments) for a in j.desk.actions] for j in jobs if j.desk},
        weak_hazard=q.weak_hazard.value,
        strong_hazard=q.strong_hazard.value,
        detection=q.detection.value,
        false_reject=q.false_reject.value,
        thinking={role: thinking if case.side(role).thinking else 0 for role in Role},
        seed=case.scenario.run.seed,
    )
    pricing = Pricing(case.sites)
    return {role: FakeEngine(role, pricing, behaviour, clock) for role in Role}


@asynccontextmanager
async def desk_tools(database: Path | None) -> AsyncIterator[tuple[ToolBox, Callable[[DeskTask], bool], Desk | None]]:
    """The bundled desk: in a process of its own over stdio when there is a file for it, else in this process."""
    if database is not None:
        async with ToolBox.stdio(desk_command(database)) as tools:
            yield tools, lambda task: check(database, task), None
        return
    desk = Desk(":memory:")
    try:
        async with ToolBox.in_memory(desk_server(desk)) as tools:
            yield tools, lambda task: check(desk.db, task), desk
    finally:
        desk.close()


class Session:
    """Plays jobs of one case under one strategy, one after the other.

    Parameters
    ----------
    engines : mapping Role -> ChatEngine
    clock : Clock
    journal : Path
        An existing journal of the same run is gone on with.
    faults : int or None
        Seed of injected faults (fake engines only).
    """

    def __init__(
        self,
        case: Case,
        strategy: str,
        engines: Mapping[Role, ChatEngine],
        clock: Clock,
        journal: Path,
        *,
        faults: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.case, self.name, self.engines, self.clock = case, strategy, engines, clock
        self.path, self.faults, self.limits = journal, faults, limits or Limits()
        self.meta = {"strategy": strategy, "window": case.scenario.protocol.window, "seed": case.scenario.run.seed}

    async def play(self, job: Job, tools: Tools, solved: Callable[[DeskTask], bool] | None) -> Played:
        """Play one job to its end, through injected faults if there are any."""
        if isinstance(self.clock, VirtualClock):
            tools = VirtualTools(tools, self.clock, _FAKE_TOOL_S)
        played = Played(name=job.name, status="", solved=None)
        rng = None if self.faults is None else random.Random(f"{self.faults}/{job.name}")
        while True:
            try:
                played.status = await self._attempt(job, tools, rng, played)
                break
            except (Killed, JournalError, EngineError) as fault:
                if rng is None:
                    raise
                played.faults.append(type(fault).__name__)
                played.resumed += 1
        if job.desk is not None and solved is not None:
            played.solved = solved(job.desk)
        return played

    async def _attempt(self, job: Job, tools: Tools, rng: random.Random | None, played: Played) -> str:
        engines: dict[Role, ChatEngine] = dict(self.engines)
        journal = Journal(self.path, self.meta) if rng is None else self._faulty_journal(rng, played.resumed)
        if rng is not None:
            tools = FaultyTools(tools, rng, _FAULT_RATE)
            engines = {r: FaultyEngine(e, rng, _FAULT_RATE) for r, e in engines.items() if isinstance(e, FakeEngine)}
        how = find_strategy(self.name, self.case.scenario.protocol.window)
        with journal:
            runner = TaskRunner(
                AgentTask(id=job.name, messages=job.messages),
                how,
                engines,
                tools,
                journal,
                clock=self.clock,
                run=self.name,
                limits=self.limits,
                repair_mode=self.case.scenario.protocol.repair_mode,
            )
            return await runner.run()

    def _faulty_journal(self, rng: random.Random, resumed: int) -> Journal:
        """A journal that fails once in a while; after some failures the disk behaves."""
        if resumed >= 4 or rng.random() < 0.3:
            return Journal(self.path, self.meta)
        return FaultyJournal(self.path, self.meta, fault=rng.choice(_JOURNAL_FAULTS), at=rng.randint(1, 60))


def changed_twice(desk: Desk) -> int:
    """Keys under which the desk changed its state more than once, by its own journal; must be 0."""
    from collections import Counter

    from validate.order_desk.desk import read_calls

    keys: Counter[Any] = Counter(c.idempotency_key for c in read_calls(desk.db) if c.changed_state)
    return sum(n > 1 for n in keys.values())
