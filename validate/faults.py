"""Injected faults: engines that restart, verdicts garbled or cut, tools that fail or vanish, journals that fill up.

Every fault is drawn from a seed, so a bad run can be repeated. A kill is an exception that nothing catches: all that
was in memory is gone, and only the journal and the tool server's database remain.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from validate.actions import Tools, ToolsAround
from validate.chat import ToolUse
from validate.engine import Answer, Ask, ChatEngine, EngineError
from validate.journal import Journal, JournalError
from validate.tools import ToolFailure, ToolResult, ToolServerGone, ToolTimeout


class Killed(BaseException):
    """The driver is killed here."""


class Restartable(ChatEngine, Protocol):
    """An engine that can be started again."""

    def restart(self) -> None:
        """Start again: the cache is empty."""


class FaultyEngine:
    """An engine that restarts before answering, or whose verdicts come garbled or cut, each with probability `rate`."""

    def __init__(self, engine: Restartable, rng: random.Random, rate: float) -> None:
        self.engine, self.rng, self.rate = engine, rng, rate

    async def ask(self, ask: Ask) -> Answer:
        """Answer, or not, or badly."""
        if self.rng.random() < self.rate:
            self.engine.restart()
            raise EngineError(f"{ask.role} engine restarted")
        answer = await self.engine.ask(ask)
        if ask.labels and self.rng.random() < self.rate:
            return replace(answer, text=self.rng.choice(["", "?", "99", "accept"]))
        if ask.labels and self.rng.random() < self.rate:
            return replace(answer, finish="length")
        return answer


class FaultyTools(ToolsAround):
    """Tools that fail, time out or lose their server, before or after the call has happened."""

    def __init__(self, tools: Tools, rng: random.Random, rate: float) -> None:
        super().__init__(tools)
        self.rng, self.rate = rng, rate
        self.gone = False

    async def call(self, use: ToolUse, *, key: str) -> ToolResult:
        """Call the tool, with a fault before or after now and then."""
        if self.gone:
            raise ToolServerGone("the tool server is gone", connection=0)
        fault = self.rng.choice(["error", "timeout", "gone"]) if self.rng.random() < self.rate else ""
        if fault == "error":
            return ToolResult(text="error: the tool is out of order", is_error=True, seconds=0.0, replayed=None)
        happened = self.rng.random() < 0.5
        result = await self.tools.call(use, key=key) if happened or not fault else None
        if fault == "timeout":
            raise ToolTimeout(f"{use.name} did not answer in time", connection=0)
        if fault == "gone":
            self.gone = True
            raise ToolServerGone("the tool server was killed", connection=0)
        assert result is not None
        return result

    async def restart(self, after: ToolFailure | None = None) -> None:
        """The server is back."""
        self.gone = False


class FaultyJournal(Journal):
    """A journal on a disk that fills up, or whose writer is killed, at the `at`-th event.

    Parameters
    ----------
    fault : str
        killed_before (the event is not on disk), killed_after (it is) or full.
    """

    def __init__(self, path: Path, meta: Mapping[str, Any] | None = None, *, fault: str, at: int) -> None:
        super().__init__(path, meta)
        self.fault, self.left = fault, at

    def record(self, task: str, round_: int, kind: str, slot: str = "", **data: Any) -> int:
        """Write an event, or fail in the chosen way."""
        self.left -= 1
        if self.left == 0 and self.fault == "full":
            raise JournalError(f"{self.path}: cannot be written: database or disk is full")
        if self.left == 0 and self.fault == "killed_before":
            raise Killed
        found = super().record(task, round_, kind, slot, **data)
        if self.left == 0 and self.fault == "killed_after":
            raise Killed
        return found
