"""Who answers a trajectory's requests: engine replicas per role, or a priced API, behind a link where there is one.

`Fleet.ask` is a process that takes a request's time and returns its `Answer`: the plan that was followed and the parts
of the wall time with their cost, in order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import simpy
from numpy.typing import NDArray

from costmodel.cost import COLUMNS
from costmodel.ledger import Row, phase_tokens, request_shares
from costmodel.pricing import WALL, Pricing
from costmodel.protocol import Role
from costmodel.request import Pass, RequestPlan
from costmodel.session import EngineRequest
from simulator.engine import Engine
from simulator.jobs import EngineJob, JobResult

Cost = NDArray[np.float64]


class Part(NamedTuple):
    """A stretch of a request's wall time: its lane and phase, and its cost (len(COLUMNS),), `wall_s` included."""

    lane: str
    phase: str
    cost: Cost


@dataclass(frozen=True, slots=True)
class Answer:
    """How a request went."""

    plan: RequestPlan
    parts: tuple[Part, ...]
    n_preemptions: int = 0


class Fleet:
    """All engines of a run.

    Parameters
    ----------
    env : simpy.Environment
    pricing : Pricing
        With scalar factors; its step models price the engines, its rows links and APIs.
    replicas : mapping Role -> int
        Identical deployments of a role.
    shared_tokens : int
        Prefix that all tasks have in common and every engine holds.

    Limits
    ------
    A trajectory stays with the replica that had the fewest trajectories when it began, for the sake of its cached
    prefix. APIs have no rate limit and always find what they cached.
    """

    def __init__(
        self,
        env: simpy.Environment,
        pricing: Pricing,
        *,
        replicas: Mapping[Role, int],
        shared_tokens: int = 0,
        skip_ahead: bool = True,
        keep_log: bool = False,
    ) -> None:
        self.env = env
        self.pricing = pricing
        self.engines = {
            role: tuple(
                Engine(env, model, shared_tokens=shared_tokens, skip_ahead=skip_ahead, keep_log=keep_log)
                for _ in range(replicas.get(role, 1))
            )
            for role, model in pricing.models.items()
        }
        self._seated = {role: [0] * len(engines) for role, engines in self.engines.items()}

    def seat(self) -> dict[Role, int]:
        """The replica of each role that a new trajectory will use."""
        seats = {}
        for role, seated in self._seated.items():
            seats[role] = seated.index(min(seated))
            seated[seats[role]] += 1
        return seats

    def leave(self, seats: Mapping[Role, int]) -> None:
        """A trajectory has ended; its cached prefixes stay until they are evicted."""
        for role, replica in seats.items():
            self._seated[role][replica] -= 1

    def ask(
        self, request: EngineRequest, key: int, seats: Mapping[Role, int]
    ) -> Generator[simpy.Event, object, Answer]:
        """Send a request of trajectory `key` and wait for the answer.

        Raises
        ------
        InputError
            When the request can never fit its engine.
        """
        if request.role not in self.engines:
            return (yield from self._ask_api(request))
        before, after = self._link(request)
        if before is not None:
            yield self.env.timeout(float(before.cost[WALL]))
        job = EngineJob(key, request.prompt_tokens, request.reusable_tokens, request.output_tokens)
        result = cast(JobResult, (yield self.engines[request.role][seats[request.role]].submit(job)))
        if after is not None:
            yield self.env.timeout(float(after.cost[WALL]))
        parts = [p for p in (before, *_engine_parts(request, result), after) if p is not None]
        plan = RequestPlan(result.cached_tokens, result.passes, request.output_tokens - 1, result.saved_tokens)
        return Answer(plan, tuple(parts), result.n_preemptions)

    def _ask_api(self, request: EngineRequest) -> Generator[simpy.Event, object, Answer]:
        plan = self.pricing.plan(request)
        shares = request_shares(request, plan, self.pricing.shapes[request.role])
        parts = tuple(
            Part("network" if s.phase == "network" else request.role.value, s.phase, self.pricing.row(s.row) * s.count)
            for s in shares
        )
        yield self.env.timeout(float(sum(p.cost[WALL] for p in parts)))
        return Answer(plan, parts)

    def _link(self, request: EngineRequest) -> tuple[Part | None, Part | None]:
        """The way there and the way back: half a round trip each, prompt and output over the bandwidth."""
        if not self.pricing.shapes[request.role].has_link:
            return None, None
        half = self.pricing.row(Row("link_round_trip", request.role)) / 2.0
        token = self.pricing.row(Row("link_token", request.role))
        there, back = half + token * request.prompt_tokens, half + token * request.output_tokens
        return Part("network", "network", there), Part("network", "network", back)


def _engine_parts(request: EngineRequest, result: JobResult) -> Iterator[Part]:
    lane = request.role.value
    yield Part(lane, "host", wall_cost(result.host_s))
    yield Part(lane, "queue", wall_cost(result.queued_s + result.stalled_s))
    computed = 0
    for (part, share), seconds in zip(result.prefill, result.pass_s, strict=True):
        cost = np.concatenate([share, [0.0, seconds]])
        for phase, n in _pass_phases(request, part, computed):
            yield Part(lane, phase, cost * (n / part.new_tokens))
        computed = max(computed, part.context_tokens + part.new_tokens)
    if result.decode_s > 0:
        yield Part(lane, request.decode_phase, np.concatenate([result.decode, [0.0, result.decode_s]]))


def _pass_phases(request: EngineRequest, part: Pass, computed: int) -> Iterator[tuple[str, int]]:
    """Tokens of a pass by phase; positions below `computed`, and output before the last token, are recomputed."""
    start, end = part.context_tokens, part.context_tokens + part.new_tokens
    fresh = min(max(start, computed), end)
    prompt_end = max(fresh, min(end, request.prompt_tokens))
    decoded = int(part.emits and end > request.prompt_tokens)
    again = fresh - start + end - prompt_end - decoded
    if again > 0:
        yield "reprefill", again
    yield from phase_tokens(request, fresh, prompt_end)
    if decoded:
        yield request.decode_phase, decoded


def wall_cost(seconds: float) -> Cost:
    """The cost of time alone."""
    cost = np.zeros(len(COLUMNS))
    cost[WALL] = seconds
    return cost
