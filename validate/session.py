"""A whole real run: every task under every strategy, each with a journal, a tool server and a clock."""

from __future__ import annotations

import random
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from costmodel.pricing import Pricing
from costmodel.protocol import Role
from simulator.case import Case
from simulator.playing import playing
from simulator.scenario_file import to_document
from validate.actions import Clock, Tools
from validate.chat import Message
from validate.engine import ChatEngine, EngineError
from validate.fake import FakeEngine, Scripted, VirtualClock, VirtualTools
from validate.faults import FaultyEngine, FaultyJournal, FaultyTools, Killed, Restartable
from validate.journal import Journal, JournalError
from validate.order_desk.desk import Desk, read_calls
from validate.order_desk.server import desk_command, desk_server
from validate.order_desk.task import Task as DeskTask
from validate.order_desk.tasks import SYSTEM, TASKS
from validate.runner import AgentTask, Limits, TaskRunner
from validate.tools import ToolBox

_FAKE_TOOL_S = 0.02
"""Virtual time of a tool call: MCP over a local process takes 17 to 22 ms in recorded sessions."""
_FAULT_RATE = 0.08
_JOURNAL_FAULTS = ("killed_before", "killed_after", "full")


class RealClock:
    """Seconds of wall clock that the run has worked; one that goes on begins at `start_s`."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._start_s = time.perf_counter() - start_s

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
    """What became of a job; `solved` None: nobody can say; `faults`: the errors that cut it, by name."""

    name: str
    status: str
    solved: bool | None
    resumed: int = 0
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


Database = Path | sqlite3.Connection
"""A desk's database."""


@asynccontextmanager
async def desk_tools(file: Path | None, *, own_process: bool) -> AsyncIterator[tuple[ToolBox, Database]]:
    """The bundled desk and its database: a process over stdio, or in this process; in memory where there is no file."""
    if own_process and file is not None:
        async with ToolBox.stdio(desk_command(file)) as tools:
            yield tools, file
        return
    desk = Desk(file or ":memory:")
    try:
        async with ToolBox.in_memory(desk_server(desk)) as tools:
            yield tools, desk.db
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
        Seed of injected faults (engines in this process only).
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
        self.meta = meta_of(case, strategy)

    def ended(self, job: Job) -> Played | None:
        """What became of a job that an earlier run ended; None: it has yet to be played to its end."""
        with Journal(self.path, self.meta) as journal:
            end = journal.finished(job.name)
            resumed = journal.resumptions(job.name)
        return None if end is None else Played(name=job.name, status=str(end["status"]), solved=None, resumed=resumed)

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
        if job.desk is not None and solved is not None:
            played.solved = solved(job.desk)
        return played

    async def _attempt(self, job: Job, tools: Tools, rng: random.Random | None, played: Played) -> str:
        engines: dict[Role, ChatEngine] = dict(self.engines)
        journal = Journal(self.path, self.meta) if rng is None else self._faulty_journal(rng, len(played.faults))
        if rng is not None:
            tools = FaultyTools(tools, rng, _FAULT_RATE)
            engines = {r: FaultyEngine(e, rng, _FAULT_RATE) for r, e in self.engines.items() if can_restart(e)}
        how = playing(self.case.scenario, self.name)
        with journal:
            fake = isinstance(self.clock, VirtualClock)
            run = journal.keep("run", self.name if fake else f"{self.name}-{uuid.uuid4().hex[:12]}")
            runner = TaskRunner(
                AgentTask(id=job.name, messages=job.messages),
                how,
                engines,
                tools,
                journal,
                clock=self.clock,
                run=run,
                limits=self.limits,
                repair_mode=self.case.scenario.protocol.repair_mode,
            )
            status = await runner.run()
            played.resumed = journal.resumptions(job.name)
            return status

    def _faulty_journal(self, rng: random.Random, resumed: int) -> Journal:
        """A journal that fails once in a while; after some failures the disk behaves."""
        if resumed >= 4 or rng.random() < 0.3:
            return Journal(self.path, self.meta)
        return FaultyJournal(self.path, self.meta, fault=rng.choice(_JOURNAL_FAULTS), at=rng.randint(1, 60))


def can_restart(engine: ChatEngine) -> TypeGuard[Restartable]:
    """Whether faults can be injected into an engine: one in this process, fake or real."""
    return hasattr(engine, "restart")


def meta_of(case: Case, strategy: str) -> dict[str, Any]:
    """What a journal must be about to be gone on with: the strategy and every key of the scenario."""
    found = {"strategy": strategy}
    for name, value in to_document(case.scenario).items():
        if isinstance(value, dict):
            found |= {f"{name}.{key}": part for key, part in value.items()}
        elif name != "strategies":
            found[name] = value
    return found


def changed_twice(database: Database) -> int:
    """Keys under which the desk changed its state more than once, by its own journal; must be 0."""
    keys = Counter(c.idempotency_key for c in read_calls(database) if c.changed_state)
    return sum(n > 1 for n in keys.values())
