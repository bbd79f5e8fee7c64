"""How a request went, and where one is that may still be cancelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import simpy

from costmodel.request import RequestPlan
from simulator.engine import Ask, Engine
from simulator.parts import NO_COST, Cost, Part


class Answer(NamedTuple):
    """How a request went: `parts` may be left out where nobody asks for details; `cost` and `queue_s` are of all."""

    plan: RequestPlan
    parts: tuple[Part, ...]
    cost: Cost
    queue_s: float
    emitted_tokens: int
    n_preemptions: int = 0


NOT_SENT = Answer(RequestPlan(0, (), 0, ()), (), NO_COST, 0.0, 0)
"""A request that was cancelled before it reached anybody."""


@dataclass(slots=True, eq=False)
class Call:
    """Where a request that may be cancelled is: the process that sends it, and its place in an engine once there."""

    process: simpy.Process | None = None
    engine: Engine | None = None
    asked: Ask | None = None
