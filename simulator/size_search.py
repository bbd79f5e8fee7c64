"""The cheapest fleet of one strategy: a closed form orders the fleets, simulation decides, dominance saves the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from costmodel.protocol import Role
from simulator.size_runs import Judged

_MARGIN = 1.25
"""Cheaper fleets are simulated while the closed form, scaled by what simulation showed, is within this of a limit."""

_MOST_FLEETS = 24
"""Fleets simulated per strategy."""


class Fleet(NamedTuple):
    """Replicas of each role; 0 where a strategy has none, or an API answers."""

    weak: int
    strong: int

    def replicas(self, roles: tuple[Role, ...]) -> dict[Role, int]:
        """By role, of those that have replicas."""
        return {role: getattr(self, role.value) for role in roles}

    def covers(self, other: Fleet) -> bool:
        """At least as many of each role."""
        return self.weak >= other.weak and self.strong >= other.strong


@dataclass(slots=True, kw_only=True)
class Search:
    """A search over fleets.

    Parameters
    ----------
    roles : those that have replicas
    least : replicas below which a pool is surely overloaded
    most : largest pool
    cost : dollars per hour of a fleet; it rises with every replica
    allowed : whether a fleet is within the budgets
    score : predicted statistic over its limit, infinite where the closed form sees an overload
    judge : simulates a fleet
    scale : simulated score over predicted one, of the fleet simulated last
    """

    roles: tuple[Role, ...]
    least: Mapping[Role, int]
    most: int
    cost: Callable[[Fleet], float]
    allowed: Callable[[Fleet], bool]
    score: Callable[[Fleet], float]
    judge: Callable[[Fleet], Judged]
    judged: dict[Fleet, Judged] = field(default_factory=dict)
    scale: float = 1.0

    def run(self) -> Fleet | None:
        """The cheapest fleet that meets the objectives with confidence; None where no allowed one does.

        Fleets are taken in order of cost among those that the closed form, scaled to the last simulated fleet, holds
        good. Once one meets, cheaper ones are tried: its neighbours with one replica fewer always, others while they
        are within `_MARGIN` of good. A fleet is not simulated when a larger one failed.
        """
        fleets = sorted((f for f in self._fleets() if self.allowed(f)), key=lambda f: (self.cost(f), f))
        scores = {f: self.score(f) for f in fleets}
        while len(self.judged) < _MOST_FLEETS:
            fleet = self._next(fleets, scores)
            if fleet is None:
                break
            self.judged[fleet] = found = self.judge(fleet)
            self._learn(found, scores[fleet])
        return self.best()

    def best(self) -> Fleet | None:
        """The cheapest simulated fleet that meets."""
        met = [f for f, j in self.judged.items() if j.meets]
        return min(met, key=lambda f: (self.cost(f), f)) if met else None

    def _fleets(self) -> Iterator[Fleet]:
        pools = {
            role: range(self.least[role], self.most + 1) if role in self.roles else (0,)
            for role in (Role.WEAK, Role.STRONG)
        }
        return (Fleet(w, s) for w in pools[Role.WEAK] for s in pools[Role.STRONG])

    def _next(self, fleets: list[Fleet], scores: Mapping[Fleet, float]) -> Fleet | None:
        best = self.best()
        failed = [f for f, j in self.judged.items() if not j.meets]
        open_ = [f for f in fleets if f not in self.judged and not any(x.covers(f) for x in failed)]
        if best is None:
            good = next((f for f in open_ if scores[f] * self.scale <= 1), None)
            near = [f for f in open_ if scores[f] * self.scale <= _MARGIN]
            return good or min(near, key=lambda f: (scores[f], self.cost(f), f), default=None)
        cheaper = [f for f in open_ if self.cost(f) < self.cost(best)]
        good = next((f for f in cheaper if scores[f] * self.scale <= 1), None)
        if good is not None:
            return good
        beside = (best._replace(weak=best.weak - 1), best._replace(strong=best.strong - 1))
        near = [f for f in cheaper if f in beside or scores[f] * self.scale <= _MARGIN]
        return min(near, key=lambda f: (scores[f], self.cost(f), f), default=None)

    def _learn(self, found: Judged, predicted: float) -> None:
        """Scale the closed form to what this fleet showed."""
        if math.isfinite(predicted) and predicted > 0:
            self.scale = found.score / predicted
