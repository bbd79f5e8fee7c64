"""`plan_request`: chunks, floors, state alignment, the first token from prefill."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.request import CacheRule, Pass, cached_tokens, plan_request

PLAIN = CacheRule(block_tokens=16, chunk_tokens=100)
ALIGNED = CacheRule(block_tokens=48, chunk_tokens=100, state_aligned=True)

rules = st.builds(
    lambda block, blocks, extra, aligned: CacheRule(
        block_tokens=block, chunk_tokens=block * blocks + extra, state_aligned=aligned
    ),
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(0, 39),
    st.booleans(),
)
tokens = st.integers(1, 600)


def test_a_cold_prompt_is_cut_into_chunks_of_the_token_budget():
    plan = plan_request(PLAIN, 250, 0, 5)
    assert plan.passes == (Pass(100, 0, False), Pass(100, 100, False), Pass(50, 200, True))
    assert plan.cached_tokens == 0
    assert plan.decode_passes == 4  # the first of five tokens comes from the last prefill pass


def test_a_hit_is_floored_to_the_block():
    plan = plan_request(PLAIN, 250, 200, 1)
    assert plan.cached_tokens == 192  # 12 blocks of 16
    assert plan.passes == (Pass(58, 192, True),)


def test_a_fully_cached_prompt_recomputes_its_last_block():
    # vLLM looks for at most prompt - 1 tokens: of 160 = 10 blocks only 9 can be found
    assert cached_tokens(PLAIN, 160, 160) == 144
    assert cached_tokens(CacheRule(block_tokens=1, chunk_tokens=100), 160, 160) == 159


def test_a_one_token_verdict_has_no_decode_pass():
    plan = plan_request(PLAIN, 50, 0, 1)
    assert plan.decode_passes == 0
    assert len(plan.passes) == 1


def test_the_last_output_token_is_not_in_the_cache_afterwards():
    assert plan_request(PLAIN, 50, 0, 7).saved_tokens == (56,)
    # a priced API caches prompts only
    assert plan_request(CacheRule(block_tokens=1, chunk_tokens=99, keeps_output=False), 50, 0, 7).saved_tokens == (50,)


def test_crossing_a_block_boundary_with_aligned_state_costs_two_passes():
    # 90 tokens cross the boundary at 48: up to it, then the rest, although both would fit one budget of 100
    assert plan_request(ALIGNED, 90, 0, 1).passes == (Pass(48, 0, False), Pass(42, 48, True))
    assert plan_request(ALIGNED, 90, 48, 1).passes == (Pass(42, 48, True),)  # no boundary left to cross
    assert plan_request(ALIGNED, 40, 0, 1).passes == (Pass(40, 0, True),)  # none reached
    assert plan_request(ALIGNED, 96, 0, 1).passes == (Pass(96, 0, True),)  # ends on it


def test_aligned_chunks_end_on_block_multiples():
    # budget 100 holds two blocks of 48; the last boundary of 250 is 240
    plan = plan_request(ALIGNED, 250, 0, 3)
    assert [p.new_tokens for p in plan.passes] == [96, 96, 48, 10]
    assert plan.saved_tokens == (96, 192, 240)  # only where a pass ended; the end at 250 is no multiple


@given(rules, tokens, st.integers(0, 800), st.integers(1, 50))
def test_every_plan_covers_the_prompt_once(rule, prompt, reusable, output):
    plan = plan_request(rule, prompt, reusable, output)
    assert plan.cached_tokens + sum(p.new_tokens for p in plan.passes) == prompt
    assert plan.cached_tokens % rule.block_tokens == 0
    assert plan.cached_tokens <= min(reusable, prompt - 1)
    assert plan.cached_tokens > min(reusable, prompt - 1) - rule.block_tokens
    at = plan.cached_tokens
    for p in plan.passes:
        assert 1 <= p.new_tokens <= rule.chunk_tokens
        assert p.context_tokens == at
        at += p.new_tokens
        assert p.emits == (at == prompt)
    assert plan.decode_passes == output - 1


@given(rules, tokens, st.integers(0, 800), st.integers(1, 50))
def test_no_plan_has_more_passes_than_needed(rule, prompt, reusable, output):
    plan = plan_request(rule, prompt, reusable, output)
    new = prompt - plan.cached_tokens
    if not rule.state_aligned:
        assert len(plan.passes) == -(-new // rule.chunk_tokens)
        return
    per_pass = rule.chunk_tokens // rule.block_tokens * rule.block_tokens
    to_boundary = max(0, prompt // rule.block_tokens * rule.block_tokens - plan.cached_tokens)
    assert len(plan.passes) == -(-to_boundary // per_pass) + (new > to_boundary)


@given(rules, tokens, st.integers(0, 800), st.integers(1, 50))
def test_saved_states_are_where_passes_end_on_a_block(rule, prompt, reusable, output):
    plan = plan_request(rule, prompt, reusable, output)
    if not rule.state_aligned:
        assert plan.saved_tokens == (prompt + output - 1,)
        return
    ends = {p.context_tokens + p.new_tokens for p in plan.passes} | {plan.cached_tokens}
    assert set(plan.saved_tokens) == {e for e in ends if e and e % rule.block_tokens == 0}
    assert max(plan.saved_tokens, default=0) == prompt // rule.block_tokens * rule.block_tokens


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (1, 0), (-3, 2)])
def test_an_empty_request_is_refused(prompt, output):
    with pytest.raises(ValueError, match="needs prompt and output tokens >= 1"):
        plan_request(PLAIN, prompt, 0, output)


def test_a_budget_below_the_block_is_refused():
    with pytest.raises(ValueError, match="below the cache block"):
        plan_request(CacheRule(block_tokens=48, chunk_tokens=40, state_aligned=True), 100, 0, 1)
