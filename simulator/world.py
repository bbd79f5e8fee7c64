"""What a trajectory meets outside the engines: tools that take their time, and users that think before they answer.

`World` belongs to a run, `Visit` to one trajectory. Random numbers are keyed by (seed, trajectory, step): a step's tool
takes the same time whichever strategy runs it, and whenever.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np
import simpy

from costmodel.session import ToolRun
from simulator.parts import Part, wall_cost
from simulator.tools import Gaps, Rule, Timed, ToolTable

TOOL_STREAM, USER_STREAM = 1, 2
"""First spawn keys of the streams; 0 belongs to the verdicts."""


class Ended(Exception):
    """A trajectory cannot go on; the message says why."""


def keyed(seed: int, *key: int) -> np.random.Generator:
    """The stream of one thing (a step's tool, a request's link), whatever else is drawn."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


class World:
    """Tools and users of a run.

    Parameters
    ----------
    env : simpy.Environment
    seed : int
    tools : ToolTable or None
        None: every tool takes the time its step states.
    gaps : Gaps or None
        None: users answer at once.
    """

    def __init__(
        self, env: simpy.Environment, *, seed: int = 0, tools: ToolTable | None = None, gaps: Gaps | None = None
    ) -> None:
        self.env = env
        self.seed = seed
        self.tools = tools
        self.gaps = gaps
        self._slots: dict[str, simpy.Resource] = {}

    def visit(self, number: int, at: int) -> Visit:
        """The world as trajectory `number`, which lives task `at`, meets it."""
        return Visit(self, number, at)

    def slots(self, rule: Rule) -> simpy.Resource:
        """The slots that runs of a rule share."""
        if rule.name not in self._slots:
            self._slots[rule.name] = simpy.Resource(self.env, rule.concurrency or 1)
        return self._slots[rule.name]


class Visit:
    """One trajectory's tools and user."""

    __slots__ = ("_at", "_number", "_world")

    def __init__(self, world: World, number: int, at: int) -> None:
        self._world = world
        self._number = number
        self._at = at

    def user_s(self, step: int) -> float:
        """Seconds the user thinks before `step`."""
        gaps = self._world.gaps
        if gaps is None or not gaps.mean_s[self._at][step]:
            return 0.0
        u = float(keyed(self._world.seed, USER_STREAM, self._number, step).random())
        return gaps.mean_s[self._at][step] * gaps.law.quantile(u)

    def tool(self, work: ToolRun) -> Generator[simpy.Event, object, tuple[Part, ...]]:
        """Run a step's tools and wait for them; returns the parts of the time.

        Raises
        ------
        Ended
            A tool hangs and has no time-out.
        """
        world = self._world
        timed = None if world.tools is None else world.tools[self._at][work.step]
        if timed is None:
            if work.seconds > 0:
                yield world.env.timeout(work.seconds)
            return (Part("tools", "tool", wall_cost(work.seconds)),)
        return (yield from self._attempts(work, timed))

    def _attempts(self, work: ToolRun, timed: Timed) -> Generator[simpy.Event, object, tuple[Part, ...]]:
        world, (rule, mean_s) = self._world, timed
        drawn = keyed(world.seed, TOOL_STREAM, self._number, work.step).random(2 * (rule.retries + 1)).tolist()
        parts: list[Part] = []
        for wait_s, seconds, _ in rule.attempts(mean_s, drawn):
            if math.isinf(seconds):
                raise Ended(f"step {work.step}: {rule.name} hangs, and no timeout_s is set")
            if wait_s > 0:
                yield world.env.timeout(wait_s)
                parts.append(Part("tools", "tool", wall_cost(wait_s)))
            if rule.concurrency is None:
                if seconds > 0:
                    yield world.env.timeout(seconds)
            else:
                since_s = world.env.now
                with world.slots(rule).request() as slot:
                    yield slot
                    if world.env.now > since_s:
                        parts.append(Part("tools", "queue", wall_cost(world.env.now - since_s)))
                    yield world.env.timeout(seconds)
            parts.append(Part("tools", "tool", wall_cost(seconds)))
        return tuple(parts)
