"""Which replica serves: one for a whole trajectory, or one for each request."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from simulator.engine import Engine

RouterName = Literal["least_loaded", "round_robin", "prefix_affinity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRule:
    """How a role's replicas are chosen; `prefix_affinity` always chooses per request."""

    router: RouterName = "least_loaded"
    per_request: bool = False


class Router:
    """Chooses among the replicas of one role.

    Parameters
    ----------
    engines : the replicas
    rule : RouteRule
        `least_loaded`: the fewest trajectories seated, or requests outstanding, the first of equals. `round_robin`: in
        turn. `prefix_affinity`: the replica with the longest cached prefix of the trajectory, unless its batch is full
        and another's is not; the least loaded among equals.
    shared_tokens : int
        What every replica holds from the start.

    Limits
    ------
    A replica's prefix counts as far as the trajectory's context has agreed with it ever since; what the replica has
    evicted meanwhile only its engine knows.
    """

    def __init__(self, engines: Sequence[Engine], rule: RouteRule, shared_tokens: int = 0) -> None:
        self.engines = engines
        self.rule = rule
        self.per_request = rule.per_request or rule.router == "prefix_affinity"
        self._shared_tokens = shared_tokens
        self._seated = [0] * len(engines)
        self._turn = 0
        self._valid: dict[Hashable, dict[int, int]] = {}

    def seat(self) -> int:
        """A replica for a new trajectory."""
        replica = self._next() if self.rule.router == "round_robin" else self._seated.index(min(self._seated))
        self._seated[replica] += 1
        return replica

    def leave(self, replica: int) -> None:
        """A trajectory has ended; its cached prefixes stay until they are evicted."""
        self._seated[replica] -= 1

    def pick(self, key: Hashable, seat: int, reusable_tokens: int, end_tokens: int) -> tuple[int, int]:
        """The replica of a request of `end_tokens` in all, and how much of its prompt that one may reuse."""
        if not self.per_request:
            return seat, reusable_tokens
        valid = {r: min(n, reusable_tokens) for r, n in self._valid.get(key, {}).items()}
        replica = self._choose(valid)
        found = valid.get(replica, min(self._shared_tokens, reusable_tokens))
        self._valid[key] = valid | {replica: end_tokens}
        return replica, found

    def _choose(self, valid: dict[int, int]) -> int:
        if self.rule.router == "round_robin":
            return self._next()
        load = [engine.n_outstanding for engine in self.engines]
        if self.rule.router == "least_loaded":
            return load.index(min(load))
        full = [n >= engine.cost.max_seqs for n, engine in zip(load, self.engines, strict=True)]
        return min(range(len(load)), key=lambda r: (full[r], -valid.get(r, 0), load[r], r))

    def _next(self) -> int:
        replica = self._turn % len(self.engines)
        self._turn += 1
        return replica
