"""Plays trajectories on real engines with their token counts forced: timing is measured, behaviour is held fixed.

The strategy plays the round driver of the cost model (`costmodel.rounds`) on the scenario's tasks; verdicts, order and
coins are those of the simulation of the same seed. Every request goes out with exactly as many prompt tokens as the
model says, behind exactly as long a prefix as that role has computed, and is answered with exactly as many tokens, the
end of the sequence ignored. Tools take their stated time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from costmodel.deployment import Deployment
from costmodel.pricing import Pricing
from costmodel.protocol import Role
from costmodel.task import Task
from hwprofiles.errors import InputError
from simulator.agents import drawn_verdicts
from simulator.case import Case
from simulator.load import Demand, streams, task_order
from simulator.playing import match_of, playing
from simulator.results import SCHEMA, RunResult, build
from simulator.run import acceptance_shift
from simulator.scenario_file import to_document
from validate.calibrate_probe import Timed
from validate.replay_life import Life, Words, token_ids


class Lane(Protocol):
    """A server of one role, on the run's clock."""

    def now_s(self) -> float:
        """Seconds on the run's clock."""

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""

    async def together(self, prompts: list[list[int]], output_tokens: int) -> list[Timed]:
        """Send prompts at once, each to be answered with so many tokens."""


@dataclass(slots=True)
class Rows:
    """Rows of the frames that a replay fills."""

    trajectories: list[dict[str, Any]] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    phases: list[dict[str, Any]] = field(default_factory=list)


class Replay:
    """One strategy of a case, played on two lanes by `agents` agents at once.

    Parameters
    ----------
    lanes : mapping Role -> Lane
        On one clock.
    agents : int
        Each plays the next trajectory when its last one has ended.
    shift : float or None
        As in `simulator.run.simulate`.
    salt : str
        Makes the prompts differ from those of other runs on the same servers.

    Raises
    ------
    InputError
        The scenario has an API on a side, or tools or users with a law of their own, for which no time is stated.

    Limits
    ------
    Where a server does not tell the tokens that it generates, later prompts hold others in their place, and a prefix is
    found again up to the end of the last prompt only.
    """

    def __init__(
        self,
        case: Case,
        strategy: str,
        lanes: Mapping[Role, Lane],
        agents: int = 1,
        *,
        shift: float | None = None,
        salt: str = "",
    ) -> None:
        if case.tools is not None or case.gaps is not None:
            raise InputError(
                "a replay plays tools for the time that each step states; take [tools] laws and [users] out"
            )
        if any(case.side(role).api for role in Role):
            raise InputError(
                "a replay forces token counts, which a priced API does not let it; both sides need servers"
            )
        if agents < 1:
            raise InputError(f"agents must be >= 1, got {agents}")
        self.case, self.name, self.lanes, self.agents = case, strategy, lanes, agents
        self.how = playing(case.scenario, strategy)
        self.pricing = Pricing(case.sites)
        self.seed = case.scenario.run.seed
        used = acceptance_shift(case, self.pricing) if shift is None else shift
        self.verdicts = drawn_verdicts(case.law, used, self.seed, match_of(case.scenario).value)
        ids = {
            role: token_ids(server.model.vocab)
            for role in Role
            if isinstance(server := case.sites[role].server, Deployment)
        }
        self.words = Words(ids, f"{salt}/{strategy}")
        self.rows = Rows()
        self.clock = lanes[Role.STRONG]

    async def run(self, n_trajectories: int) -> RunResult:
        """Play until `n_trajectories` that count have ended: as in a simulation, others come before and behind them.

        Raises
        ------
        EngineError
            A server fails.
        """
        self.demand = Demand(n_trajectories=n_trajectories, concurrency=self.agents)
        self.left = n_trajectories
        jobs = self._jobs()
        shared = self.case.tasks[0].shared_tokens
        if shared:
            await asyncio.gather(
                *(lane.together([self.words.shared(role, shared)], 1) for role, lane in self.lanes.items())
            )
        begun_s = self.clock.now_s()
        await asyncio.gather(*(self._agent(jobs, begun_s) for _ in range(self.agents)))
        meta = {
            "kind": "measured",
            "strategy": self.name,
            "seed": self.seed,
            "engines": [],
            "load": {"kind": "closed", "concurrency": self.agents, "arrival_rate_per_s": None},
            "scenario": to_document(self.case.scenario),
            "end_s": self.clock.now_s() - begun_s,
        }
        rows = {
            name: [_tuple(name, r) for r in getattr(self.rows, name)] for name in ("trajectories", "requests", "phases")
        }
        return build(meta, rows)

    def _jobs(self) -> Iterator[tuple[int, Task]]:
        order = task_order(len(self.case.tasks), streams(self.seed, "order", "arrivals")["order"])
        for number in count():
            if not self.left:
                return
            yield number, self.case.tasks[next(order)]

    async def _agent(self, jobs: Iterator[tuple[int, Task]], begun_s: float) -> None:
        for number, task in jobs:
            counted = self.demand.counts(number)
            await Life(self, number, task, begun_s, counted=counted).live()
            self.left -= counted


def _tuple(frame: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    missing = {"float64": math.nan, "string": "", "int64": 0, "bool": False}
    return tuple(row.get(name, missing[column.dtype]) for name, column in SCHEMA[frame].items())
