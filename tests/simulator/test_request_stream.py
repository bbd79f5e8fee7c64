"""Request streams against queueing theory, the walk of one request, and the hash-addressed KV ledger."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.request import CacheRule, Pass, plan_request
from hwprofiles.errors import InputError
from simulator.arrivals import HASH_BLOCK_TOKENS, TraceRequest, read_requests
from simulator.hash_ledger import HashLedger
from simulator.load import streams
from simulator.request_stream import at_rate, stream
from simulator.stream_result import spread
from simulator.theory import md1_wait_s, mg1_wait_s

SHARED = Path(__file__).parents[3] / "shared" / "traces" / "serving" / "mooncake_conversation_trace.jsonl"
BLOCK = HASH_BLOCK_TOKENS


def requests(n: int, prompt: int = 64, output: int = 8) -> list[TraceRequest]:
    return [TraceRequest(0.0, prompt, output)] * n


@pytest.fixture
def one_at_a_time(linear_cost):
    def make(fixed_s: float):
        return linear_cost(max_seqs=1, fixed_s=fixed_s, token_s=0.0, read_s=0.0)

    return make


@pytest.mark.parametrize("mean_tokens", [1, 20])
def test_a_poisson_stream_waits_as_long_as_theory_says(one_at_a_time, mean_tokens):
    rate, n, seeds, waits = 0.7, 4_000, 5, []
    for seed in range(seeds):
        rng = streams(seed, "arrivals", "lengths")
        lengths = rng["lengths"].geometric(1.0 / mean_tokens, n).tolist() if mean_tokens > 1 else [1] * n
        drawn = at_rate([TraceRequest(0.0, 16, length) for length in lengths], rate, rng["arrivals"])
        found = stream(drawn, one_at_a_time(1.0 / mean_tokens))
        waits.append(float(np.mean((found.start_s - found.submit_s)[500:])))
    variance = (1.0 - 1.0 / mean_tokens) if mean_tokens > 1 else 0.0  # of a geometric number of steps of 1 / mean s
    expected = mg1_wait_s(rate, 1.0, variance)
    assert mean_tokens > 1 or expected == pytest.approx(md1_wait_s(rate, 1.0))
    assert np.mean(waits) == pytest.approx(expected, abs=3.0 * np.std(waits, ddof=1) / np.sqrt(seeds))


def test_a_constant_stream_below_capacity_never_waits(one_at_a_time):
    found = stream(at_rate(requests(50, 16, 1), 0.9), one_at_a_time(1.0))
    assert np.allclose(found.e2e_s, 1.0)
    assert np.isnan(found.tpot_s).all()
    assert spread(found.tpot_s)["mean"] is None


@pytest.mark.parametrize(("prompt", "output"), [(64, 8), (200, 1), (1, 40)])
def test_one_client_alone_is_the_walk_of_a_request(linear_cost, prompt, output):
    cost = linear_cost(host_s=1e-4)
    plan = plan_request(cost.rule, prompt, 0, output)
    prefill_s = sum(cost.step_s([part], []) for part in plan.passes)
    decode_s = sum(cost.step_s([], [prompt + i]) for i in range(plan.decode_passes))
    found = stream(requests(3, prompt, output), cost, concurrency=1)
    assert found.ttft_s == pytest.approx(cost.request_s(prompt) + prefill_s)
    assert found.e2e_s == pytest.approx(cost.request_s(prompt) + prefill_s + decode_s)
    if output > 1:
        assert found.tpot_s == pytest.approx(decode_s / (output - 1))


def test_a_closed_loop_obeys_littles_law(linear_cost):
    lengths = streams(1, "lengths")["lengths"].integers(1, 60, 400).tolist()
    found = stream([TraceRequest(0.0, 50 + n, n) for n in lengths], linear_cost(), concurrency=12, replicas=2)
    inside = found.e2e_s.sum() / (found.finish_s.max() - found.submit_s.min())
    assert inside == pytest.approx(12, rel=0.05)  # the end of the run empties
    assert found.document()["requests_by_replica"] == np.bincount(found.replica).tolist()


def test_recorded_arrivals_are_kept_and_skipping_ahead_changes_nothing(linear_cost):
    rng = streams(2, "gaps")["gaps"]
    times = np.cumsum(rng.exponential(0.05, 150)).tolist()
    made = [
        TraceRequest(at, 3 * BLOCK, int(n), (i % 5, 100 + i % 7, 1000 + i))
        for i, (at, n) in enumerate(zip(times, rng.integers(1, 30, 150), strict=True))
    ]
    cost = linear_cost(rule=CacheRule(block_tokens=16, chunk_tokens=2048), kv_tokens=40 * BLOCK, token_s=2e-5)
    one, other = (stream(made, cost, replicas=2, skip_ahead=skip) for skip in (True, False))
    assert one.submit_s.tolist() == times
    for name in ("first_token_s", "finish_s", "cached_tokens", "replica"):
        assert getattr(one, name) == pytest.approx(getattr(other, name))


def test_equal_prefixes_are_found_by_later_prompts_and_never_the_whole_prompt(linear_cost):
    cost = linear_cost(rule=CacheRule(block_tokens=16, chunk_tokens=4096))
    ids = [(1, 2), (1, 3), (1, 2), (4, 2)]
    made = [TraceRequest(100.0 * i, 2 * BLOCK, 4, two) for i, two in enumerate(ids)]
    assert stream(made, cost).cached_tokens.tolist() == [0, BLOCK, 2 * BLOCK - 16, 0]
    assert stream(made, cost, reuse=False).cached_tokens.tolist() == [0, 0, 0, 0]
    aligned = linear_cost(rule=CacheRule(block_tokens=512, chunk_tokens=4096, state_aligned=True))
    assert stream(made, aligned).cached_tokens.tolist() == [0, 0, 0, 0]


def test_a_block_in_use_is_shared_at_the_same_time(linear_cost):
    cost = linear_cost(rule=CacheRule(block_tokens=16, chunk_tokens=4096))
    made = [TraceRequest(at, BLOCK + 10, 50, (1, tail)) for at, tail in ((0.0, 5), (0.1, 6))]
    found = stream(made, cost)
    assert found.finish_s[0] > found.start_s[1]
    assert found.cached_tokens.tolist() == [0, BLOCK]


def test_routers(linear_cost):
    cost = linear_cost(rule=CacheRule(block_tokens=16, chunk_tokens=4096))
    made = [TraceRequest(10.0 * i, 2 * BLOCK, 4, (i % 3, 10 + i % 3)) for i in range(12)]
    assert stream(made, cost, replicas=4, router="round_robin").replica.tolist() == [0, 1, 2, 3] * 3
    near = stream(made, cost, replicas=3, router="prefix_affinity")
    assert all(len(set(near.replica[i::3].tolist())) == 1 for i in range(3))
    together = [TraceRequest(0.0, 64, 9) for _ in range(8)]
    assert stream(together, cost, replicas=4, router="least_loaded").replica.tolist() == [0, 1, 2, 3] * 2


def test_a_piled_up_replica_loses_its_prefixes_to_the_least_loaded(linear_cost):
    cost = linear_cost(rule=CacheRule(block_tokens=16, chunk_tokens=4096))
    made = [TraceRequest(0.0, 2 * BLOCK, 40, (1, 2))] * 40
    assert np.bincount(stream(made, cost, replicas=2, router="prefix_affinity").replica).min() >= 10


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"replicas": 0}, "replicas and concurrency must be >= 1"),
        ({"concurrency": 0}, "replicas and concurrency must be >= 1"),
        ({"router": "round-robin"}, "did you mean 'round_robin'"),
    ],
)
def test_a_wrong_stream_is_refused(linear_cost, change, told):
    with pytest.raises(InputError, match=told):
        stream(requests(2), linear_cost(), **change)


def test_nothing_to_play_wrong_order_and_wrong_rates_are_refused(linear_cost):
    with pytest.raises(InputError, match="no request"):
        stream([], linear_cost())
    with pytest.raises(InputError, match="sort them"):
        stream([TraceRequest(1.0, 5, 5), TraceRequest(0.0, 5, 5)], linear_cost())
    with pytest.raises(InputError, match="give one of them"):
        stream([TraceRequest(0.0, BLOCK, 5, (1,))], linear_cost(), shared_tokens=16)
    for rate in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(InputError, match="rate must be finite"):
            at_rate(requests(2), rate)


KEYS = st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple)


@settings(max_examples=150, deadline=None)
@given(moves=st.lists(st.tuples(KEYS, st.integers(1, 200), st.integers(0, 3)), max_size=40))
def test_the_hash_ledger_keeps_its_books(moves):
    ledger = HashLedger(40 * 16, 32)
    held = []
    for key, tokens, what in moves:
        if what == 0 and held:
            holding, grown = held.pop(0)
            ledger.release(holding, grown)
        else:
            prefix = ledger.find(key)
            hit = min(prefix.tokens if prefix else 0, (tokens - 1) // 16 * 16)
            if ledger.own_blocks(tokens, hit) <= ledger.room_blocks:
                holding = ledger.claim(key, hit)
                assert ledger.grow(holding, tokens)
                assert holding.n_blocks + holding.n_shared == ledger.blocks(tokens)
                held.append((holding, tokens))
        assert ledger.allocated_blocks + ledger.cached_blocks + ledger.free_blocks == ledger.total_blocks
        assert min(ledger.allocated_blocks, ledger.cached_blocks, ledger.free_blocks) >= 0
        assert ledger.allocated_blocks <= sum(ledger.blocks(grown) for _, grown in held)
    for holding, grown in held:
        ledger.release(holding, grown)
    assert ledger.allocated_blocks == 0


def test_eviction_takes_what_was_released_first_and_tails_before_heads():
    ledger = HashLedger(6 * 16, 32)
    for key in ((1, 2), (3,)):
        holding = ledger.claim(key, 0)
        assert ledger.grow(holding, 32 * len(key))
        ledger.release(holding, 32 * len(key))
    assert (ledger.free_blocks, ledger.cached_blocks) == (0, 6)
    assert ledger.room_before((1, 2)) == 0
    assert ledger.room_before((1,)) == 2
    other = ledger.claim((9,), 0)
    assert ledger.grow(other, 16)
    kept = ledger.find((1, 2))
    assert kept is not None
    assert kept.tokens == 32
    assert ledger.find((3,)) is not None


@pytest.mark.skipif(not SHARED.exists(), reason="the shared traces are not here")
def test_a_piece_of_the_conversation_trace_finds_most_of_what_it_can(linear_cost):
    cost = linear_cost(
        rule=CacheRule(block_tokens=16, chunk_tokens=8192), kv_tokens=4_000_000, max_seqs=256, token_s=1e-5, read_s=1e-9
    )
    made = list(read_requests(SHARED))[:600]
    share = {
        router: stream(made, cost, replicas=4, router=router).document()["cached_share"]
        for router in ("round_robin", "prefix_affinity")
    }
    seen: set[int] = set()
    found = 0
    for request in made:
        full = request.prefix_ids[: request.prompt_tokens // BLOCK]
        found += BLOCK * sum(1 for one in full if one in seen)
        seen.update(full)
    most = found / sum(r.prompt_tokens for r in made)
    assert share["round_robin"] < share["prefix_affinity"] <= most + 1e-9
    assert share["prefix_affinity"] > 0.6 * most


def test_a_pass_is_priced_once_per_token_computed(linear_cost):
    cost = linear_cost(rule=CacheRule(block_tokens=16, chunk_tokens=4096))
    found = stream([TraceRequest(0.0, BLOCK, 1, (7,)), TraceRequest(50.0, BLOCK + 5, 1, (7, 8))], cost)
    second = cost.step_s([Pass(5, BLOCK, True)], [])
    assert found.e2e_s[1] == pytest.approx(second)
