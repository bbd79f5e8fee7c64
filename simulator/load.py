"""How trajectories come in: a fixed number of agents that each take the next one, Poisson arrivals, or recorded ones.

They go on until all *counted* trajectories have ended: a warm-up comes before them, and others behind them keep the
load up, so that the counted ones see neither an empty nor an emptying system.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import simpy

from hwprofiles.errors import InputError

Life = Callable[[int], Generator[simpy.Event, object, object]]
"""From the running number of a trajectory to its SimPy process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The load of a run: closed (`concurrency` agents), Poisson (`arrival_rate_per_s`) or recorded (`arrivals`).

    Exactly one of them. `n_trajectories` are counted; see `n_warmup` for those before them.

    Parameters
    ----------
    arrivals : tuple of (float, str or None) or None
        Seconds from the start, in order, and the session of each. An arrival of a session waits for the end of the one
        before it.
    """

    n_trajectories: int
    concurrency: int | None = None
    arrival_rate_per_s: float | None = None
    arrivals: tuple[tuple[float, str | None], ...] | None = None

    def __post_init__(self) -> None:
        rate = self.arrival_rate_per_s
        if sum(x is not None for x in (self.concurrency, rate, self.arrivals)) != 1:
            raise InputError("a load is a concurrency, an arrival rate or recorded arrivals: give exactly one")
        if self.n_trajectories < 1 or (self.concurrency is not None and self.concurrency < 1):
            raise InputError(f"trajectories and concurrency must be >= 1, got {self}")
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            raise InputError(f"arrival rate must be finite and > 0 per second, got {rate}")
        if self.arrivals is not None and len(self.arrivals) < self.n_warmup + self.n_trajectories:
            raise InputError(
                f"{len(self.arrivals)} recorded arrivals are fewer than {self.n_trajectories} counted trajectories and "
                f"{self.n_warmup} before them; lower load.n_trajectories"
            )

    @property
    def kind(self) -> str:
        """closed, poisson, recorded or recorded_sessions."""
        if self.arrivals is None:
            return "poisson" if self.concurrency is None else "closed"
        return "recorded" if all(session is None for _, session in self.arrivals) else "recorded_sessions"

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
        elif self.arrivals is not None:
            env.process(_recorded(env, numbers, life, self.arrivals))


def streams(seed: int, *names: str) -> dict[str, np.random.Generator]:
    """One independent random stream per name; a stream's draws do not depend on what the others draw."""
    if seed < 0:
        raise InputError(f"seed must be >= 0, got {seed}")
    children = np.random.SeedSequence(seed).spawn(len(names))
    return {name: np.random.default_rng(child) for name, child in zip(names, children, strict=True)}


COIN_STREAM = 6
"""First spawn key of routers' coins; 0 belongs to the verdicts."""


def uniforms(seed: int, number: int, n: int, stream: int = 0) -> list[float]:
    """`n` uniform numbers that belong to trajectory `number` whatever the strategy or load: common random numbers."""
    key = np.random.SeedSequence(seed, spawn_key=(stream, number))
    drawn: list[float] = np.random.default_rng(key).random(n).tolist()
    return drawn


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


def _recorded(
    env: simpy.Environment, numbers: Iterator[int], life: Life, arrivals: Sequence[tuple[float, str | None]]
) -> Generator[simpy.Event, object, None]:
    last: dict[str, simpy.Process] = {}
    for number, (at_s, session) in zip(numbers, arrivals, strict=False):
        if at_s > env.now:
            yield env.timeout(at_s - env.now)
        before = None if session is None else last.get(session)
        process = env.process(life(number) if before is None else _turn(env, life, number, before))
        if session is not None:
            last[session] = process


def _turn(
    env: simpy.Environment, life: Life, number: int, before: simpy.Process
) -> Generator[simpy.Event, object, None]:
    yield before
    yield from life(number)
