"""What is known of one simulated trajectory: the row it becomes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from costmodel.cost import COLUMNS, TRAFFIC
from costmodel.protocol import Role
from simulator.parts import NO_COST, Cost

_TRAFFIC = [COLUMNS.index(name) for name in TRAFFIC]


@dataclass(slots=True)
class Record:
    """What is known of one trajectory; costs and counts are of the rounds that ended."""

    number: int
    task: str
    counted: bool
    arrival_s: float
    status: str = "unfinished"
    reason: str = ""
    finish_s: float = math.nan
    n_steps: int = 0
    n_rounds: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_reviews: int = 0
    n_repairs: int = 0
    n_preemptions: int = 0
    queue_s: float = 0.0
    user_s: float = 0.0
    output_tokens: dict[Role, int] = field(default_factory=lambda: dict.fromkeys(Role, 0))
    cost: Cost = NO_COST
    wasted_output_tokens: int = 0
    wasted_tool_calls: int = 0
    wasted_energy_j: float = 0.0
    wasted_busy_s: float = 0.0
    wasted_usd: float = 0.0

    def row(self) -> tuple[Any, ...]:
        """A row of the frame `trajectories`."""
        return (
            self.number,
            self.task,
            self.status,
            self.reason,
            self.counted,
            self.arrival_s,
            self.finish_s,
            self.finish_s - self.arrival_s - self.user_s,
            self.queue_s,
            self.n_steps,
            self.n_rounds,
            self.n_drafted,
            self.n_accepted,
            self.n_reviews,
            self.n_repairs,
            self.n_preemptions,
            self.output_tokens[Role.WEAK],
            self.output_tokens[Role.STRONG],
            self.wasted_output_tokens,
            self.wasted_tool_calls,
            self.wasted_energy_j,
            self.wasted_busy_s,
            self.wasted_usd,
            sum([self.cost[i] for i in _TRAFFIC]),
            *self.cost,
        )
