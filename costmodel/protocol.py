"""The request language: all that a strategy may ask for, whoever answers.

A strategy is written once, as a generator of rounds; `walk`, `expect`, the simulator and a real run answer the same
requests. What it wants to know in the next round it hands back with its commit, so a strategy itself never changes.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

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
    """What a strategy may know of the task: read-only.

    `carried` are drafted steps that the round before left for this one, their reads run; `memory` is what it left
    beside them (None in the first round).
    """

    @property
    def carried(self) -> tuple[StepLike, ...]:
        """Drafted steps behind the committed ones."""

    @property
    def memory(self) -> Hashable:
        """What `Commit.memory` of the round before said."""

    @property
    def last_effect(self) -> Effect | None:
        """Effect of the last committed step; None before the first."""

    @property
    def length(self) -> int | None:
        """Steps of the recorded task; None where nobody can know."""

    def ended(self, segment: Sequence[StepLike]) -> bool:
        """True when nothing is left to write after the committed steps and `segment`."""


class VerdictLike(Protocol):
    """A reviewer's answer: how many steps of the segment, from its start, are valid."""

    @property
    def accepted(self) -> int:
        """Length of the longest valid prefix; a garbled verdict is 0."""


class Draft(NamedTuple):
    """`role` writes the next step after the committed ones and `segment`; nothing is committed."""

    role: Role
    segment: tuple[StepLike, ...]


class CallTool(NamedTuple):
    """Run the tools of a drafted step now; only for steps that run freely."""

    step: StepLike


class Verify(NamedTuple):
    """`role` reviews the segment in one request and answers a verdict."""

    role: Role
    segment: tuple[StepLike, ...]


class Write(NamedTuple):
    """`role` writes the next step on the committed context, to be committed as it is."""

    role: Role


class Repair(NamedTuple):
    """`role` writes the step at offset `accepted` of a segment whose first `accepted` steps are valid."""

    role: Role
    segment: tuple[StepLike, ...]
    accepted: int


class Start(NamedTuple):
    """Begin a request that takes time (a draft, a tool, a review, a write) and go on; answered with a `Ticket`."""

    request: Draft | CallTool | Verify | Write


class Ticket(NamedTuple):
    """A request under way."""

    number: int


class Wait(NamedTuple):
    """Wait for the first of these to finish (of several at once: the one named first); answered with `Done`."""

    tickets: tuple[Ticket, ...]


class Done(NamedTuple):
    """A request that has finished, and its answer."""

    ticket: Ticket
    answer: object


class Cancel(NamedTuple):
    """Give a request up: it is never answered, and what it has consumed stays charged."""

    ticket: Ticket


class Observe(NamedTuple):
    """Answered with the seconds since the task began, waiting in queues included."""


class Toss(NamedTuple):
    """Answered True with probability `share`: the same coin for a task and step in every strategy and run."""

    share: float


class Reuse(NamedTuple):
    """Let the written `step` take over the tool run begun for `guess`; answered False when the two differ in a call."""

    step: StepLike
    guess: StepLike


Request = Draft | CallTool | Verify | Write | Repair | Start | Wait | Cancel | Observe | Toss | Reuse


class Commit(NamedTuple):
    """What a round returns: the steps that become part of the task, in order; tools not yet run run now.

    `carried` are drafted steps behind an accepted segment, for the next round to go on with; `memory` is handed to it
    as it is.
    """

    steps: tuple[StepLike, ...]
    carried: tuple[StepLike, ...] = ()
    memory: Hashable = None


Round = Generator[Request, object, Commit]


class Strategy(Protocol):
    """A way to get a task done, one round at a time."""

    @property
    def name(self) -> str:
        """Name in tables and scenarios."""

    def round(self, view: View) -> Round:
        """One round: yields requests, is sent answers, returns what it commits (at least one step)."""
