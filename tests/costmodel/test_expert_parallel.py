"""Experts shared out whole over ranks: the fullest rank sets the pace, work stays, all-to-all replaces a sum."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.cost import QUANTITIES
from costmodel.deployment import deploy, factor_values, kv_capacity_tokens, weights_per_device_bytes
from costmodel.request import Pass
from costmodel.roof import fullest_rank, rank_skew, touched_experts
from costmodel.step import StepModel
from hwprofiles.errors import InputError

BIG, MOE = "Qwen/Qwen3.5-397B-A17B", "Qwen/Qwen3-30B-A3B"
Q = {name: i for i, name in enumerate(QUANTITIES)}


def step_model(ranks, name=BIG, n_devices=8, **options):
    return StepModel(deploy(name, "h200", n_devices=n_devices, expert_parallel=ranks, **options))


@pytest.mark.parametrize(("n_experts", "n_ranks"), [(6, 2), (6, 3), (8, 4), (9, 3)])
def test_the_fullest_rank_by_enumeration(n_experts, n_ranks):
    each = n_experts // n_ranks
    most = {n: [] for n in range(n_experts + 1)}
    for chosen in product((0, 1), repeat=n_experts):
        most[sum(chosen)].append(max(sum(chosen[r * each : (r + 1) * each]) for r in range(n_ranks)))
    np.testing.assert_allclose(fullest_rank(n_experts, n_ranks), [np.mean(most[n]) for n in most], rtol=1e-12)


@pytest.mark.parametrize(("tokens", "skew"), [(1, 2.4), (4, 1.65), (256, 1.0)])
def test_the_fullest_of_eight_ranks_as_published(tokens, skew):
    # 512 experts, 10 a token, uniform routing
    found = rank_skew(512, 8, touched_experts(512, 10, float(tokens)))
    assert found == pytest.approx(skew, abs=0.01)


@given(st.sampled_from([1, 2, 4, 8, 16]), st.floats(1, 128))
def test_the_fullest_rank_lies_between_the_mean_and_what_it_can_hold(ranks, touched):
    skew = rank_skew(128, ranks, touched)
    assert skew * (1 + 1e-12) >= 1.0
    assert skew * touched / ranks <= min(max(touched, 1.0), 128 / ranks) * (1 + 1e-12)


def test_one_rank_is_tensor_parallel():
    prefill, decode = [Pass(500, 100, True)], [4000, 30]
    one = step_model(1, weight_dtype="fp8").step(prefill, decode)
    plain = StepModel(deploy(BIG, "h200", n_devices=8, weight_dtype="fp8")).step(prefill, decode)
    assert one[0] == plain[0]
    np.testing.assert_array_equal(one[1], plain[1])


def experts_s(model, rows):
    ops = model.ops(rows, rows, None, model._decode_spans([1000] * int(rows)))
    return sum(count * op.work_s for op, count in ops if op.name == "experts")


def test_a_token_alone_waits_for_the_fullest_rank_and_a_prefill_does_not():
    split, whole = (step_model(n, weight_dtype="fp8") for n in (1, 8))
    # one token: 2.4 times the mean expert reads; a full pass touches every expert of every rank
    assert experts_s(whole, 1.0) == pytest.approx(2.4 * experts_s(split, 1.0), rel=0.02)
    slower = whole.prefill(4096.0, 0.0, 1.0)[Q["busy_s"]] / split.prefill(4096.0, 0.0, 1.0)[Q["busy_s"]]
    assert slower < 1.02


def test_work_and_memory_are_the_same():
    split, whole = (step_model(n, weight_dtype="fp8") for n in (1, 8))
    for column in ("flops", "weight_bytes", "kv_bytes", "state_bytes"):
        a, b = (m.step([Pass(300, 10, True)], [4000] * 3)[1][:, Q[column]].sum() for m in (split, whole))
        assert a == pytest.approx(b, rel=1e-12)
    assert weights_per_device_bytes(split.dep) == weights_per_device_bytes(whole.dep)
    assert kv_capacity_tokens(split.dep) == kv_capacity_tokens(whole.dep)


@pytest.mark.parametrize("ranks", [2, 4])
def test_all_to_all_replaces_one_all_reduce_of_every_layer_with_experts(ranks):
    model = step_model(ranks, name=MOE, n_devices=4)
    ops = model.ops(64.0, 64.0, None, model._decode_spans([1000] * 64))
    reduce = next(op for op, _ in ops if op.name == "allreduce")
    swap = next(op for op, _ in ops if op.name == "all_to_all")
    f, hidden = factor_values(model.dep), model.dep.model.hidden
    latency = f["allreduce_s"] * 2.0**0.44
    link = model.rank.link * f["link_bandwidth"]
    assert reduce.seconds == pytest.approx(latency + 64 * hidden * 2 / link)
    # of 8 experts a token, ranks beside its own that hold at least one; there and back
    others = (ranks - 1) * (1 - (1 - 1 / ranks) ** 8)
    assert swap.seconds == pytest.approx(latency + 2 * (64 / 4) * others * hidden * 2 / link)


def test_compiled_steps_hold_with_experts_shared_out():
    model = step_model(4, name=MOE, n_devices=4)
    for n in (1, 3, 40):
        contexts = list(range(100, 100 + n))
        columns, seconds = model.total(model.ops(float(n), float(n), None, model._decode_spans(contexts)), float(n))
        found, shares = model.step([], contexts)
        assert found == pytest.approx(seconds, rel=1e-12)
        np.testing.assert_allclose(shares.sum(axis=0), [*columns, seconds], rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "n_devices", "ranks", "message"),
    [
        ("Qwen/Qwen3-8B", 2, 2, "no routed experts"),
        (MOE, 4, 3, "divisors of 4"),
        (MOE, 4, 0, "divisors of 4"),
        (MOE, 2, 4, "divisors of 2"),
    ],
)
def test_ranks_that_cannot_share_are_refused(name, n_devices, ranks, message):
    with pytest.raises(InputError, match=message):
        deploy(name, "h200", n_devices=n_devices, expert_parallel=ranks)
