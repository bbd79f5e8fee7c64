"""What chance decides on a path, asked by whoever plays a round: verdicts, literal matches, and a router's coin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

VerdictRule = Callable[[int, int], int]
"""(index of the segment's first step, its length) -> number of steps accepted."""


@dataclass(frozen=True, slots=True)
class Draws:
    """The draws of one path.

    Parameters
    ----------
    verdict : VerdictRule
    matches : callable
        Index of a step -> whether a draft of it makes literally the call that the strong model makes.
    toss : callable
        (index of a step, share) -> whether the coin of that step falls within the share.
    """

    verdict: VerdictRule
    matches: Callable[[int], bool]
    toss: Callable[[int, float], bool]


def draws_of(rule: VerdictRule | Draws) -> Draws:
    """A rule for verdicts alone decides all: a step matches, and is the weak model's, if it would be accepted alone.

    A share of 0 or 1 is not left to it.
    """
    if isinstance(rule, Draws):
        return rule
    return Draws(
        rule, lambda index: rule(index, 1) == 1, lambda index, share: share > 0 and (share >= 1 or rule(index, 1) == 1)
    )
