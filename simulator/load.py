"""How trajectories come in: a fixed number of agents that each take the next one, or Poisson arrivals.

Both go on until all *counted* trajectories have ended: a warm-up comes before them, and others behind them keep the
load up, so that the counted ones see neither an empty nor an emptying system.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
import simpy

from hwprofiles.errors import InputError

Life = Callable[[int], Generator[simpy.Event, object, object]]
"""From the running number of a trajectory to its SimPy process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The load of a run: closed (`concurrency` agents) or open (`arrival_rate_per_s`), exactly one of them.

    `n_trajectories` are counted; see `n_warmup` for those before them.
    """

    n_trajectories: int
    concurrency: int | None = None
    arrival_rate_per_s: float | None = None

    def __post_init__(self) -> None:
        rate = self.arrival_rate_per_s
        if (self.concurrency is None) == (rate is None):
            raise InputError("a load is either a concurrency or an arrival rate: give exactly one")
        if self.n_trajectories < 1 or (self.concurrency is not None and self.concurrency < 1):
            raise InputError(f"trajectories and concurrency must be >= 1, got {self}")
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            raise InputError(f"arrival rate must be finite and > 0 per second, got {rate}")

    @property
    def n_warmup(self) -> int:
        """Trajectories before the counted ones: the first of each agent, or a quarter as many; none for one agent."""
        if self.concurrency is not None:
            return self.concurrency if self.concurrency > 1 else 0
        return self.n_trajectories // 4

    def counts(self, number: int) -> bool:
        """Whether trajectory `number` is a counted one."""
        return self.n_warmup <= number < self.n_warmup + self.n_trajectories

    def start(self, env: simpy.Environment, life: Life, enough: simpy.Event, rng: np.random.Generator) -> None:
        """Let trajectories 0, 1, 2, ... come in until `enough` has happened; `rng` draws the gaps of an open load."""
        numbers = _until(enough)
        if self.concurrency is not None:
            for _ in range(self.concurrency):
                env.process(_agent(env, numbers, life))
        elif self.arrival_rate_per_s is not None:
            env.process(_source(env, numbers, life, poisson_gaps(self.arrival_rate_per_s, rng)))


def streams(seed: int, *names: str) -> dict[str, np.random.Generator]:
    """One independent random stream per name; a stream's draws do not depend on what the others draw."""
    if seed < 0:
        raise InputError(f"seed must be >= 0, got {seed}")
    children = np.random.SeedSequence(seed).spawn(len(names))
    return {name: np.random.default_rng(child) for name, child in zip(names, children, strict=True)}


def uniforms(seed: int, number: int, n: int) -> list[float]:
    """`n` uniform numbers that belong to trajectory `number` whatever the strategy or load: common random numbers."""
    key = np.random.SeedSequence(seed, spawn_key=(0, number))
    return [float(u) for u in np.random.default_rng(key).random(n)]


def task_order(n_tasks: int, rng: np.random.Generator) -> Iterator[int]:
    """Random permutations of all tasks, one after the other, without end."""
    while True:
        yield from rng.permutation(n_tasks).tolist()


def poisson_gaps(rate_per_s: float, rng: np.random.Generator) -> Iterator[float]:
    """Exponential gaps of mean `1 / rate_per_s` without end, the first counted from time 0."""
    while True:
        yield float(rng.exponential(1.0 / rate_per_s))


def _until(enough: simpy.Event) -> Iterator[int]:
    for number in count():
        if enough.triggered:
            return
        yield number


def _agent(env: simpy.Environment, numbers: Iterator[int], life: Life) -> Generator[simpy.Event, object, None]:
    for number in numbers:
        yield env.process(life(number))


def _source(
    env: simpy.Environment, numbers: Iterator[int], life: Life, gaps_s: Iterator[float]
) -> Generator[simpy.Event, object, None]:
    for number in numbers:
        yield env.timeout(next(gaps_s))
        env.process(life(number))
