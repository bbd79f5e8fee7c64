"""A small cost model whose every number can be checked by hand, and a driver that runs jobs through one engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import simpy

from costmodel.cost import QUANTITIES
from costmodel.request import CacheRule, Pass
from simulator.engine import Engine
from simulator.jobs import EngineJob, JobResult, Shares


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

    def step(self, prefill: Sequence[Pass], decode_contexts: Sequence[int]) -> tuple[float, Shares]:
        new = np.array([p.new_tokens for p in prefill] + [1] * len(decode_contexts), float)
        read = np.array([p.context_tokens for p in prefill] + list(decode_contexts), float)
        return float(self._time(new.sum(), read.sum())), self._shares(new, read, 1)

    def decode_run_s(self, decode_contexts: Sequence[int], n_steps: int) -> Shares:
        n = len(decode_contexts)
        return self._time(n, sum(decode_contexts) + n * np.arange(n_steps, dtype=float))

    def decode_run_shares(self, decode_contexts: Sequence[int], n_steps: int) -> Shares:
        read = np.array(decode_contexts, float) * n_steps + n_steps * (n_steps - 1) / 2
        return self._shares(np.full(len(decode_contexts), float(n_steps)), read, n_steps)

    def request_s(self, prompt_tokens: int) -> float:
        return self.host_s * prompt_tokens

    def _time(self, new, read):
        return self.fixed_s + self.token_s * new + self.read_s * read

    def _shares(self, new: Shares, read: Shares, n_steps: int) -> Shares:
        shares = np.zeros((len(new), len(QUANTITIES)))
        shares[:, QUANTITIES.index("flops")] = new
        shares[:, QUANTITIES.index("kv_bytes")] = read
        shares[:, QUANTITIES.index("busy_s")] = (
            self.fixed_s * n_steps / len(new) + self.token_s * new + self.read_s * read
        )
        return shares


@dataclass
class Played:
    """What `play` leaves behind."""

    engine: Engine
    results: list[JobResult | None]
    n_events: int
    end_s: float


def play(cost: LinearCost, arrivals: Sequence[tuple[float, EngineJob]], **options: bool) -> Played:
    """Submit jobs at their times to one engine and run until all are done, counting events."""
    env = simpy.Environment()
    engine = Engine(env, cost, **options)
    results: list[JobResult | None] = [None] * len(arrivals)

    def client(i: int, at_s: float, job: EngineJob) -> Generator[simpy.Event, JobResult, None]:
        yield env.timeout(at_s)
        results[i] = yield engine.submit(job)

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
    return Played(engine, results, n_events, env.now)


@pytest.fixture(scope="session")
def linear_cost() -> type[LinearCost]:
    """The stub cost model."""
    return LinearCost


@pytest.fixture(scope="session")
def played() -> Callable[..., Played]:
    """The driver."""
    return play
