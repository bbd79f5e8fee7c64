"""Who answers a trajectory's requests: engine replicas per role, or a priced API, behind a link where there is one.

`Fleet.ask` is a process that takes a request's time and returns its `Answer`: the plan that was followed and the parts
of the wall time with their cost, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import simpy

from costmodel.clock import api_tokens
from costmodel.ledger import Row, request_shares
from costmodel.pricing import WALL, Pricing
from costmodel.protocol import Role
from costmodel.request import RequestPlan, decode_passes
from costmodel.session import EngineRequest
from simulator.answers import NOT_SENT, Answer, Call
from simulator.api_limits import Gate, LimitRules
from simulator.engine import Engine
from simulator.engine_parts import engine_cost, engine_parts, request_row
from simulator.jobs import EngineJob, JobResult, LogEntry
from simulator.links import Link, LinkRules
from simulator.parts import Cost, Part, total, wall_cost
from simulator.routing import Router, RouteRule
from simulator.shared_device import share_devices

_Log = Callable[[LogEntry], object]
_KINDS = ("write", "draft", "verify", "repair")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRules:
    """How requests reach the engines and APIs of each role; the defaults are nothing but mean times.

    Parameters
    ----------
    routes : mapping Role -> RouteRule
    limits : mapping Role -> LimitRules
    cache_ttl_s : mapping Role -> float
        Seconds unused after which an API forgets a trajectory's prefix.
    link : LinkRules or None
    share_devices : bool
        Replica i of both models stands on the same devices.
    """

    routes: Mapping[Role, RouteRule] = field(default_factory=dict)
    limits: Mapping[Role, LimitRules] = field(default_factory=dict)
    cache_ttl_s: Mapping[Role, float] = field(default_factory=dict)
    link: LinkRules | None = None
    share_devices: bool = False


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
    log : callable or None
        Is given a row of the frame `engine` per iteration or run of iterations.
    requests : callable or None
        Is given a row of the frame `requests` per answer of an engine.
    rules : FleetRules
        Without any, a trajectory stays with the replica that had the fewest trajectories when it began, and APIs have
        no rate limit and always find what they cached.
    seed : int
        Of the jitter, the outages and the pauses after a refusal.
    details : bool
        False leaves the parts of what engines did out of the answers.
    """

    def __init__(
        self,
        env: simpy.Environment,
        pricing: Pricing,
        *,
        replicas: Mapping[Role, int],
        shared_tokens: int = 0,
        skip_ahead: bool = True,
        log: Callable[[tuple[Any, ...]], object] | None = None,
        requests: Callable[[tuple[Any, ...]], object] | None = None,
        rules: FleetRules | None = None,
        seed: int = 0,
        details: bool = True,
    ) -> None:
        rules = FleetRules() if rules is None else rules
        self.env = env
        self.pricing = pricing
        self.engines = {
            role: tuple(
                Engine(env, model, shared_tokens=shared_tokens, skip_ahead=skip_ahead, log=_logged(log, role, i))
                for i in range(replicas.get(role, 1))
            )
            for role, model in pricing.models.items()
        }
        if rules.share_devices:
            share_devices(zip(*self.engines.values(), strict=True))
        self._routers = {
            role: Router(engines, rules.routes.get(role, RouteRule()), shared_tokens)
            for role, engines in self.engines.items()
        }
        self._gates = {role: Gate(env, limits, seed, role.value) for role, limits in rules.limits.items()}
        self._requests = requests
        self._details = details
        self._linked = frozenset(role for role, shape in pricing.shapes.items() if shape.has_link)
        self._shared_tokens = shared_tokens
        self._cache_ttl_s = rules.cache_ttl_s
        self._last_used_s: dict[tuple[Role, int], float] = {}
        self._link = None if rules.link is None else Link(env, rules.link, seed)

    def seat(self) -> dict[Role, int]:
        """The replica of each role that a new trajectory will use, unless one is chosen per request."""
        return {role: router.seat() for role, router in self._routers.items()}

    def leave(self, seats: Mapping[Role, int]) -> None:
        """A trajectory has ended; its cached prefixes stay until they are evicted."""
        for role, replica in seats.items():
            self._routers[role].leave(replica)

    def ask(
        self, request: EngineRequest, key: int, seats: Mapping[Role, int], call: Call | None = None
    ) -> Generator[simpy.Event, object, Answer]:
        """Send a request of trajectory `key` and wait for the answer; `call` lets it be cancelled.

        What a cancelled one has consumed comes as its answer: the engine iterations that had begun; of an API, the
        prompt and the tokens that had begun.

        Raises
        ------
        InputError
            When the request can never fit its engine, or pass its API's rate limit.
        Ended
            When the link or the API gave out for good.
        """
        if call is not None:
            call.process = self.env.active_process
        role, prompt, output = request.role, request.prompt_tokens, request.output_tokens
        engines = self.engines.get(role)
        if engines is None:
            return (yield from self._ask_api(request, key))
        before = after = None
        if role in self._linked:
            there, after = self._ways(request, key)
            try:
                before = yield from self._cross(role, there)
            except simpy.Interrupt:
                return NOT_SENT
        replica, reusable = self._routers[role].pick(key, seats[role], request.reusable_tokens, prompt + output)
        engine = engines[replica]
        asked = engine.submit(EngineJob(key, prompt, reusable, output))
        if call is not None:
            call.engine, call.asked = engine, asked
        result = cast(JobResult, (yield asked))
        if self._requests is not None:
            self._requests(request_row(key, request, replica, result))
        cost, queue_s = engine_cost(result)
        parts = engine_parts(request, result) if self._details else []
        if before is not None:
            parts.insert(0, before)
            cost += before.cost
        if after is not None and not result.cancelled:
            back = yield from self._cross(role, after)
            parts.append(back)
            cost += back.cost
        n_decode = decode_passes(engine.cost.rule, output)
        plan = RequestPlan(result.cached_tokens, result.passes, n_decode, result.saved_tokens)
        return Answer(plan, tuple(parts), cost, queue_s, result.emitted_tokens, result.n_preemptions)

    def cancel(self, call: Call) -> None:
        """Give up a request that `ask` has not answered; one that is on its way back goes on."""
        if call.engine is not None and call.asked is not None:
            call.engine.cancel(call.asked)
        elif call.process is not None:
            call.process.interrupt()

    def _ask_api(self, request: EngineRequest, key: int) -> Generator[simpy.Event, object, Answer]:
        role = request.role
        lead: list[Part] = []
        try:
            if role in self._gates:
                queued_s = yield from self._gates[role].enter(request.prompt_tokens + request.output_tokens)
                lead.append(Part(role.value, "queue", wall_cost(queued_s)))
            lead += yield from self._outage(role)
        except simpy.Interrupt:
            return NOT_SENT
        if self._forgotten(role, key):
            request = request._replace(reusable_tokens=min(request.reusable_tokens, self._shared_tokens))
        plan = self.pricing.plan(request)
        shares = request_shares(request, plan, self.pricing.shapes[role])
        parts = [
            Part(
                "network" if s.phase == "network" else role.value,
                s.phase,
                Cost((self.pricing.row(s.row) * s.count).tolist()),
            )
            for s in shares
        ]
        if self._link is not None and self.pricing.shapes[role].has_link:
            parts.append(Part("network", "network", wall_cost(sum(self._link.jitter_s(*_of(request, key))))))
        since_s = self.env.now
        try:
            yield self.env.timeout(float(sum(p.cost[WALL] for p in parts)))
            tail = yield from self._outage(role)
        except simpy.Interrupt:
            return self._given_up(request, plan, lead, self.env.now - since_s)
        self._last_used_s[role, key] = self.env.now
        whole = (*lead, *parts, *tail)
        return Answer(plan, whole, *total(whole), request.output_tokens)

    def _given_up(self, request: EngineRequest, plan: RequestPlan, lead: list[Part], spent_s: float) -> Answer:
        """What an API bills for a request cancelled after `spent_s`."""
        role = request.role
        per_token_s = float(self.pricing.row(Row("api_output_token", role))[WALL])
        tokens = api_tokens(spent_s - float(self.pricing.row(Row("api_request", role))[WALL]), per_token_s)
        emitted = int(min(tokens, request.output_tokens))
        shares = request_shares(request._replace(output_tokens=emitted), plan, self.pricing.shapes[role])
        parts = [Part(role.value, s.phase, Cost((self.pricing.row(s.row) * s.count).tolist())) for s in shares]
        whole = (*lead, *parts)
        return Answer(plan, whole, *total(whole), emitted)

    def _forgotten(self, role: Role, key: int) -> bool:
        """Whether an API has dropped the trajectory's prefix since its last answer."""
        life_s = self._cache_ttl_s.get(role)
        last_s = self._last_used_s.get((role, key), self.env.now)
        return life_s is not None and self.env.now - last_s > life_s

    def _outage(self, role: Role) -> Generator[simpy.Event, object, list[Part]]:
        """Wait for a link that is down; no part where it is up."""
        if self._link is None or not self.pricing.shapes[role].has_link:
            return []
        waited_s = yield from self._link.wait()
        return [Part("network", "network", wall_cost(waited_s))] if waited_s > 0 else []

    def _cross(self, role: Role, part: Part) -> Generator[simpy.Event, object, Part]:
        """Send something over the link; the part with the time that it took in the end."""
        cost = part.cost
        for held in (yield from self._outage(role)):
            cost = cost + held.cost
        yield self.env.timeout(float(part.cost[WALL]))
        return part._replace(cost=cost)

    def _ways(self, request: EngineRequest, key: int) -> tuple[Part, Part]:
        """The way there and the way back: half a round trip each, prompt and output over the bandwidth, jitter."""
        half = Cost((self.pricing.row(Row("link_round_trip", request.role)) / 2.0).tolist())
        token = Cost(self.pricing.row(Row("link_token", request.role)).tolist())
        there, back = half + token * request.prompt_tokens, half + token * request.output_tokens
        if self._link is not None:
            more_s = self._link.jitter_s(*_of(request, key))
            there, back = there + wall_cost(more_s[0]), back + wall_cost(more_s[1])
        return Part("network", "network", there), Part("network", "network", back)


def _logged(log: Callable[[tuple[Any, ...]], object] | None, role: Role, replica: int) -> _Log | None:
    """What an engine tells its iterations, to become rows of the frame `engine`."""
    return None if log is None else lambda entry: log((role.value, replica, *entry))


def _of(request: EngineRequest, key: int) -> tuple[int, int, int]:
    """What a request's own random numbers belong to: trajectory, step, kind; alike for every strategy."""
    return key, request.step, _KINDS.index(request.kind)
