"""Iterations of an engine under way: when each ends, and the event at which the engine goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import simpy
from simpy.events import NORMAL, EventPriority

from hwprofiles.errors import InputError
from simulator.jobs import Shares
from simulator.scheduler import Batch

_LAST = EventPriority(NORMAL + 1)


class Wake(simpy.Event):
    """Calls `then` after every ordinary event of its instant, so that all arrivals of an instant join one batch."""

    def __init__(self, env: simpy.Environment, delay_s: float, then: Callable[[simpy.Event], None]) -> None:
        self.env = env
        self.callbacks = [then]
        self._ok, self._value = True, None
        env.schedule(self, _LAST, delay_s)


class Run:
    """Iterations of one batch under way: `n_steps` of them, the i-th (from 0) lasting `first_s + i * more_s`."""

    __slots__ = ("added", "batch", "first_s", "more_s", "n_steps", "start_s")

    def __init__(
        self, batch: Batch, start_s: float, first_s: float, more_s: float, n_steps: int, added: Sequence[Shares]
    ) -> None:
        self.batch = batch
        self.start_s = start_s
        self.first_s = first_s
        self.more_s = more_s
        self.n_steps = n_steps
        self.added = added

    def end_s(self, n_steps: int) -> float:
        """When iteration `n_steps` ends, counted from 1."""
        return self.start_s + (n_steps * self.first_s + self.more_s * (n_steps * (n_steps - 1) / 2))

    def step_at(self, now_s: float) -> int:
        """The iteration in progress at `now_s`, counted from 1; one that ends at `now_s` still is."""
        passed_s = now_s - self.start_s
        n = int(passed_s / (self.first_s + 0.5 * self.more_s * self.n_steps)) if passed_s > 0 else 1
        n = min(max(n, 1), self.n_steps)
        while n > 1 and self.end_s(n - 1) >= now_s:
            n -= 1
        while n < self.n_steps and self.end_s(n) < now_s:
            n += 1
        return n


def seconds(value: float) -> float:
    """`value`, if it can be a duration."""
    if not 0 <= value < math.inf:
        raise InputError(f"a cost model must give finite seconds >= 0, got {value}")
    return value
