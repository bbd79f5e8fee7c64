"""Doubles for real runs: engines that say what a test wrote down, tools that remember every call."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from costmodel.protocol import Role
from costmodel.strategies import strategy
from costmodel.trajectory import Effect
from validate.chat import Message, ToolSpec, ToolUse
from validate.engine import Answer, Ask
from validate.fake import VirtualClock
from validate.journal import Journal
from validate.runner import AgentTask, TaskRunner
from validate.tools import ToolResult

EFFECTS = {"look": Effect.READ, "count": Effect.PURE, "change": Effect.WRITE, "unclear": Effect.UNKNOWN}
CHAT = (Message(role="system", text="Be useful."), Message(role="user", text="Please."))


@dataclass(frozen=True)
class Says:
    """One answer of an engine: words, calls as (tool, arguments), and why it stopped."""

    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    finish: str = "stop"


def call(*names: str, text: str = "", **arguments: Any) -> Says:
    """A step that calls these tools, all with the same arguments."""
    return Says(text, tuple((name, arguments) for name in names))


@dataclass
class Script:
    """An engine that gives its lines in order; a line that is an exception is raised; a callable is given the ask."""

    lines: list[Any]
    clock: VirtualClock
    asks: list[Ask] = field(default_factory=list)

    async def ask(self, ask: Ask) -> Answer:
        self.asks.append(ask)
        assert self.lines, f"nothing left to say to {ask.kind} of step {ask.step}"
        line = self.lines.pop(0)
        line = line(ask) if callable(line) else line
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, str):
            line = Says(line)
        sent_s = self.clock.now_s()
        self.clock.spend(1.0)
        return Answer(
            text=line.text,
            tool_uses=tuple(ToolUse(id=f"model{i}", name=n, arguments=a) for i, (n, a) in enumerate(line.calls)),
            finish=line.finish,
            prompt_tokens=10,
            cached_tokens=0,
            output_tokens=3,
            sent_s=sent_s,
            first_token_s=sent_s + 0.25,
            done_s=self.clock.now_s(),
        )


class Book:
    """An engine whose lines depend on what it is asked: (kind, step) to a line; other questions are an error."""

    def __init__(self, lines: Mapping[tuple[str, int], Any], clock: VirtualClock) -> None:
        self.lines, self.clock = lines, clock

    async def ask(self, ask: Ask) -> Answer:
        return await Script([self.lines[ask.kind, ask.step]], self.clock).ask(ask)


@dataclass
class Memory:
    """Tools that answer `tool(arguments)`; `calls` is the world's history, `trouble` what happens at the n-th call.

    With keys, a key that was seen is answered from memory, as a server that honours keys does.
    """

    supports_keys: bool = True
    trouble: dict[int, tuple[bool, BaseException]] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)
    sent: int = 0
    restarts: int = 0
    answered: dict[str, str] = field(default_factory=dict)
    effects: dict[str, Effect] = field(default_factory=lambda: dict(EFFECTS))
    watch: Callable[[str, str], None] = lambda name, key: None

    specs = tuple(ToolSpec(name=n, description=f"does {n}", parameters={"type": "object"}) for n in EFFECTS)

    def effect(self, name: str, arguments: Mapping[str, Any] | None = None) -> Effect:
        return self.effects.get(name, Effect.UNKNOWN)

    async def call(self, use: ToolUse, *, key: str) -> ToolResult:
        self.sent += 1
        happens, error = self.trouble.get(self.sent, (True, None))
        replayed = self.supports_keys and key in self.answered
        if happens and not replayed:
            self.watch(use.name, key)
            self.calls.append((use.name, dict(use.arguments), key))
            self.answered[key] = f"{use.name}({dict(use.arguments)})"
        if error is not None:
            raise error
        return ToolResult(text=self.answered[key], is_error=False, seconds=0.0, replayed=replayed)

    async def restart(self, after: Any = None) -> None:
        self.restarts += 1


class Stage:
    """One task on doubles: `run` plays it on the journal at `path`; `events` reads what was written."""

    call, Says, Book, CHAT = staticmethod(call), Says, Book, CHAT

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = VirtualClock()
        self.tools = Memory()
        self.weak = Script([], self.clock)
        self.strong = Script([], self.clock)
        self.kind: Callable[[Path], Journal] = Journal

    def run(
        self,
        how: Any,
        weak: Any = (),
        strong: Any = (),
        *,
        task: str = "t",
        runner: type[TaskRunner] = TaskRunner,
        **options: Any,
    ) -> str:
        """Play; `how` is a strategy or (name, window), an engine's lines a list or a mapping (see `Book`)."""
        self.weak, self.strong = (
            Book(lines, self.clock) if isinstance(lines, Mapping) else Script(list(lines), self.clock)
            for lines in (weak, strong)
        )
        plan = strategy(*how) if isinstance(how, tuple) else how
        engines = {Role.WEAK: self.weak, Role.STRONG: self.strong}
        with self.kind(self.path) as journal:
            player = runner(
                AgentTask(id=task, messages=CHAT), plan, engines, self.tools, journal, clock=self.clock, **options
            )
            return asyncio.run(player.run())

    def journal(self) -> Any:
        """The journal, to read."""
        return closing(Journal(self.path))

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        with self.journal() as journal:
            return list(journal.events(kind))

    @property
    def proof(self) -> Any:
        with self.journal() as journal:
            return journal.proof()

    @property
    def committed(self) -> list[dict[str, Any]]:
        """All committed steps, in order."""
        return [s for e in self.events("committed") for s in e["steps"]]

    @property
    def done(self) -> list[str]:
        """Names of the tools that ran, in order."""
        return [name for name, _, _ in self.tools.calls]


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where the machine has one: thousands of synchronous writes take seconds, not minutes."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def stage(quick_folder: Path) -> Stage:
    """An empty stage."""
    return Stage(quick_folder / "journal.db")


@pytest.fixture
def stages(quick_folder: Path) -> Callable[[], Stage]:
    """As many empty stages as asked for."""
    numbers = itertools.count()
    return lambda: Stage(quick_folder / f"journal{next(numbers)}.db")
