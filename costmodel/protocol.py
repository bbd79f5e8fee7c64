"""The request language: all that a strategy may ask for, whoever answers.

A strategy is written once, as a generator of rounds; `walk`, `expect`, the simulator and a real run answer the same
requests. Concurrency (`Start`, `Wait`, `Cancel`, `Observe`) joins with the strategies that need it; all nine are
written out in docs/strategies.md.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from costmodel.trajectory import Effect


class Role(StrEnum):
    """Which of the two models."""

    WEAK = "weak"
    STRONG = "strong"


class StepLike(Protocol):
    """What a strategy may know of a step somebody wrote."""

    @property
    def effect(self) -> Effect:
        """What the step does to the world; unknown is held."""


class View(Protocol):
    """What a strategy may know of the task: read-only."""

    def ended(self, segment: Sequence[StepLike]) -> bool:
        """True when nothing is left to write after the committed steps and `segment`."""


class VerdictLike(Protocol):
    """A reviewer's answer: how many steps of the segment, from its start, are valid."""

    @property
    def accepted(self) -> int:
        """Length of the longest valid prefix; a garbled verdict is 0."""


@dataclass(frozen=True, slots=True)
class Draft:
    """`role` writes the next step after the committed ones and `segment`; nothing is committed."""

    role: Role
    segment: tuple[StepLike, ...]


@dataclass(frozen=True, slots=True)
class CallTool:
    """Run the tools of a drafted step now; only for steps that run freely."""

    step: StepLike


@dataclass(frozen=True, slots=True)
class Verify:
    """`role` reviews the segment in one request and answers a verdict."""

    role: Role
    segment: tuple[StepLike, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """`role` writes the next step on the committed context, to be committed as it is."""

    role: Role


@dataclass(frozen=True, slots=True)
class Repair:
    """`role` writes the step at offset `accepted` of a segment whose first `accepted` steps are valid."""

    role: Role
    segment: tuple[StepLike, ...]
    accepted: int


Request = Draft | CallTool | Verify | Write | Repair


@dataclass(frozen=True, slots=True)
class Commit:
    """What a round returns: the steps that become part of the task, in order; tools not yet run run now."""

    steps: tuple[StepLike, ...]


Round = Generator[Request, object, Commit]


class Strategy(Protocol):
    """A way to get a task done, one round at a time."""

    @property
    def name(self) -> str:
        """Name in tables and scenarios."""

    def round(self, view: View) -> Round:
        """One round: yields requests, is sent answers, returns what it commits (at least one step)."""
