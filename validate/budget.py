"""Times given as words, and the budget of a run that must end in time: how long a stage may take, if it is begun."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from hwprofiles.errors import InputError

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def seconds_of(text: str, option: str = "--budget") -> float:
    """Seconds of a time such as `90s`, `12min` or `1h`; raises `InputError` where it is none."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s?(s|min|h)", text)
    if match is None or float(match[1]) <= 0:
        raise InputError(f"{option} must be a time such as 90s, 15min or 1h, got {text!r:.40}")
    return float(match[1]) * _SECONDS[match[2]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A stage's part of a budget.

    Parameters
    ----------
    most : float
        Share of what is left when the stage begins that it may take.
    least : float
        Share of the whole budget below which it is not begun.
    """

    most: float
    least: float


class Budget:
    """Seconds of a run, given out stage by stage.

    A stage that begins with `left` seconds before the end gets `most * left`, and none where that is less than
    `least * total`. What a stage does not use is there for those after it.

    Parameters
    ----------
    total_s : float
    shares : mapping name -> Share
    kept_s : float
        Kept back at the end, for stopping and writing.
    """

    def __init__(
        self,
        total_s: float,
        shares: dict[str, Share],
        *,
        kept_s: float = 0.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_s, self.shares, self.kept_s = total_s, shares, kept_s
        self._now_s = now_s
        self._begun_s = now_s()

    @property
    def passed_s(self) -> float:
        """Seconds since the run began."""
        return self._now_s() - self._begun_s

    @property
    def left_s(self) -> float:
        """Seconds that stages can still take."""
        return max(0.0, self.total_s - self.kept_s - self.passed_s)

    def grant_s(self, stage: str) -> float:
        """Seconds that a stage may take if it begins now; 0: too few to begin it."""
        share = self.shares[stage]
        granted = share.most * self.left_s
        return granted if granted >= share.least * self.total_s else 0.0

    def refusal(self, stage: str) -> str:
        """Why a stage that got nothing is left out."""
        share = self.shares[stage]
        return (
            f"{self.left_s:.0f} s were left of {self.total_s:.0f} s; it may take {share.most:.0%} of that and needs "
            f"{share.least * self.total_s:.0f} s"
        )
