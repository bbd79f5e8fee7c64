"""Many requests on one engine: skipping ahead changes nothing, nothing is lost, no engine idles while work waits."""

from __future__ import annotations

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.request import CacheRule
from simulator.engine import Engine
from simulator.jobs import EngineJob

RULES = [
    CacheRule(block_tokens=16, chunk_tokens=64),
    CacheRule(block_tokens=1, chunk_tokens=24),
    CacheRule(block_tokens=48, chunk_tokens=100, state_aligned=True),
]


@st.composite
def workloads(draw):
    """Jobs of a few keys at times that often coincide, on a KV cache that holds two or three of them."""
    n = draw(st.integers(1, 14))
    on_a_grid = draw(st.booleans())
    arrivals, at_s = [], 0.0
    for _ in range(n):
        gap = draw(st.integers(0, 40)) / 16 if on_a_grid else draw(st.floats(0, 3))
        at_s += gap
        prompt = draw(st.integers(1, 120))
        job = EngineJob(draw(st.integers(0, 3)), prompt, draw(st.integers(0, 120)), draw(st.integers(1, 70)))
        arrivals.append((at_s, job))
    limits = {
        "rule": draw(st.sampled_from(RULES)),
        "kv_tokens": draw(st.sampled_from([192, 208, 320, 640, 100_000])),
        "max_seqs": draw(st.sampled_from([1, 2, 4, 16])),
        "host_s": draw(st.sampled_from([0.0, 1 / 1024])),
    }
    if on_a_grid:  # sums of dyadic seconds are exact, so arrivals fall exactly on iteration ends
        limits |= {"fixed_s": 1 / 16, "token_s": 1 / 64, "read_s": 0.0}
    return limits, arrivals


def times(run):
    return np.array([(r.start_s, r.first_token_s, r.finish_s, r.decode_s, r.stalled_s) for r in run.results])


@settings(max_examples=250)
@given(workloads())
def test_skip_ahead_equals_the_plain_loop(linear_cost, played, workload):
    limits, arrivals = workload
    skipped = played(linear_cost(**limits), arrivals)
    plain = played(linear_cost(**limits), arrivals, skip_ahead=False)
    np.testing.assert_allclose(times(skipped), times(plain), rtol=1e-12, atol=1e-11)
    for a, b in zip(skipped.results, plain.results, strict=True):
        assert (a.passes, a.cached_tokens, a.n_preemptions) == (b.passes, b.cached_tokens, b.n_preemptions)
        np.testing.assert_allclose(a.decode, b.decode, rtol=1e-12)
        np.testing.assert_allclose(np.array([s for _, s in a.prefill]), np.array([s for _, s in b.prefill]), rtol=1e-12)
    assert skipped.engine.ledger.free_blocks == plain.engine.ledger.free_blocks
    assert skipped.engine.ledger.cached_blocks == plain.engine.ledger.cached_blocks


@pytest.mark.parametrize("seed", range(24))
def test_skip_ahead_sees_a_blocked_head_that_loses_its_prefix(linear_cost, played, seed):
    """Coarse cache blocks: evicting one page of a waiting job's prefix can shorten its first pass until it fits."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 20))
    at_s = np.cumsum(rng.random(n) * 2)
    jobs = [
        (t, EngineJob(int(rng.integers(4)), int(rng.integers(20, 300)), 300, int(rng.integers(1, 120)))) for t in at_s
    ]
    cost = linear_cost(rule=CacheRule(block_tokens=96, chunk_tokens=64), kv_tokens=480, max_seqs=4)
    skipped, plain = played(cost, jobs), played(cost, jobs, skip_ahead=False)
    np.testing.assert_allclose(times(skipped), times(plain), rtol=1e-12, atol=1e-11)


@settings(max_examples=150)
@given(workloads(), st.booleans())
def test_nothing_is_lost_and_time_adds_up(linear_cost, played, workload, skip_ahead):
    """The driver checks the KV ledger and the job count after every event."""
    limits, arrivals = workload
    cost = linear_cost(**limits)
    run = played(cost, arrivals, skip_ahead=skip_ahead)
    engine = run.engine
    assert (engine.n_finished, engine.n_outstanding) == (len(arrivals), 0)
    assert engine.ledger.allocated_blocks == 0
    for (at_s, job), r in zip(arrivals, run.results, strict=True):
        assert r.submit_s == pytest.approx(at_s)
        assert r.submit_s <= r.ready_s <= r.start_s < r.first_token_s <= r.finish_s
        parts = r.host_s + r.queued_s + sum(r.pass_s) + r.decode_s + r.stalled_s
        assert parts == pytest.approx(r.finish_s - r.submit_s, abs=1e-9)
        computed = sum(p.new_tokens for p in r.passes) + r.cached_tokens
        assert computed >= job.prompt_tokens
        if r.n_preemptions == 0:
            assert computed == job.prompt_tokens
        # every token was emitted once, on the whole context before it: prompt, prompt + 1, ...
        emitted_on = sum(p.context_tokens + p.new_tokens for p in r.passes if p.emits) + r.decode[2] + r.decode[0]
        assert emitted_on == sum(job.prompt_tokens + e for e in range(job.output_tokens))
    n_tokens = sum(e.n_prefill_tokens + e.n_decode * e.n_steps for e in run.log)
    assert n_tokens == sum(round(s[0]) for r in run.results for s in [*(x for _, x in r.prefill), r.decode])
    assert sum(e.time_s for e in run.log) == pytest.approx(engine.busy_s)


@settings(max_examples=100)
@given(workloads())
def test_work_conserving(linear_cost, played, workload):
    """Gaps between iterations are exactly the times when no job is in the queue or running."""
    limits, arrivals = workload
    run = played(linear_cost(**limits), arrivals)
    spans = sorted((r.ready_s, r.finish_s) for r in run.results)
    merged = [list(spans[0])]
    for start, end in spans[1:]:
        if start <= merged[-1][1]:
            merged[-1][1] = max(end, merged[-1][1])
        else:
            merged.append([start, end])
    assert run.engine.busy_s == pytest.approx(sum(end - start for start, end in merged), rel=1e-9)
    starts = [e.start_s for e in run.log]
    assert starts == sorted(starts)


@settings(max_examples=60)
@given(workloads())
def test_littles_law_holds_exactly(linear_cost, played, workload):
    """Time integral of the number of jobs in the system, seen by stepping the clock, is the sum of their stays."""
    limits, arrivals = workload
    env = simpy.Environment()
    engine = Engine(env, linear_cost(**limits))
    stays = []

    def client(at_s, job):
        yield env.timeout(at_s)
        result = yield engine.submit(job)
        stays.append(result.finish_s - result.submit_s)

    done = env.all_of([env.process(client(*a)) for a in arrivals])
    area, last, present = 0.0, 0.0, 0
    while not done.processed:
        env.step()
        area += present * (env.now - last)
        last, present = env.now, engine.n_outstanding
    assert area == pytest.approx(sum(stays), rel=1e-9, abs=1e-9)


@settings(max_examples=100)
@given(workloads(), st.sampled_from([16, 40]))
def test_a_shared_prefix_keeps_the_books(linear_cost, played, workload, shared_tokens):
    """The same invariants when every sequence leans on shared blocks: nothing is lost and skipping changes nothing."""
    limits, arrivals = workload
    limits = limits | {"kv_tokens": limits["kv_tokens"] + 48}
    arrivals = [
        (at, EngineJob(j.key, j.prompt_tokens, max(j.reusable_tokens, shared_tokens), j.output_tokens))
        for at, j in arrivals
    ]
    skipped = played(linear_cost(**limits), arrivals, shared_tokens=shared_tokens)
    plain = played(linear_cost(**limits), arrivals, shared_tokens=shared_tokens, skip_ahead=False)
    np.testing.assert_allclose(times(skipped), times(plain), rtol=1e-12, atol=1e-11)
    assert skipped.engine.ledger.allocated_blocks == skipped.engine.ledger.shared_blocks == shared_tokens // 16
    block = limits["rule"].block_tokens
    for r in skipped.results:
        assert r.cached_tokens >= min(shared_tokens, r.job.prompt_tokens - 1) // block * block


@settings(max_examples=25)
@given(workloads())
def test_same_input_same_output(linear_cost, played, workload):
    limits, arrivals = workload
    a, b = (played(linear_cost(**limits), arrivals) for _ in range(2))
    assert times(a).tobytes() == times(b).tobytes()
    assert a.log == b.log


def test_preemption_terminates_and_recomputes(linear_cost, played):
    """Eight jobs that each fill two thirds of the cache: all finish, the last admitted pays, the first never does."""
    jobs = [(0.0, EngineJob(i, 20, 0, 110)) for i in range(8)]
    run = played(linear_cost(kv_tokens=192), jobs)
    preempted = [r.n_preemptions for r in run.results]
    assert preempted[0] == 0
    assert sum(preempted) > 0
    for r in run.results:
        if r.n_preemptions:
            assert sum(p.new_tokens for p in r.passes) > 20
            assert r.stalled_s > 0
        decoded = r.decode[0] + sum(p.emits for p in r.passes)
        assert decoded == 110


def test_a_preempted_job_comes_back_before_later_arrivals(linear_cost, played):
    """b gives way to a; c would fit beside a at once, but waits behind b until a is done."""
    jobs = [(0.0, EngineJob("a", 20, 0, 110)), (0.0, EngineJob("b", 20, 0, 110)), (0.1, EngineJob("c", 20, 0, 5))]
    a, b, c = played(linear_cost(kv_tokens=192, max_seqs=2), jobs).results
    assert (a.n_preemptions, b.n_preemptions) == (0, 1)
    assert c.start_s >= a.finish_s - 1e-9


def test_running_sequences_go_before_the_queue(linear_cost, played):
    """A long prompt arriving during a decode is chunked around it: the decoding job never misses an iteration."""
    run = played(linear_cost(), [(0.0, EngineJob("a", 8, 0, 200)), (0.5, EngineJob("b", 640, 0, 1))])
    a, b = run.results
    assert a.stalled_s == pytest.approx(0, abs=1e-9)
    assert [p.new_tokens for p in b.passes] == [63] * 10 + [10]


def test_first_come_first_served(linear_cost, played):
    jobs = [(0.001 * i, EngineJob(i, 60, 0, 10)) for i in range(10)]
    run = played(linear_cost(max_seqs=2), jobs)
    starts = [r.start_s for r in run.results]
    assert starts == sorted(starts)


def test_simultaneous_arrivals_join_one_batch(linear_cost, played):
    run = played(linear_cost(), [(1.0, EngineJob(i, 10, 0, 1)) for i in range(6)])
    assert [e.n_prefill_tokens for e in run.log] == [60]
    assert {r.queued_s for r in run.results} == {0.0}


def test_least_recently_used_prefix_goes_first_tail_first(linear_cost, played):
    """Of 12 pages a, c hold 5 each; b takes three of a's tail, c's recomputed last page one more: 1 of 5 is left."""
    rule = CacheRule(block_tokens=16, chunk_tokens=256)
    at = [(0.0, "a", 80, 0), (10.0, "c", 80, 0), (20.0, "b", 80, 0), (30.0, "c", 80, 80), (40.0, "a", 80, 80)]
    jobs = [(t, EngineJob(key, prompt, reusable, 1)) for t, key, prompt, reusable in at]
    run = played(linear_cost(rule=rule, kv_tokens=192), jobs)
    assert [r.cached_tokens for r in run.results] == [0, 0, 0, 64, 16]


def test_evicted_tails_leave_only_lengths_with_a_saved_state(linear_cost, played):
    """With recurrent state a shortened prefix is worth its longest saved length, not its last whole block."""
    rule = CacheRule(block_tokens=16, chunk_tokens=96, state_aligned=True)
    at = [("a", 100, 0, 1), ("b", 100, 0, 1), ("a", 110, 96, 1)]
    jobs = [(10.0 * i, EngineJob(*job)) for i, job in enumerate(at)]
    whole = played(linear_cost(rule=rule, kv_tokens=1600), jobs)
    short = played(linear_cost(rule=rule, kv_tokens=192), jobs)
    assert whole.results[2].cached_tokens == 96
    assert short.results[2].cached_tokens == 0  # 80 tokens are left, but a state only at 96


def test_a_full_queue_still_skips_ahead(linear_cost, played):
    """40 equal jobs, 4 at a time: an event per admission wave and per decode run, not per token."""
    jobs = [(0.0, EngineJob(i, 16, 0, 501)) for i in range(40)]
    run = played(linear_cost(max_seqs=4), jobs)
    assert len(run.log) == 20
    assert sum(e.n_steps for e in run.log) == 10 * 501
