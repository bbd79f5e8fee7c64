"""Token-level speculation as a decode option: reductions, closed forms, experts touched, and when it stops to pay."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.cost import QUANTITIES
from costmodel.counts import n_params, weight_bytes
from costmodel.deployment import (
    cache_rule,
    deploy,
    factor_values,
    kv_bytes_per_token,
    kv_capacity_tokens,
    sequence_bytes_per_rank,
    weights_per_device_bytes,
)
from costmodel.models import model
from costmodel.products import expert_matrix_params
from costmodel.request import CacheRule, Pass, decode_passes, plan_request
from costmodel.roof import touched_experts
from costmodel.spans import run_sum
from costmodel.speculation import prediction_layer, token_speculation
from costmodel.step import StepModel
from hwprofiles.errors import InputError

Q = {name: i for i, name in enumerate(QUANTITIES)}
BIG, MOE, DENSE, SMALL = "Qwen/Qwen3.5-397B-A17B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.1-70B", "Qwen/Qwen3-0.6B"


def mtp(length, acceptance=0.7, **options):
    speculation = token_speculation(BIG, "mtp", length=length, acceptance=acceptance)
    return deploy(BIG, "h200", n_devices=8, weight_dtype="fp8", speculation=speculation, **options)


def drafted(name, draft, length, acceptance=0.7, n_devices=1, **options):
    speculation = token_speculation(name, "draft", length=length, acceptance=acceptance, draft_model=draft)
    return deploy(name, "h200", n_devices=n_devices, speculation=speculation, **options)


# -- tokens and passes ----------------------------------------------------------------------------------------------


@given(st.integers(0, 15), st.floats(0, 0.999))
def test_tokens_per_pass_is_the_geometric_sum(g, a):
    s = token_speculation(BIG, "mtp", length=g, acceptance=a)
    assert s.tokens_per_pass == pytest.approx((1 - a ** (g + 1)) / (1 - a), rel=1e-9)
    assert 1.0 <= s.tokens_per_pass <= g + 1


@given(st.integers(1, 5000), st.integers(0, 8))
def test_nothing_drafted_or_nothing_kept_takes_the_passes_of_plain_decoding(output, g):
    plain = CacheRule(block_tokens=16, chunk_tokens=512)
    for length, acceptance in ((0, 0.9), (g, 0.0)):
        s = token_speculation(BIG, "mtp", length=length, acceptance=acceptance)
        rule = replace(plain, tokens_per_pass=s.tokens_per_pass, pass_tokens=s.pass_tokens)
        assert plan_request(rule, 100, 0, output) == plan_request(plain, 100, 0, output)


@given(st.integers(1, 5000), st.integers(0, 8))
def test_everything_kept_takes_every_gth_pass(output, g):
    rule = CacheRule(block_tokens=16, chunk_tokens=512, tokens_per_pass=float(g + 1), pass_tokens=g + 1)
    assert decode_passes(rule, output) == math.ceil((output - 1) / (g + 1))


@given(
    st.integers(0, 4000), st.integers(1, 300), st.sampled_from([None, 128, 1024]), st.integers(0, 5), st.floats(0, 1)
)
def test_what_passes_see_is_summed_in_closed_form(context, n, window, g, a):
    stride = sum(a**i for i in range(g + 1))
    most = math.inf if window is None else window
    by_hand = sum(min(context + g + 1 + i * stride, most) for i in range(n))
    assert float(run_sum(float(context), float(n), window, g + 1, stride)) == pytest.approx(by_hand, rel=1e-12)


# -- cost of a pass -------------------------------------------------------------------------------------------------


def test_drafts_of_length_zero_change_nothing():
    plain, zero = StepModel(deploy(BIG, "h200", n_devices=8, weight_dtype="fp8")), StepModel(mtp(0))
    for prefill, decode in (([], [900, 40]), ([Pass(300, 50, True)], [5000]), ([Pass(300, 50, True)], [])):
        a, b = plain.step(prefill, decode), zero.step(prefill, decode)
        assert a[0] == b[0]
        np.testing.assert_array_equal(a[1], b[1])
    assert kv_capacity_tokens(plain.dep) == kv_capacity_tokens(zero.dep)


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("g", [1, 3])
def test_a_pass_touches_the_experts_of_all_its_tokens(batch, g):
    dep = drafted(MOE, SMALL, g)
    kappa = factor_values(dep)["expert_correlation"]
    arch = dep.model
    ops = StepModel(dep).ops(*2 * (float((g + 1) * batch),), None, StepModel(dep)._decode_spans([2000] * batch))
    weight = sum(count * op.weight_bytes for op, count in ops if op.name == "experts")
    mlp = arch.layers[0].mlp
    each = 2 * expert_matrix_params(mlp, arch.hidden)
    expected = len(arch.layers) * touched_experts(mlp.n_experts, mlp.top_k, float((g + 1) * batch), kappa) * each
    assert weight == pytest.approx(expected, rel=1e-12)


def test_a_pass_reads_the_cache_once_and_computes_all_its_tokens():
    g, context = 3, 10_000
    plain = StepModel(deploy("Qwen/Qwen3-8B", "h200")).step([], [context + g])[1][0]
    dep = drafted("Qwen/Qwen3-8B", SMALL, g)
    both = StepModel(dep).step([], [context])[1][0]
    draft = StepModel(dep.drafter).step([], [context + g])[1][0]
    assert both[Q["kv_bytes"]] == pytest.approx(plain[Q["kv_bytes"]] + g * draft[Q["kv_bytes"]], rel=1e-9)
    assert both[Q["flops"]] == pytest.approx((g + 1) * plain[Q["flops"]] + g * draft[Q["flops"]], rel=1e-9)
    assert both[Q["weight_bytes"]] == pytest.approx(plain[Q["weight_bytes"]] + g * draft[Q["weight_bytes"]], rel=1e-9)


def test_a_recurrent_state_is_read_once_and_written_after_every_token():
    plain = StepModel(deploy(BIG, "h200", n_devices=8, weight_dtype="fp8")).step([], [50, 60])[1]
    spec = StepModel(mtp(3)).step([], [50, 60])[1]
    ratio = spec[:, Q["state_bytes"]].sum() / plain[:, Q["state_bytes"]].sum()
    assert ratio == pytest.approx((1 + 4) / 2)


def test_a_prompt_is_prefilled_by_the_drafter_too():
    dep = drafted("Qwen/Qwen3-8B", SMALL, 2)
    both, own = StepModel(dep), StepModel(deploy("Qwen/Qwen3-8B", "h200"))
    extra = both.prefill(500.0, 100.0, 1.0) - own.prefill(500.0, 100.0, 1.0)
    np.testing.assert_allclose(
        extra, StepModel(dep.drafter, both.drafter.factors).prefill(500.0, 100.0, 0.0), rtol=1e-9, atol=1e-12
    )


def spec_seconds_per_token(dep, batch, context):
    step = StepModel(dep)
    return step.step([], [context] * batch)[0] / step.rule.tokens_per_pass


def test_the_gain_shrinks_with_the_batch_and_turns_where_steps_are_bound_by_compute():
    # vLLM's published experience: +50 % or more at batch 1, a loss once the batch is bound by compute
    plain = deploy(DENSE, "h200", n_devices=4, max_seqs=2048)
    spec = drafted(DENSE, "meta-llama/Llama-3.2-1B", 4, 0.7, n_devices=4, max_seqs=1024, chunk_tokens=8192)
    batches = [1, 4, 16, 64, 256, 1024]
    gains = [spec_seconds_per_token(plain, b, 500) / spec_seconds_per_token(spec, b, 500) for b in batches]
    assert gains[0] > 1.5
    assert gains[-1] < 0.95
    assert all(later < earlier + 1e-9 for earlier, later in pairwise(gains[1:]))


def test_time_per_token_falls_with_acceptance():
    times = [spec_seconds_per_token(mtp(3, a), 4, 3000) for a in (0.0, 0.3, 0.6, 0.9, 1.0)]
    assert all(later < earlier for earlier, later in pairwise(times))
    assert times[-1] == pytest.approx(times[0] / 4)


@pytest.mark.parametrize("contexts", [[10], [100, 5000, 30_000]])
@pytest.mark.parametrize("dep", [mtp(3), drafted("openai/gpt-oss-120b", "openai/gpt-oss-20b", 2)], ids=["mtp", "draft"])
def test_compiled_passes_are_those_of_the_operations(dep, contexts):
    step = StepModel(dep)
    dec = step._decode_spans(contexts)
    t, n = step.tokens, len(contexts)
    for prefill in ([], [Pass(700, 30, True)], [Pass(100, 0, False), Pass(9, 4000, True)]):
        each = [step._spans(float(p.new_tokens), float(p.context_tokens)) for p in prefill]
        pre = {w: type(dec[None])(*(sum(s[w][i] for s in each) for i in range(4))) for w in dec} if each else None
        m = float(sum(p.new_tokens for p in prefill) + t * n)
        emits = float(sum(p.emits for p in prefill) + t * n)
        columns, seconds = step.total(step.ops(m, emits, pre, dec), float(len(prefill) + n))
        found, shares = step.step(prefill, contexts)
        assert found == pytest.approx(seconds, rel=1e-12)
        np.testing.assert_allclose(shares.sum(axis=0), [*columns, seconds], rtol=1e-12)
        if len(prefill) == 1:
            p = prefill[0]
            many = step.compiled.steps_s(
                *(np.array([float(x)]) for x in (p.new_tokens, p.context_tokens, p.emits, n)),
                np.array(step.compiled.seen(contexts))[:, None],
            )
            assert many[0] == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("dep", [mtp(2, 0.8), drafted("openai/gpt-oss-120b", "openai/gpt-oss-20b", 3)], ids=["a", "b"])
def test_a_run_of_passes_is_the_sum_of_its_passes(dep):
    step = StepModel(dep)
    e = step.rule.tokens_per_pass
    contexts = [30, 110, 4000]
    run = step.decode_run_s(contexts, 50)
    one = [step.step([], [c + i * e for c in contexts])[0] for i in range(50)]
    np.testing.assert_allclose(run, one, rtol=1e-12)
    shares = sum(step.step([], [c + i * e for c in contexts])[1] for i in range(50))
    np.testing.assert_allclose(step.decode_run_shares(contexts, 50), shares, rtol=1e-12)
    alone = step.decode_run(np.array(30.0), np.array(50.0))
    np.testing.assert_allclose(alone, sum(step.step([], [30 + i * e])[1][0] for i in range(50)), rtol=1e-11)


# -- memory and refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "published"), [("Qwen/Qwen3.5-9B", 243_290_624), (BIG, 6.6e9)])
def test_the_prediction_layer_has_the_published_parameters(name, published):
    # hub files: 243,290,624 parameters of Qwen3.5-9B's layer; 6.6 G of 397B-A17B's (403.4 - 396.3 - 0.5)
    layer = prediction_layer(model(name))
    own = n_params(layer) - n_params(replace(layer, layers=())) + 2 * layer.hidden**2
    assert own == pytest.approx(published, rel=0.01)


def test_memory_of_a_drafter():
    plain, spec = deploy("Qwen/Qwen3-8B", "h200"), drafted("Qwen/Qwen3-8B", SMALL, 2)
    assert weights_per_device_bytes(spec) - weights_per_device_bytes(plain) == weight_bytes(model(SMALL), "bf16")
    assert kv_bytes_per_token(spec) - kv_bytes_per_token(plain) == kv_bytes_per_token(spec.drafter)
    assert kv_capacity_tokens(spec) < kv_capacity_tokens(plain)
    one, four = (deploy(BIG, "h200", n_devices=8, weight_dtype="fp8"), mtp(3))
    assert sequence_bytes_per_rank(four) == pytest.approx(4 * sequence_bytes_per_rank(one))
    assert cache_rule(four).block_tokens == cache_rule(one).block_tokens


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Qwen/Qwen3-8B", "mtp", 2, 0.5, None), "no multi-token-prediction layer"),
        ((BIG, "mtp", 2, 0.5, SMALL), "has no effect"),
        ((BIG, "draft", 2, 0.5, None), "needs a draft_model"),
        ((BIG, "draft", 2, 0.5, "meta-llama/Llama-3.2-1B"), "same tokeniser"),
        ((BIG, "eagle", 2, 0.5, None), "'mtp' or 'draft'"),
        ((BIG, "mtp", 16, 0.5, None), "0 to 15"),
        ((BIG, "mtp", 2, 1.5, None), "0 to 1"),
    ],
)
def test_a_wrong_decode_option_is_refused(arguments, message):
    name, method, length, acceptance, draft = arguments
    with pytest.raises(InputError, match=message):
        token_speculation(name, method, length=length, acceptance=acceptance, draft_model=draft)


def test_a_token_budget_below_the_checked_tokens_is_refused():
    with pytest.raises(InputError, match="more than its token budget"):
        mtp(7, max_seqs=512, chunk_tokens=2200)
