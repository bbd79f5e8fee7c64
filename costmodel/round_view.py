"""What a strategy sees of a round: steps somebody wrote, verdicts, and the task it is at."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from costmodel.task import TaskStep
from costmodel.trajectory import Effect


class SeenStep(NamedTuple):
    """A step as the strategy sees it; `offset` counts from the committed ones."""

    effect: Effect
    offset: int
    step: TaskStep


class SeenVerdict(NamedTuple):
    """A reviewer's answer."""

    accepted: int


class SeenTask(NamedTuple):
    """The task between two rounds, as `costmodel.protocol.View` describes it."""

    remaining: int
    carried: tuple[SeenStep, ...]
    memory: Hashable
    last_effect: Effect | None
    length: int

    def ended(self, segment: Any) -> bool:
        """True when nothing is left to write after the committed steps and `segment`."""
        return len(segment) >= self.remaining
