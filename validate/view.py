"""What a strategy is shown in a real run."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.trajectory import Effect
from validate.steps import RealStep


@dataclass(frozen=True, slots=True)
class RealVerdict:
    """A reviewer's answer."""

    accepted: int


@dataclass(frozen=True, slots=True)
class RealView:
    """The task as far as it is known; how long it will be is not."""

    remaining: int
    carried: tuple[RealStep, ...]
    memory: Hashable
    last_effect: Effect | None
    length: int | None = None

    def ended(self, segment: Sequence[Any]) -> bool:
        """True behind a final step, or when the step limit is reached."""
        return len(segment) >= self.remaining or any(s.is_final for s in segment)
