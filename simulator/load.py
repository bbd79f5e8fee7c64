"""How trajectories come in: a fixed number of agents that each take the next one, or arrivals at random times.

Both take a *life*: a function from the running number of a trajectory to its SimPy process generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator

import numpy as np
import simpy

from hwprofiles.errors import InputError

Life = Callable[[int], Generator[simpy.Event, object, object]]


def streams(seed: int, *names: str) -> dict[str, np.random.Generator]:
    """One independent random stream per name; a stream's draws do not depend on what the others draw."""
    if seed < 0:
        raise InputError(f"seed must be >= 0, got {seed}")
    children = np.random.SeedSequence(seed).spawn(len(names))
    return {name: np.random.default_rng(child) for name, child in zip(names, children, strict=True)}


def shuffled_order(n_tasks: int, n_wanted: int, rng: np.random.Generator) -> list[int]:
    """Which task each of `n_wanted` trajectories lives: random permutations of all tasks, one after the other."""
    if n_tasks < 1 or n_wanted < 1:
        raise InputError(f"a load needs at least one task and one trajectory, got {n_tasks} and {n_wanted}")
    order: list[int] = []
    while len(order) < n_wanted:
        order += rng.permutation(n_tasks).tolist()
    return order[:n_wanted]


def poisson_gaps(rate_per_s: float, rng: np.random.Generator, n: int) -> Iterator[float]:
    """`n` exponential gaps of mean `1 / rate_per_s` between arrivals, the first counted from time 0."""
    if not (math.isfinite(rate_per_s) and rate_per_s > 0):
        raise InputError(f"arrival rate must be finite and > 0 per second, got {rate_per_s}")
    return iter(rng.exponential(1.0 / rate_per_s, n).tolist())


def closed_loop(env: simpy.Environment, n_agents: int, n_trajectories: int, life: Life) -> simpy.Event:
    """`n_agents` agents live trajectories 0 .. n - 1 in order, each taking the next as soon as its own has ended."""
    if n_agents < 1:
        raise InputError(f"concurrency must be >= 1, got {n_agents}")
    numbers = iter(range(n_trajectories))

    def agent() -> Generator[simpy.Event, object, None]:
        for number in numbers:
            yield env.process(life(number))

    return env.all_of([env.process(agent()) for _ in range(min(n_agents, n_trajectories))])


def open_loop(env: simpy.Environment, gaps_s: Iterator[float], life: Life) -> simpy.Event:
    """Trajectories start one `gap` after another whatever has become of those before."""

    def source() -> Generator[simpy.Event, object, None]:
        lives = []
        for number, gap_s in enumerate(gaps_s):
            yield env.timeout(gap_s)
            lives.append(env.process(life(number)))
        yield env.all_of(lives)

    return env.process(source())
