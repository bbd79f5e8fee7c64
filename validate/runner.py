"""The fourth evaluator: plays a strategy on real engines with real tools, and never breaks the hold.

The strategy classes are those of `costmodel.strategies`, the rules those of `costmodel.guard`. Everything that matters
is journaled before and after; a killed run goes on from its journal: answers already there are not asked for again,
actions already run are not run again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.protocol import Role, Strategy
from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from validate.actions import Actions, Clock, Tools, Unresolved
from validate.chat import Message
from validate.engine import ChatEngine
from validate.journal import Journal
from validate.round import Round
from validate.steps import RealStep, from_document


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask:
    """One task: the chat before the agent's first step."""

    id: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop: committed steps of a task, decoded tokens of a step, tries of a failing engine."""

    max_steps: int = 30
    max_tokens: int = 512
    tries: int = 3

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_tokens", "tries"):
            if getattr(self, name) < 1:
                raise InputError(f"limits.{name} must be >= 1, got {getattr(self, name)}")


class TaskRunner:
    """Plays one task to its end.

    Parameters
    ----------
    task : AgentTask
    strategy : Strategy
    engines : mapping Role -> ChatEngine
    tools : Tools
    journal : Journal
        An empty one, or that of a run that was cut.
    run : str
        Name of the run, the first part of every idempotency key.
    repair_mode : "fresh" or "continue"
    """

    def __init__(
        self,
        task: AgentTask,
        strategy: Strategy,
        engines: Mapping[Role, ChatEngine],
        tools: Tools,
        journal: Journal,
        *,
        clock: Clock,
        run: str = "run",
        limits: Limits | None = None,
        repair_mode: str = "fresh",
    ) -> None:
        self.task, self.strategy, self.engines, self.tools, self.journal = task, strategy, engines, tools, journal
        self.clock = clock
        self.run_name = run
        self.limits = limits or Limits()
        self.repair_mode = repair_mode
        self.actions = Actions(task.id, tools, journal, clock)
        self.chat: list[Message] = list(task.messages)
        self.n_committed = 0
        self.round = 0
        self.carried: tuple[RealStep, ...] = ()
        self.memory: Hashable = None
        self.last_effect: Effect | None = None
        self.began_s = 0.0
        self.left: list[asyncio.Task[Any]] = []

    async def run(self) -> str:
        """Play to the end; returns the status: finished, step_limit or unresolved.

        Raises
        ------
        EngineError
            An engine failed `tries` times; the journal is whole and the run can be resumed.
        ToolServerGone
            The tool server does not come back; as above.
        JournalError
            The journal cannot be written; nothing was done that it does not know of.
        """
        before = self.journal.finished(self.task.id)
        if before is not None:
            return str(before["status"])
        if self.journal.find(self.task.id, 0, "task") is not None:
            self.journal.resume(self.task.id, self.clock.now_s())
        self.began_s = self.clock.now_s()
        self.journal.record(self.task.id, 0, "task", at_s=self.began_s)
        final = self._recall()
        try:
            while not final and self.n_committed < self.limits.max_steps:
                final = await Round(self).play()
            status = "finished" if final else "step_limit"
        except Unresolved:
            status = "unresolved"
        finally:
            await asyncio.gather(*self.left, return_exceptions=True)
        self.journal.record(self.task.id, self.round, "finished", status=status, at_s=self.clock.now_s())
        return status

    def coin(self) -> float:
        """A number in 0 .. 1 that belongs to the task and its next step, whatever the strategy or the run."""
        return random.Random(f"{self.task.id}:{self.n_committed}").random()

    def _recall(self) -> bool:
        """Put committed rounds of an earlier attempt back into the chat; True when the last step was final.

        Drafts that were carried on, and times that an adaptive strategy had seen, are forgotten.
        """
        final = False
        for document in self.journal.committed(self.task.id):
            steps = [from_document(d) for d in document["steps"]]
            final = self.take(steps, [], document.get("memory"))
        return final

    def take(self, steps: Sequence[RealStep], carried: Sequence[RealStep], memory: Hashable) -> bool:
        """Append committed steps to the chat and begin the next round; True when the task is over."""
        for step in steps:
            self.chat.extend(step.messages())
            self.last_effect = step.effect
        self.carried, self.memory = tuple(carried), memory
        self.n_committed += len(steps)
        self.round += 1
        return bool(steps) and steps[-1].is_final
