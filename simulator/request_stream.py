"""Independent requests on replicas of one deployment: closed loop, a rate, or recorded arrivals; no agents.

`stream` plays the requests and returns a `StreamResult`: one entry per request in order. With a `concurrency` that many
clients take the next request each; without, every request comes at its `arrival_s` (see `at_rate` for drawn ones).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import simpy

from hwprofiles.errors import InputError, unknown_name
from simulator.arrivals import HASH_BLOCK_TOKENS, TraceRequest
from simulator.engine import Engine
from simulator.hash_ledger import HashLedger
from simulator.jobs import EngineCost, EngineJob, JobResult
from simulator.stream_result import Array, StreamResult

ROUTERS = ("round_robin", "least_loaded", "prefix_affinity")
"""Next in turn; fewest requests under way; the replica that was sent the longest prefix of the request, if that is long
enough and the replica not piled up, else the one with the fewest."""

LEAST_SHARE, MOST_EXCESS, MOST_RATIO = 0.3, 8, 1.5
"""Prefix affinity needs this share of the prompt, and at most so many requests and times more than the least loaded
replica has (assumed)."""


def at_rate(
    requests: Sequence[TraceRequest], rate_per_s: float, rng: np.random.Generator | None = None
) -> list[TraceRequest]:
    """The requests with new arrival times: Poisson with `rng`, else one every `1 / rate_per_s` seconds.

    Raises
    ------
    InputError
        A rate that is not finite and > 0.
    """
    if not (math.isfinite(rate_per_s) and rate_per_s > 0):
        raise InputError(f"the rate must be finite and > 0 per second, got {rate_per_s}")
    n = len(requests)
    gaps = np.full(n, 1.0 / rate_per_s) if rng is None else rng.exponential(1.0 / rate_per_s, n)
    times = (np.cumsum(gaps) - gaps[0]).tolist() if n else []
    return [replace(request, arrival_s=at) for request, at in zip(requests, times, strict=True)]


def stream(
    requests: Sequence[TraceRequest],
    cost: EngineCost,
    *,
    concurrency: int | None = None,
    replicas: int = 1,
    router: str = "least_loaded",
    shared_tokens: int = 0,
    reuse: bool = True,
    skip_ahead: bool = True,
) -> StreamResult:
    """Play requests on `replicas` engines of one deployment until all are answered.

    Parameters
    ----------
    requests : sequence of TraceRequest
        In order of arrival.
    cost : EngineCost
        Price of an iteration and limits of one replica.
    concurrency : int or None
        Clients that send their next request when the last one is answered; arrival times are then not used.
    router : str
        One of `ROUTERS`.
    shared_tokens : int
        Leading tokens that all prompts have in common and every replica holds from the start; not with `prefix_ids`.
    reuse : bool
        Whether requests find each other's prompt blocks (`prefix_ids`) in the KV cache.

    Raises
    ------
    InputError
        No request, a count below 1, an unknown router, requests out of order, or one that can never fit.

    Limits
    ------
    Generated tokens are not found by later requests: a trace does not name their blocks. Models with a recurrent state
    reuse nothing, since the state is saved elsewhere than at block ends.
    """
    if not requests:
        raise InputError("there is no request to play")
    if replicas < 1 or (concurrency is not None and concurrency < 1):
        raise InputError(f"replicas and concurrency must be >= 1, got {replicas} and {concurrency}")
    if router not in ROUTERS:
        raise unknown_name("router", router, ROUTERS)
    env = simpy.Environment()
    reuse = reuse and not cost.rule.state_aligned and any(request.prefix_ids for request in requests)
    if reuse and shared_tokens:
        raise InputError("shared_tokens and prefix_ids both say what prompts share: give one of them")
    engines = [
        Engine(env, cost, skip_ahead=skip_ahead, ledger=HashLedger(cost.kv_tokens, HASH_BLOCK_TOKENS))
        if reuse
        else Engine(env, cost, shared_tokens=shared_tokens, skip_ahead=skip_ahead)
        for _ in range(replicas)
    ]
    play = _Play(env, requests, engines, _ROUTES[router](engines, requests), None if reuse else shared_tokens)
    env.process(play.arrivals()) if concurrency is None else play.clients(concurrency)
    env.run(play.done)
    return play.result()


class _Play:
    """The requests under way and what came of them."""

    def __init__(
        self,
        env: simpy.Environment,
        requests: Sequence[TraceRequest],
        engines: Sequence[Engine],
        route: Callable[[int], int],
        shared_tokens: int | None,
    ) -> None:
        self.env = env
        self.requests = requests
        self.engines = engines
        self.done = env.event()
        self._route = route
        self._shared_tokens = shared_tokens
        self._left = len(requests)
        self._found: list[JobResult | None] = [None] * len(requests)
        self._replica = np.zeros(len(requests), dtype=np.int64)

    def arrivals(self) -> Generator[simpy.Event, object, None]:
        """Send every request at its time."""
        for i, request in enumerate(self.requests):
            wait_s = request.arrival_s - self.env.now
            if wait_s < 0:
                raise InputError(f"request {i} arrives {-wait_s:g} s before the one above it: sort them")
            if wait_s > 0:
                yield self.env.timeout(wait_s)
            self._send(i)

    def clients(self, concurrency: int) -> None:
        """Let each client send its first request; each takes the next one when it is answered."""
        following = iter(range(len(self.requests)))

        def take() -> None:
            i = next(following, None)
            if i is not None:
                self._send(i, take)

        for _ in range(min(concurrency, len(self.requests))):
            take()

    def _send(self, i: int, then: Callable[[], None] | None = None) -> None:
        request = self.requests[i]
        chosen = self._route(i)
        self._replica[i] = chosen
        if self._shared_tokens is None:
            full_blocks = request.prefix_ids[: request.prompt_tokens // HASH_BLOCK_TOKENS]
            job = EngineJob(full_blocks, request.prompt_tokens, request.prompt_tokens, request.output_tokens)
        else:
            job = EngineJob(i, request.prompt_tokens, self._shared_tokens, request.output_tokens)

        def answered(event: simpy.Event) -> None:
            self._found[i] = event.value
            self._left -= 1
            if then is not None:
                then()
            if not self._left:
                self.done.succeed()

        self.engines[chosen].submit(job).callbacks.append(answered)

    def result(self) -> StreamResult:
        """All answers as arrays."""
        found = [one for one in self._found if one is not None]

        def column(name: str) -> Array:
            return np.array([getattr(one, name) for one in found], dtype=float)

        return StreamResult(
            submit_s=column("submit_s"),
            start_s=column("start_s"),
            first_token_s=column("first_token_s"),
            finish_s=column("finish_s"),
            prompt_tokens=np.array([r.prompt_tokens for r in self.requests], dtype=np.int64),
            output_tokens=np.array([r.output_tokens for r in self.requests], dtype=np.int64),
            cached_tokens=column("cached_tokens").astype(np.int64),
            replica=self._replica,
            n_preemptions=column("n_preemptions").astype(np.int64),
            busy_s=np.array([engine.busy_s for engine in self.engines]),
        )


def _round_robin(engines: Sequence[Engine], requests: Sequence[TraceRequest]) -> Callable[[int], int]:
    return lambda i: i % len(engines)


def _least_loaded(engines: Sequence[Engine], requests: Sequence[TraceRequest]) -> Callable[[int], int]:
    def choose(i: int) -> int:
        load = [engine.n_outstanding for engine in engines]
        return load.index(min(load))

    return choose


def _prefix_affinity(engines: Sequence[Engine], requests: Sequence[TraceRequest]) -> Callable[[int], int]:
    """The router remembers who was sent which block; it does not see evictions."""
    sent: list[set[int]] = [set() for _ in engines]

    def choose(i: int) -> int:
        ids = requests[i].prefix_ids
        load = [engine.n_outstanding for engine in engines]
        depth = [_leading(ids, seen) for seen in sent]
        chosen = min(range(len(engines)), key=lambda r: (-depth[r], load[r]))
        least = min(load)
        piled_up = load[chosen] - least > MOST_EXCESS and load[chosen] > MOST_RATIO * least
        if piled_up or depth[chosen] < LEAST_SHARE * len(ids):
            chosen = load.index(least)
        sent[chosen].update(ids)
        return chosen

    return choose


def _leading(ids: Sequence[int], seen: set[int]) -> int:
    n = 0
    for one in ids:
        if one not in seen:
            break
        n += 1
    return n


_ROUTES: Mapping[str, Callable[[Sequence[Engine], Sequence[TraceRequest]], Callable[[int], int]]] = {
    "round_robin": _round_robin,
    "least_loaded": _least_loaded,
    "prefix_affinity": _prefix_affinity,
}
