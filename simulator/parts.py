"""Parts of a request's or tool run's time, with their cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add
from typing import NamedTuple

from costmodel.cost import COLUMNS
from costmodel.pricing import WALL


class Cost(tuple[float, ...]):
    """One number per column of `COLUMNS`; adds up and scales by column. Ten numbers are quicker so than as an array."""

    __slots__ = ()

    def __add__(self, other: Iterable[float]) -> Cost:  # type: ignore[override]  # by column, not end to end
        return Cost(map(add, self, other))

    def __mul__(self, factor: float) -> Cost:  # type: ignore[override]  # as above
        return Cost([factor * x for x in self])


NO_COST = Cost([0.0] * len(COLUMNS))


class Part(NamedTuple):
    """A stretch of wall time: its lane and phase, and its cost, `wall_s` included."""

    lane: str
    phase: str
    cost: Cost


_BEFORE, _AFTER = NO_COST[:WALL], NO_COST[WALL + 1 :]


def wall_cost(seconds: float) -> Cost:
    """The cost of time alone."""
    return Cost((*_BEFORE, seconds, *_AFTER))


def without_wall(cost: Cost) -> Cost:
    """A cost less its wall time."""
    return Cost((*cost[:WALL], 0.0, *cost[WALL + 1 :]))


def total(parts: Sequence[Part]) -> tuple[Cost, float]:
    """Cost of all parts, and the seconds of them spent in queues."""
    if len(parts) == 1 and parts[0].phase != "queue":
        return parts[0].cost, 0.0
    cost = NO_COST
    for part in parts:
        cost += part.cost
    return cost, sum([part.cost[WALL] for part in parts if part.phase == "queue"])
