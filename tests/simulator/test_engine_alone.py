"""A request that has the engine to itself takes exactly the passes of `plan_request`; events are counted, not timed."""

from __future__ import annotations

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from costmodel.cost import QUANTITIES
from costmodel.request import CacheRule, plan_request
from hwprofiles.errors import InputError
from simulator.engine import Engine
from simulator.jobs import EngineJob

PLAIN = CacheRule(block_tokens=16, chunk_tokens=64)
ALIGNED = CacheRule(block_tokens=48, chunk_tokens=100, state_aligned=True)
WIDE = CacheRule(block_tokens=64, chunk_tokens=64, state_aligned=True)


def closed_form(cost, prompt, reusable, output):
    """Seconds from submission to first and last token, by the definition."""
    plan = plan_request(cost.rule, prompt, reusable, output)
    first = cost.request_s(prompt) + sum(cost.step_s([p], []) for p in plan.passes)
    decode = [cost.step_s([], [prompt + i]) for i in range(plan.decode_passes)]
    return plan, first, first + sum(decode)


def spent(results):
    """Everything that jobs were charged."""
    return np.sum([share for r in results for share in (*(s for _, s in r.prefill), r.decode)], axis=0)


@pytest.mark.parametrize("skip_ahead", [True, False])
@given(
    rule=st.sampled_from([PLAIN, ALIGNED, WIDE]),
    prompt=st.integers(1, 400),
    output=st.integers(1, 90),
    at_s=st.floats(0, 100),
)
def test_alone_is_the_closed_form(linear_cost, played, skip_ahead, rule, prompt, output, at_s):
    cost = linear_cost(rule=rule, host_s=1e-4)
    run = played(cost, [(at_s, EngineJob("a", prompt, 0, output))], skip_ahead=skip_ahead)
    plan, first_s, total_s = closed_form(cost, prompt, 0, output)
    (result,) = run.results
    assert result.passes == plan.passes
    assert result.saved_tokens == plan.saved_tokens
    assert result.first_token_s - at_s == pytest.approx(first_s, rel=1e-9)
    assert result.finish_s - at_s == pytest.approx(total_s, rel=1e-9)
    assert result.queued_s == 0
    assert result.stalled_s == pytest.approx(0, abs=1e-9)
    busy = spent([result])
    assert busy[QUANTITIES.index("busy_s")] == pytest.approx(total_s - cost.request_s(prompt), rel=1e-9)
    assert busy[QUANTITIES.index("flops")] == pytest.approx(prompt + output - 1)


@given(
    rule=st.sampled_from([PLAIN, ALIGNED, WIDE]),
    turns=st.lists(st.tuples(st.integers(1, 150), st.integers(1, 40), st.integers(0, 60)), min_size=2, max_size=6),
)
def test_a_growing_chat_reuses_what_the_plan_says(linear_cost, rule, turns):
    """Each turn keeps the last chat less `back` tokens and appends; the engine finds the prefixes a session would."""
    cost = linear_cost(rule=rule)
    env = simpy.Environment()
    engine = Engine(env, cost)
    chat, saved = 0, set()
    for new, output, back in turns:
        kept = max(0, chat - back)
        usable = [s for s in saved if s <= kept] if rule.state_aligned else [min(s, kept) for s in saved]
        reusable = max(usable, default=0)
        prompt = kept + new
        plan, _, total_s = closed_form(cost, prompt, reusable, output)
        start = env.now
        result = env.run(engine.submit(EngineJob("chat", prompt, reusable, output)))
        assert result.cached_tokens == plan.cached_tokens
        assert result.passes == plan.passes
        assert result.finish_s - start == pytest.approx(total_s, rel=1e-9)
        saved = {s for s in saved if s <= plan.cached_tokens} | set(plan.saved_tokens)
        chat = prompt + output - 1


def test_a_decode_run_is_one_event_and_the_plain_loop_one_per_token(linear_cost, played):
    job = EngineJob("a", 10, 0, 1001)
    skipped = played(linear_cost(), [(0.0, job)])
    plain = played(linear_cost(), [(0.0, job)], skip_ahead=False)
    # the client's start, the arrival, the engine's first look, one prefill pass, one run of 1,000 decode
    # passes, the answer, the client's end, the driver's all_of
    assert skipped.n_events == 8
    assert plain.n_events == 8 + 999
    assert skipped.end_s == pytest.approx(plain.end_s, rel=1e-12)


def test_an_idle_engine_schedules_nothing(linear_cost):
    env = simpy.Environment()
    engine = Engine(env, linear_cost())
    env.run()  # returns: nothing is on the calendar
    assert (env.now, engine.busy_s) == (0, 0)


def test_a_second_sequence_finds_nothing_of_the_first(linear_cost, played):
    run = played(linear_cost(), [(0.0, EngineJob("a", 100, 0, 5)), (50.0, EngineJob("b", 100, 100, 5))])
    assert run.results[1].cached_tokens == 0


@pytest.mark.parametrize("job", [EngineJob("a", 0, 0, 1), EngineJob("a", 1, 0, 0), EngineJob("a", 1, -1, 1)])
def test_an_empty_job_is_refused(linear_cost, job):
    engine = Engine(simpy.Environment(), linear_cost())
    with pytest.raises(InputError, match="prompt and output tokens >= 1"):
        engine.submit(job)
    assert (engine.n_submitted, engine.n_rejected, engine.n_outstanding) == (1, 1, 0)


def test_a_job_larger_than_the_cache_is_refused_with_both_numbers(linear_cost):
    engine = Engine(simpy.Environment(), linear_cost(kv_tokens=100))
    engine.submit(EngineJob("fits", 90, 0, 7))
    with pytest.raises(InputError, match=r"request of 97 tokens .* KV cache of 96 tokens"):
        engine.submit(EngineJob("too big", 90, 0, 8))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_seqs": 0}, "max_seqs must be between 1 and"),
        ({"max_seqs": 65}, "max_seqs must be between 1 and the token budget"),
        ({"rule": CacheRule(block_tokens=528, chunk_tokens=512, state_aligned=True)}, "below the cache block of 528"),
        ({"kv_tokens": 15}, "at least one page"),
    ],
)
def test_impossible_limits_are_refused(linear_cost, limits, message):
    with pytest.raises(InputError, match=message):
        Engine(simpy.Environment(), linear_cost(**limits))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("output", [1, 9])
def test_a_cost_model_that_breaks_the_clock_ends_the_run(linear_cost, value, output):
    env = simpy.Environment()
    engine = Engine(env, linear_cost(fixed_s=value))
    engine.submit(EngineJob("a", 1, 0, output))
    with pytest.raises(InputError, match="finite seconds"):
        env.run()


def test_shares_of_a_batch_add_up_to_busy_time(linear_cost, played):
    jobs = [(0.01 * i, EngineJob(i, 30 + 17 * i, 0, 5 + 3 * i)) for i in range(12)]
    run = played(linear_cost(max_seqs=5), jobs)
    total = spent(run.results)
    assert total[QUANTITIES.index("busy_s")] == pytest.approx(run.engine.busy_s, rel=1e-12)
    assert total[QUANTITIES.index("flops")] == sum(j.prompt_tokens + j.output_tokens - 1 for _, j in jobs)
    assert np.all(total >= 0)


@pytest.mark.parametrize("rule", [PLAIN, ALIGNED])
def test_a_shared_prefix_is_found_by_every_sequence_and_held_once(linear_cost, rule):
    cost = linear_cost(rule=rule, kv_tokens=40 * 16)
    env = simpy.Environment()
    engine = Engine(env, cost, shared_tokens=400)
    for key in ("a", "b", "a"):
        result = env.run(engine.submit(EngineJob(key, 500, 400, 20)))
        assert result.cached_tokens == 400 // rule.block_tokens * rule.block_tokens
    assert engine.ledger.shared_blocks == 25
    with pytest.raises(InputError, match="shared prefix of 640"):
        Engine(env, cost, shared_tokens=640)
