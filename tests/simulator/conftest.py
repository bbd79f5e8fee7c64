"""A small cost model whose every number can be checked by hand, and a driver that runs jobs through one engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import pytest
import simpy

from costmodel.cost import QUANTITIES
from costmodel.request import CacheRule, Pass
from simulator.engine import Engine
from simulator.jobs import EngineJob, JobResult, LogEntry, Shares


@dataclass(kw_only=True)
class LinearCost:
    """step = fixed + per_token * new + per_read * context read; flops = new tokens, kv_bytes = context read."""

    rule: CacheRule = field(default_factory=lambda: CacheRule(block_tokens=16, chunk_tokens=64))
    kv_tokens: int = 1 << 20
    max_seqs: int = 16
    fixed_s: float = 0.01
    token_s: float = 0.001
    read_s: float = 1e-5
    host_s: float = 0.0

    @property
    def slopes(self) -> tuple[tuple[None, Shares]]:
        return ((None, self._cost(read=1)),)

    def decode_fixed(self, n_seqs: int) -> Shares:
        # a sequence that sees c + 1 tokens has read c
        return self._cost(self.fixed_s, n_seqs, read=-n_seqs)

    def prefill_added(self, passes: Sequence[Pass], n_decode: int) -> list[Shares]:
        fixed_s = 0.0 if n_decode else self.fixed_s / len(passes)
        return [self._cost(fixed_s, p.new_tokens, p.context_tokens) for p in passes]

    def step_s(self, passes: Sequence[Pass], contexts: Sequence[int]) -> float:
        """Seconds of an iteration, by the definition."""
        new = sum(p.new_tokens for p in passes) + len(contexts)
        return self.fixed_s + self.token_s * new + self.read_s * (sum(p.context_tokens for p in passes) + sum(contexts))

    def request_s(self, prompt_tokens: int) -> float:
        return self.host_s * prompt_tokens

    def _cost(self, fixed_s: float = 0.0, new: int = 0, read: int = 0) -> Shares:
        cost = dict.fromkeys(QUANTITIES, 0.0) | {"flops": float(new), "kv_bytes": float(read)}
        cost["busy_s"] = fixed_s + self.token_s * new + self.read_s * read
        return tuple(cost.values())


@dataclass
class Played:
    """What `play` leaves behind."""

    engine: Engine
    results: list[JobResult | None]
    n_events: int
    end_s: float
    log: list[LogEntry]


def play(
    cost: LinearCost,
    arrivals: Sequence[tuple[float, EngineJob]],
    *,
    cancels: Sequence[tuple[float, int]] = (),
    **options,
) -> Played:
    """Submit jobs at their times to one engine, run until all are done, count events; `cancels` are (time, job)."""
    env = simpy.Environment()
    log: list[LogEntry] = []
    engine = Engine(env, cost, log=log.append, **options)
    asks = {}
    results: list[JobResult | None] = [None] * len(arrivals)

    def client(i: int, at_s: float, job: EngineJob) -> Generator[simpy.Event, JobResult, None]:
        yield env.timeout(at_s)
        asks[i] = engine.submit(job)
        results[i] = yield asks[i]

    def cancel(at_s: float, i: int) -> Generator[simpy.Event, object, None]:
        yield env.timeout(at_s)
        if i in asks:
            engine.cancel(asks[i])

    for at_s, i in cancels:
        env.process(cancel(at_s, i))

    done = env.all_of([env.process(client(i, at, job)) for i, (at, job) in enumerate(arrivals)])
    n_events = 0
    last_s = 0.0
    while not done.processed:
        env.step()
        n_events += 1
        assert env.now >= last_s, "the clock went back"
        last_s = env.now
        ledger = engine.ledger
        assert ledger.allocated_blocks + ledger.cached_blocks + ledger.free_blocks == ledger.total_blocks
        assert min(ledger.allocated_blocks, ledger.cached_blocks, ledger.free_blocks) >= 0
        assert engine.n_submitted == engine.n_finished + engine.n_rejected + engine.n_outstanding
        assert engine.n_waiting + engine.n_running <= engine.n_outstanding
    return Played(engine, results, n_events, env.now, log)


@pytest.fixture(scope="session")
def linear_cost() -> type[LinearCost]:
    """The stub cost model."""
    return LinearCost


@pytest.fixture(scope="session")
def played() -> Callable[..., Played]:
    """The driver."""
    return play
