"""Time on idle engines when several things go on at once: a small calendar of what is running and when it ends.

Times are numbers, or arrays with one entry per sample of the factors. Each model serves one request at a time here; a
cancelled one leaves its engine at the end of the iteration in progress, and what comes next waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from costmodel.ledger import Row, Shape, Share, work_shares
from costmodel.protocol import Role
from costmodel.request import RequestPlan
from costmodel.session import EngineRequest, Work
from costmodel.spans import run_sum

Num = Any
"""A float, or an array (n_samples,)."""

_BEFORE = ("host_request", "host_token")


class Running(NamedTuple):
    """A work under way: when it began and will end, and how long it waits for its engine."""

    work: Work
    plan: RequestPlan | None
    start_s: Num
    end_s: Num
    queue_s: Num


class Consumed(NamedTuple):
    """What a cancelled request has consumed: prefill passes and decode steps (or API tokens) begun by then."""

    passes: Num
    decoded: Num


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds of works, from the seconds of one unit of a row; `known` remembers those of whole works."""

    unit_s: Callable[[Row], Num]
    shapes: Any
    known: dict[tuple[Work, RequestPlan | None], Num] = field(default_factory=dict)

    def shape(self, work: Work) -> Shape | None:
        """How a work's role is priced; None for tools."""
        found: Shape | None = self.shapes[work.role] if isinstance(work, EngineRequest) else None
        return found

    def shares(self, work: Work, plan: RequestPlan | None) -> tuple[Share, ...]:
        """Rows of a work, by phase."""
        return work_shares(work, plan, self.shape(work), wasted=False)

    def seconds(self, work: Work, plan: RequestPlan | None) -> Num:
        """How long a work takes with its engine to itself."""
        found = self.known.get((work, plan))
        if found is None:
            found = self.known[work, plan] = sum((self.unit_s(s.row) * s.count for s in self.shares(work, plan)), 0.0)
        return found

    def until_queue_s(self, work: EngineRequest) -> Num:
        """From sending a request to the engine's queue: the way there and the host."""
        role, shape = work.role, self.shapes[work.role]
        there = 0.0
        if shape.has_link:
            there = self.unit_s(Row("link_round_trip", role)) / 2.0
            there = there + self.unit_s(Row("link_token", role)) * work.prompt_tokens
        host_request, host_token = (self.unit_s(Row(kind, role)) for kind in _BEFORE)
        return there + host_request + host_token * work.prompt_tokens

    def consumed(self, job: Running, now_s: Num) -> tuple[Consumed, Num]:
        """What a request cancelled now has consumed, and when its engine is free: iterations begun run to their end."""
        work, plan = job.work, job.plan
        assert isinstance(work, EngineRequest)
        assert plan is not None
        role, shape = work.role, self.shapes[work.role]
        if shape.is_api:
            took_s = now_s - job.start_s - self.unit_s(Row("api_request", role))
            tokens = np.minimum(api_tokens(took_s, self.unit_s(Row("api_output_token", role))), work.output_tokens)
            return Consumed(len(plan.passes), tokens.astype(int)), now_s
        at_s = np.asarray(job.start_s + job.queue_s + self.until_queue_s(work) + 0.0 * now_s)
        free_s, n_passes = at_s, np.zeros(np.shape(at_s), dtype=int)
        for p in plan.passes:
            begun = at_s < now_s
            at_s = at_s + self.unit_s(Row("prefill", role, p.new_tokens, p.context_tokens, int(p.emits)))
            n_passes = n_passes + begun
            free_s = np.where(begun, at_s, free_s)
        steps = np.arange(plan.decode_passes)
        spent_s = self._decode_s(work, shape, steps)
        begun = at_s[..., None] + spent_s < np.asarray(now_s)[..., None]
        n_steps = begun.sum(axis=-1)
        ended_s = at_s + np.asarray(self._decode_s(work, shape, n_steps, paired=True))
        return Consumed(n_passes, n_steps), np.where(n_steps > 0, ended_s, free_s)

    def _decode_s(self, work: EngineRequest, shape: Shape, n: Any, *, paired: bool = False) -> Any:
        """Seconds of the first n decode steps: every n for every sample, or one n per sample."""

        def per_sample(row: Row) -> Any:
            x = np.asarray(self.unit_s(row))
            return x if paired else x[..., None]

        n = np.asarray(n)
        total = per_sample(Row("decode_step", work.role)) * n
        for w in shape.windows:
            prompt = float(work.prompt_tokens)
            seen = np.asarray(run_sum(prompt, n.astype(float), w, shape.pass_tokens, shape.tokens_per_pass))
            total = total + per_sample(Row("decode_context", work.role, w)) * seen
        return total


def api_tokens(took_s: Num, token_s: Num) -> Any:
    """Tokens that an API had begun after `took_s` of answering: ceil(took / per token), none before the first."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(took_s) > 0, np.ceil(np.nan_to_num(np.divide(took_s, token_s), posinf=1e18)), 0.0)


def cut_shares(
    work: EngineRequest, plan: RequestPlan, shape: Shape, passes: int, decoded: int
) -> tuple[tuple[Share, ...], int]:
    """Rows of what a cancelled request has consumed, as waste, and the output tokens that came."""
    if shape.is_api:
        emitted = decoded
    else:
        came = 1 + int(decoded * shape.tokens_per_pass)
        emitted = min(work.output_tokens, came) if passes == len(plan.passes) else 0
    part = RequestPlan(plan.cached_tokens, plan.passes[:passes], decoded, ())
    return work_shares(work._replace(output_tokens=emitted), part, shape, wasted=True), emitted


class Clock:
    """What is running on idle engines, and what time it is."""

    def __init__(self, rates: Rates, now_s: Num = 0.0, free_s: dict[Role, Num] | None = None) -> None:
        self.rates = rates
        self.now_s = now_s
        self.running: dict[int, Running] = {}
        self.free_s = dict(free_s or {})

    def copy(self) -> Clock:
        """The same moment, to go on from in another way."""
        other = Clock(self.rates, self.now_s, self.free_s)
        other.running = dict(self.running)
        return other

    def begin(self, number: int, work: Work, plan: RequestPlan | None) -> Running:
        """Begin a work now.

        Raises
        ------
        ValueError
            Its model is still busy with another request: two at once share an engine, which only a simulation knows.
        """
        queue_s: Num = 0.0
        if isinstance(work, EngineRequest):
            if any(isinstance(j.work, EngineRequest) and j.work.role is work.role for j in self.running.values()):
                raise ValueError(f"two requests to the {work.role} model at once: simulate them")
            if work.role in self.free_s:
                ready_s = self.now_s + self.rates.until_queue_s(work)
                queue_s = np.maximum(0.0, self.free_s[work.role] - ready_s)
        end_s = self.now_s + queue_s + self.rates.seconds(work, plan)
        job = self.running[number] = Running(work, plan, self.now_s, end_s, queue_s)
        return job

    def end(self, number: int) -> Running:
        """Go on to the end of a work, if it has not ended yet."""
        job = self.running.pop(number)
        self.now_s = np.maximum(self.now_s, job.end_s)
        return job

    def halt(self, number: int) -> tuple[Running, Consumed]:
        """Give a work up now; a tool is just left alone, and a request that has ended has consumed all."""
        job = self.running.pop(number)
        if not isinstance(job.work, EngineRequest):
            return job, Consumed(0, 0)
        found, free_s = self.rates.consumed(job, self.now_s)
        if not self.rates.shapes[job.work.role].is_api:
            self.free_s[job.work.role] = free_s
        return job, found
