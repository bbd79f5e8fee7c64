"""One engine step against its roofs, and its work against counts of the architecture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.arch import MoeMlp
from costmodel.cost import QUANTITIES
from costmodel.counts import (
    attention_flops_of,
    head_params,
    kv_bytes_per_token_of,
    layer_groups,
    state_bytes_per_sequence,
)
from costmodel.deployment import deploy, factor_values
from costmodel.ops import Rank
from costmodel.products import expert_matrix_params, products
from costmodel.request import Pass
from costmodel.roof import smooth, touched_experts
from costmodel.step import StepModel
from hwprofiles import Fact, hardware

BIG = "Qwen/Qwen3.5-397B-A17B"
SINGLE = [
    "Qwen/Qwen3-0.6B",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3.5-4B",
    "google/gemma-3-4b-it",
    "openai/gpt-oss-20b",
    "Qwen/Qwen3-30B-A3B",
]
Q = {name: i for i, name in enumerate(QUANTITIES)}


def model_of(name, n_devices=1, device="h200", **options):
    return StepModel(deploy(name, device, n_devices=n_devices, **options))


@pytest.fixture(scope="module")
def deployments():
    out = [model_of(name) for name in SINGLE]
    out.append(model_of(BIG, 8, weight_dtype="fp8"))
    out.append(model_of("deepseek-ai/DeepSeek-V3", 8))
    out.append(model_of("deepseek-ai/DeepSeek-V3.2", 8, device="b300"))
    out.append(model_of("meta-llama/Llama-3.1-70B", 4))
    return out


def every_op(model, new=300.0, context=5000.0, n_decode=3.0):
    pre = model._spans(new, context)
    dec = model._decode_spans([4000, 900, 30])
    return model.ops(new + n_decode, 1.0 + n_decode, pre, dec)


def passes_and_steps():
    return st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 60_000)), max_size=3)


def test_no_operation_is_faster_than_its_roofs(deployments):
    for model in deployments:
        for op, _ in every_op(model):
            assert op.seconds >= max(op.compute_s, op.memory_s, op.link_s)
            assert op.compute_s >= 0
            assert op.memory_s >= 0


@given(passes_and_steps(), st.lists(st.integers(0, 60_000), max_size=4))
def test_no_step_is_faster_than_its_bytes_at_full_bandwidth(deployments, prefill, contexts):
    if not prefill and not contexts:
        return
    for model in deployments:
        seconds, shares = model.step([Pass(n, c, True) for n, c in prefill], contexts)
        total = shares.sum(axis=0)
        traffic = total[Q["weight_bytes"]] + total[Q["kv_bytes"]] + total[Q["state_bytes"]]
        device = model.dep.hardware
        assert seconds >= traffic / (model.rank.n * device.bandwidth_bytes_per_s.value)
        peak = max(fact.value for fact in device.peak_flops_per_s.values())
        assert seconds >= total[Q["flops"]] / (model.rank.n * peak)


def test_doubling_bandwidth_halves_the_memory_term_and_nothing_else():
    device = hardware("h200")
    twice = replace(
        device, bandwidth_bytes_per_s=Fact(value=2 * device.bandwidth_bytes_per_s.value, tier="assumed", source="test")
    )
    for name in SINGLE:
        slow, fast = every_op(model_of(name)), every_op(StepModel(deploy(name, twice)))
        for (a, _), (b, _) in zip(slow, fast, strict=True):
            assert b.memory_s == pytest.approx(a.memory_s / 2, rel=1e-12)
            assert b.compute_s == a.compute_s
            assert b.flops == a.flops


def test_one_device_has_no_collective_and_several_have_two_all_reduces_a_layer():
    one = model_of("meta-llama/Llama-3.1-70B", device="b300")
    assert not [op for op, _ in every_op(one) if op.name == "allreduce"]
    assert one.prefill(64.0, 0.0, 1.0)[Q["interconnect_bytes"]] == 0
    four = model_of("meta-llama/Llama-3.1-70B", 4)
    # 80 layers x 2 all-reduces x 2 (n - 1) / n x 64 rows x 8192 x 2 bytes, sent by each of 4 devices
    expected = 80 * 2 * (2 * 3 / 4) * 64 * 8192 * 2 * 4
    assert four.prefill(64.0, 0.0, 1.0)[Q["interconnect_bytes"]] == pytest.approx(expected)


@pytest.mark.parametrize(("n", "seconds"), [(2, 6e-6), (4, 8.1e-6), (8, 11.0e-6)])
def test_all_reduce_latency_grows_with_devices_as_fitted(n, seconds):
    # fitted 6, 8 and 11 microseconds at 2, 4 and 8 devices; one row carries next to no bytes
    dep = deploy("meta-llama/Llama-3.1-70B", "h200", n_devices=n)
    op = Rank(dep, {**factor_values(dep), "allreduce_s": 6e-6}).allreduce(0.0, 8192, 2)
    assert op.seconds / 2 == pytest.approx(seconds, rel=0.02)


# -- work against the architecture ----------------------------------------------------------------------------------


def weights_per_token(arch):
    """Weights of all products a decoded token passes through: layers, chosen experts, head."""
    total = head_params(arch)
    for layer, count in layer_groups(arch):
        total += count * sum(p.params for p in products(layer, arch.hidden))
        if isinstance(layer.mlp, MoeMlp):
            total += count * layer.mlp.top_k * expert_matrix_params(layer.mlp, arch.hidden)
    return total


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("context", [0, 100, 30_000])
def test_a_decode_step_at_batch_one_counts_what_the_architecture_says(name, context):
    model = model_of(name, weight_dtype="bf16")
    arch = model.dep.model
    seconds, shares = model.step([], [context])
    cost = shares[0]
    weights = weights_per_token(arch)
    seen = context + 1  # the new token sees itself
    attention = sum(n * attention_flops_of(layer.attention, seen) for layer, n in layer_groups(arch))
    kv = sum(
        n * kv_bytes_per_token_of(layer.attention) * min(seen, getattr(layer.attention, "window", None) or seen)
        for layer, n in layer_groups(arch)
    )
    assert cost[Q["weight_bytes"]] == pytest.approx(2 * weights, rel=1e-12)
    assert cost[Q["flops"]] == pytest.approx(2 * weights + attention, rel=1e-9)
    assert cost[Q["kv_bytes"]] == pytest.approx(kv, rel=1e-9)
    assert cost[Q["state_bytes"]] == pytest.approx(2 * state_bytes_per_sequence(arch), rel=1e-12)
    assert seconds == cost[Q["busy_s"]]


def test_batch_one_decode_of_the_397b_touches_its_active_weights():
    model = model_of(BIG, 8, device="b300", weight_dtype="bf16")
    _, shares = model.step([], [1000])
    # published counting: 16.33 G weights per decoded token; replication over 8 devices adds routers, gates and KV
    # projections (one KV head per device where there are two)
    extra = 7 * 60 * 4096 * 513 + 15 * (8 - 2) * 2 * 256 * 4096
    assert shares[0, Q["weight_bytes"]] / 2 == pytest.approx(16.33e9 + extra, rel=0.002)


def swept(chunks):
    """Weights that prefill passes of these sizes read on a device that holds the whole 397B, kappa 1."""
    huge = replace(hardware("b300"), memory_bytes=Fact(value=2e12, tier="assumed", source="test"))
    dep = deploy(BIG, huge, weight_dtype="bf16")
    model = StepModel(dep, {**factor_values(dep), "expert_correlation": 1.0})
    ends = np.cumsum(chunks)
    new = np.array(chunks, dtype=float)
    return model.prefill(new, ends - new, (ends == ends[-1]) * 1.0)[Q["weight_bytes"]].sum() / 2


def test_a_prefill_of_512_tokens_touches_nearly_every_expert():
    # E (1 - (1 - 10/512)^512) = 511.98 of 512 experts: all layers and the head, without the input embedding
    assert swept([512]) == pytest.approx(395e9, rel=0.005)


@pytest.mark.parametrize(
    ("chunk", "weights"),
    [(2048, 395e9), (512, 1186e9), (256, 2354e9)],  # weights are read again for each chunk
)
def test_a_verify_of_1500_tokens_sweeps_the_weights_once_per_chunk(chunk, weights):
    chunks = [min(chunk, 1500 - at) for at in range(0, 1500, chunk)]
    assert swept(chunks) == pytest.approx(weights, rel=0.005)


def test_distinct_experts():
    # one token touches its top k; kappa 1, two tokens, 2 of 8 experts: 2 + 6 (1 - 3/4) = 3.5 = 8 (1 - (3/4)^2)
    assert touched_experts(8, 2, 1.0) == 2
    assert touched_experts(8, 2, 2.0) == pytest.approx(3.5)
    assert touched_experts(8, 2, 2.0) == pytest.approx(8 * (1 - 0.75**2))
    assert touched_experts(8, 2, 40.0, 0.5) < touched_experts(8, 2, 40.0)
    assert touched_experts(4, 4, 7.0) == 4


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(1.0, 8.0))
def test_the_smooth_roof_lies_between_maximum_and_sum(x, y, p):
    value = smooth(x, y, p)
    assert max(x, y) * (1 - 1e-12) <= value <= (x + y) * (1 + 1e-12)


def test_chunks_of_a_prefill_do_the_same_attention_work():
    model = model_of("Qwen/Qwen3-8B")
    whole = model.prefill(1000.0, 200.0, 1.0)
    parts = model.prefill(np.array([400.0, 600.0]), np.array([200.0, 600.0]), np.array([0.0, 1.0])).sum(axis=1)
    assert parts[Q["flops"]] == pytest.approx(whole[Q["flops"]])
    assert parts[Q["weight_bytes"]] == pytest.approx(2 * whole[Q["weight_bytes"]] - 2 * head_params(model.dep.model))
    # KV: each pass reads its own cached part once (200 and 600) and writes what is new
    per_token = 147_456
    assert whole[Q["kv_bytes"]] == pytest.approx(1200 * per_token)
    assert parts[Q["kv_bytes"]] == pytest.approx((600 + 1200) * per_token)


def test_attention_flops_of_a_prefill_by_hand():
    # 36 layers x 4 x 32 heads x 128 x sum of contexts 201 .. 1200, plus 2 x weights per token, head for one row
    model = model_of("Qwen/Qwen3-8B")
    arch = model.dep.model
    contexts = sum(range(201, 1201))
    dense = 2 * 1000 * (weights_per_token(arch) - head_params(arch)) + 2 * head_params(arch)
    expected = dense + 36 * 4 * 32 * 128 * contexts
    assert model.prefill(1000.0, 200.0, 1.0)[Q["flops"]] == pytest.approx(expected)


def test_latent_prefill_projects_its_cached_part_up_again():
    model = model_of("deepseek-ai/DeepSeek-V3", 8)
    near, far = (model.prefill(100.0, c, 0.0)[Q["flops"]] for c in (0.0, 8000.0))
    # per layer: scores and values of 100 tokens over 8000 more, 2 x 128 heads x (128 + 64 + 128) each, and the cached
    # 8000 tokens through the up-projection 512 x 128 x (128 + 128)
    extra = 61 * (2 * 128 * 320 * 100 * 8000 + 2 * 8000 * 512 * 128 * 256)
    assert far - near == pytest.approx(extra)


# -- energy ---------------------------------------------------------------------------------------------------------


def with_tdp(watts):
    return replace(hardware("h200"), tdp_w=Fact(value=watts, tier="assumed", source="test"))


def test_a_power_limit_stretches_time_and_leaves_energy_alone():
    free = StepModel(deploy("Qwen/Qwen3-8B", replace(hardware("h200"), tdp_w=None)))
    tight = StepModel(deploy("Qwen/Qwen3-8B", with_tdp(100)))
    a, b = (m.prefill(2000.0, 0.0, 1.0) for m in (free, tight))
    assert b[Q["energy_j"]] == a[Q["energy_j"]]
    assert b[Q["busy_s"]] > a[Q["busy_s"]]
    idle = tight.factors["idle_w_share"]
    assert b[Q["busy_s"]] >= b[Q["energy_j"]] / (100 * (1 - idle))


def test_when_power_binds_its_part_of_time_is_inverse_to_it():
    # seconds = fixed + joules / (tdp (1 - idle)): differences between halvings of the limit double
    t = [StepModel(deploy("Qwen/Qwen3-8B", with_tdp(w))).prefill(2000.0, 0.0, 1.0)[Q["busy_s"]] for w in (4, 2, 1)]
    assert t[2] - t[1] == pytest.approx(2 * (t[1] - t[0]))


def test_energy_is_flops_and_bytes():
    model = model_of("Qwen/Qwen3-8B")
    cost = model.prefill(700.0, 300.0, 1.0)
    f = model.factors
    moved = sum(cost[Q[k]] for k in ("weight_bytes", "kv_bytes", "state_bytes", "activation_bytes"))
    assert cost[Q["energy_j"]] == pytest.approx(f["flop_j"] * cost[Q["flops"]] + f["byte_j"] * moved)


def test_new_tokens_of_a_sparse_prefill_read_what_they_can_choose_at_most_all():
    model = model_of("deepseek-ai/DeepSeek-V3.2", 8, device="b300")
    # per token, layer and device: 576 numbers of 2 bytes, and an indexer key of 128 bytes with a 4-byte scale; each
    # query chooses 2,048 tokens: three of them at most 6,144 different ones, a hundred of them all 30,100
    for new, chosen in ((3, 3 * 2048), (100, 30_100)):
        kv = model.prefill(float(new), 30_000.0, 0.0)[Q["kv_bytes"]]
        assert kv == pytest.approx(8 * 61 * (chosen * 1152 + (30_000 + new) * 132))
    # one decoding token reads its 2,048
    _, shares = model.step([], [30_000])
    assert shares[0, Q["kv_bytes"]] == pytest.approx(8 * 61 * (2048 * 1152 + 30_001 * 132), rel=1e-9)


@pytest.mark.parametrize("columns", [1, 4, 16, 64, 128, 512])
@pytest.mark.parametrize("rows", [1.0, 512.0, 8192.0])
def test_a_narrow_product_is_hardly_slower_than_a_wide_one(rows, columns):
    # Qwen3.5's shared-expert gate has one column: the losses fitted on wide products must not run away there
    # (they did: 20 times; within one tile the fitted loss is at most half of the wide product's time)
    from costmodel.deployment import deploy
    from costmodel.step import StepModel

    rank = StepModel(deploy("Qwen/Qwen3.5-397B-A17B", "h200", n_devices=8, weight_dtype="fp8")).rank
    narrow, wide = (float(rank.product("p", rows, 4096, n, "bf16").seconds) for n in (columns, 1024))
    assert narrow <= 1.5 * wide
