"""Iterations of an engine under way: when each ends, and the event at which the engine goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from heapq import heappush

import simpy
from simpy.events import NORMAL, EventPriority

from costmodel.request import Pass
from hwprofiles.errors import InputError
from simulator.inflight import InFlight
from simulator.jobs import Shares

_LAST = EventPriority(NORMAL + 1)


class Wake(simpy.Event):
    """Calls `then` after every ordinary event of its instant, so that all arrivals of an instant join one batch."""

    def __init__(self, env: simpy.Environment, delay_s: float, then: Callable[[simpy.Event], None]) -> None:
        self.env = env
        self.callbacks = [then]
        self._ok, self._value = True, None
        heappush(env._queue, (env._now + delay_s, _LAST, next(env._eid), self))  # `env.schedule`, without the call


class Later(simpy.Event):
    """Calls `then` in its turn, `delay_s` from now; `what` is the event's value."""

    def __init__(
        self, env: simpy.Environment, delay_s: float, then: Callable[[simpy.Event], None], what: object
    ) -> None:
        self.env = env
        self.callbacks = [then]
        self._ok, self._value = True, what
        heappush(env._queue, (env._now + delay_s, NORMAL, next(env._eid), self))


class Batch:
    """Iterations of one batch: a pass of each of `n_decode` sequences, and in the first a pass of each of `prefills`.

    `n_steps` of them follow each other, unless a request arrives at an `open` queue in between. Once under way, the
    i-th (from 0) lasts `first_s + i * more_s`; `added` is what each prefill pass costs.
    """

    __slots__ = ("added", "first_s", "more_s", "n_decode", "n_steps", "open", "prefills", "start_s")

    def __init__(
        self, n_decode: int, prefills: list[tuple[InFlight, Pass]], n_steps: int, is_open: bool, start_s: float
    ) -> None:
        self.n_decode = n_decode
        self.prefills = prefills
        self.n_steps = n_steps
        self.open = is_open
        self.start_s = start_s
        self.first_s = self.more_s = 0.0
        self.added: Sequence[Shares] = ()

    def end_s(self, n_steps: int) -> float:
        """When iteration `n_steps` ends, counted from 1."""
        return self.start_s + (n_steps * self.first_s + self.more_s * (n_steps * (n_steps - 1) / 2))

    def step_at(self, now_s: float) -> int:
        """The iteration in progress at `now_s`, counted from 1; one that ends at `now_s` still is."""
        passed_s = now_s - self.start_s
        n = int(passed_s / (self.first_s + 0.5 * self.more_s * self.n_steps)) if passed_s > 0 else 1
        n = self.n_steps if n > self.n_steps else n or 1
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
