"""Jobs that are given up: a queued one leaves at once, a running one at the end of its iteration, and nothing leaks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.request import CacheRule
from simulator.engine import Engine
from simulator.jobs import EngineJob

RULES = [CacheRule(block_tokens=16, chunk_tokens=64), CacheRule(block_tokens=48, chunk_tokens=100, state_aligned=True)]


def test_a_queued_job_leaves_at_once_and_costs_nothing(linear_cost):
    env = simpy.Environment()
    engine = Engine(env, linear_cost(max_seqs=1))
    first, second = engine.submit(EngineJob("a", 20, 0, 100)), engine.submit(EngineJob("b", 20, 5, 100))
    env.run(until=0.5)
    engine.cancel(second)
    gone = env.run(second)
    assert (env.now, gone.cancelled, gone.emitted_tokens, gone.prefill) == (0.5, True, 0, ())
    assert math.isnan(gone.first_token_s)
    assert sum(gone.decode) == gone.decode_s == 0
    assert gone.finish_s - gone.submit_s == gone.host_s + gone.queued_s
    assert env.run(first).emitted_tokens == 100
    assert engine.n_outstanding == 0


def test_a_job_in_its_host_time_leaves_at_once(linear_cost):
    env = simpy.Environment()
    engine = Engine(env, linear_cost(host_s=0.1))
    ask = engine.submit(EngineJob("a", 20, 0, 5))
    env.run(until=1.0)
    engine.cancel(ask)
    engine.cancel(ask)
    result = env.run(ask)
    assert (result.finish_s, result.host_s, result.queued_s, result.cancelled) == (1.0, 1.0, 0.0, True)
    env.run()
    assert engine.busy_s == 0


@pytest.mark.parametrize("skip_ahead", [True, False])
def test_a_running_job_leaves_at_the_end_of_its_iteration_with_what_it_cost(linear_cost, skip_ahead):
    """Prefill takes 0.03 s; decode iteration i reads 20 + i tokens, so at 0.505 s the 43rd token is on its way."""
    env = simpy.Environment()
    cost = linear_cost()
    engine = Engine(env, cost, skip_ahead=skip_ahead)
    ask = engine.submit(EngineJob("a", 20, 0, 100))
    env.run(until=0.505)
    engine.cancel(ask)
    assert not ask.triggered
    result = env.run(ask)
    assert (result.emitted_tokens, result.cancelled) == (43, True)
    assert result.finish_s == pytest.approx(0.03 + sum(cost.step_s([], [20 + i]) for i in range(42)))
    assert result.saved_tokens == (62,)
    assert engine.ledger.allocated_blocks == 0
    assert engine.ledger.cached_blocks == 4
    again = env.run(engine.submit(EngineJob("a", 70, 60, 1)))
    assert again.cached_tokens == 48


def test_the_last_iteration_is_not_given_up(linear_cost):
    env = simpy.Environment()
    engine = Engine(env, linear_cost())
    ask = engine.submit(EngineJob("a", 20, 0, 1))
    env.run(until=0.01)
    engine.cancel(ask)
    result = env.run(ask)
    assert (result.emitted_tokens, result.cancelled) == (1, False)
    engine.cancel(ask)


@st.composite
def cancelled(draw):
    """Jobs that queue for a small cache, some of them given up at any time."""
    n = draw(st.integers(1, 10))
    arrivals, at_s = [], 0.0
    for _ in range(n):
        at_s += draw(st.floats(0, 1.5))
        arrivals.append(
            (at_s, EngineJob(draw(st.integers(0, 3)), draw(st.integers(1, 120)), 60, draw(st.integers(1, 70))))
        )
    cancels = draw(st.lists(st.tuples(st.floats(0, 12), st.integers(0, n - 1)), max_size=6))
    limits = {
        "rule": draw(st.sampled_from(RULES)),
        "kv_tokens": draw(st.sampled_from([240, 320, 100_000])),
        "max_seqs": draw(st.sampled_from([1, 2, 16])),
        "host_s": draw(st.sampled_from([0.0, 1 / 1024])),
    }
    return limits, arrivals, cancels


@settings(max_examples=120)
@given(cancelled())
def test_skip_ahead_and_the_books_hold_with_cancellations(linear_cost, played, drawn):
    """The driver checks the KV ledger after every event; times are those of the plain loop, time adds up."""
    limits, arrivals, cancels = drawn
    skipped = played(linear_cost(**limits), arrivals, cancels=cancels)
    plain = played(linear_cost(**limits), arrivals, cancels=cancels, skip_ahead=False)
    for a, b in zip(skipped.results, plain.results, strict=True):
        assert (a.cancelled, a.emitted_tokens, a.passes, a.saved_tokens) == (
            b.cancelled,
            b.emitted_tokens,
            b.passes,
            b.saved_tokens,
        )
        np.testing.assert_allclose([a.start_s, a.finish_s, a.decode_s], [b.start_s, b.finish_s, b.decode_s], atol=1e-9)
        np.testing.assert_allclose(a.decode, b.decode, rtol=1e-9)
        parts = a.host_s + a.queued_s + sum(a.pass_s) + a.decode_s + a.stalled_s
        assert parts == pytest.approx(a.finish_s - a.submit_s, abs=1e-9)
        assert a.emitted_tokens == a.job.output_tokens or a.cancelled
    assert skipped.engine.ledger.allocated_blocks == 0
    assert skipped.engine.n_outstanding == skipped.engine.n_running == skipped.engine.n_waiting == 0
