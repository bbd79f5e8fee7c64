"""Steps in their three forms agree: mixed batches, runs of decoding, many passes or many factor samples at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.cost import QUANTITIES
from costmodel.deployment import deploy, factor_values
from costmodel.request import Pass
from costmodel.spans import clipped_sum
from costmodel.step import StepModel

BUSY = QUANTITIES.index("busy_s")
CASES = {
    "Qwen/Qwen3-8B": ("h200", 1),
    "Qwen/Qwen3.5-4B": ("h200", 1),
    "google/gemma-3-4b-it": ("h200", 1),
    "openai/gpt-oss-20b": ("h200", 1),
    "deepseek-ai/DeepSeek-V3": ("h200", 8),
    "deepseek-ai/DeepSeek-V3.2": ("b300", 8),
    "Qwen/Qwen3-30B-A3B": ("h200", 2),
}
MODELS: dict[str, StepModel] = {}


def model_of(name):
    if name not in MODELS:
        device, n = CASES[name]
        MODELS[name] = StepModel(deploy(name, device, n_devices=n))
    return MODELS[name]


names = st.sampled_from(sorted(CASES))
contexts = st.lists(st.integers(0, 40_000), min_size=1, max_size=6)
passes = st.lists(st.builds(Pass, st.integers(1, 3000), st.integers(0, 40_000), st.booleans()), min_size=1, max_size=4)


def mixed_total(model, prefill, decode):
    """The step evaluated operation by operation, without any sharing."""
    spans = [model._spans(float(p.new_tokens), float(p.context_tokens)) for p in prefill]
    pre = {w: type(s)(*(sum(x[w][i] for x in spans) for i in range(4))) for w, s in spans[0].items()} if spans else None
    m = float(sum(p.new_tokens for p in prefill) + len(decode))
    emits = float(sum(p.emits for p in prefill) + len(decode))
    dec = model._decode_spans(decode) if decode else None
    columns, seconds = model.total(model.ops(m, emits, pre, dec), float(len(prefill) + len(decode)))
    return np.array([*columns, seconds], dtype=float)


@given(names, st.one_of(st.just([]), passes), st.one_of(st.just([]), contexts))
def test_shares_of_a_step_sum_to_the_step(name, prefill, decode):
    if not prefill and not decode:
        return
    model = model_of(name)
    seconds, shares = model.step(prefill, decode)
    assert shares.shape == (len(prefill) + len(decode), len(QUANTITIES))
    np.testing.assert_allclose(shares.sum(axis=0), mixed_total(model, prefill, decode), rtol=1e-9)
    assert seconds == pytest.approx(shares[:, BUSY].sum(), rel=1e-12)
    assert (shares >= -1e-9 * np.abs(shares).sum(axis=0)).all()


@given(names, st.builds(Pass, st.integers(1, 5000), st.integers(0, 40_000), st.booleans()))
def test_a_step_of_one_pass_is_that_pass(name, p):
    model = model_of(name)
    seconds, shares = model.step([p], [])
    alone = model.prefill(float(p.new_tokens), float(p.context_tokens), float(p.emits))
    np.testing.assert_allclose(shares[0], alone, rtol=1e-12)
    assert seconds == pytest.approx(alone[BUSY], rel=1e-12)


@given(names, st.integers(0, 3000), st.integers(1, 300))
def test_a_run_of_decoding_is_the_sum_of_its_steps(name, context, n):
    # contexts up to 3,300 cross the windows of 128, 1,024 and the 2,048 chosen tokens of sparse attention
    model = model_of(name)
    run = model.decode_run(np.array(float(context)), np.array(float(n)))
    steps = np.sum([mixed_total(model, [], [context + i]) for i in range(n)], axis=0)
    np.testing.assert_allclose(run, steps, rtol=1e-12)
    through_step = np.sum([model.step([], [context + i])[1][0] for i in range(n)], axis=0)
    np.testing.assert_allclose(run, through_step, rtol=1e-12)


@given(names, contexts, st.integers(1, 200))
def test_a_batched_run_is_the_sum_of_its_steps(name, decode, n):
    model = model_of(name)
    seconds = model.decode_run_s(decode, n)
    shares = model.decode_run_shares(decode, n)
    steps = [model.step([], [c + i for c in decode]) for i in range(n)]
    np.testing.assert_allclose(seconds, [s for s, _ in steps], rtol=1e-12)
    np.testing.assert_allclose(shares, np.sum([x for _, x in steps], axis=0), rtol=1e-11)
    assert seconds.sum() == pytest.approx(shares[:, BUSY].sum(), rel=1e-12)


@given(names, passes, contexts)
def test_a_mixed_batch_is_not_faster_than_its_decoding_alone(name, prefill, decode):
    model = model_of(name)
    mixed, shares = model.step(prefill, decode)
    alone, own = model.step([], decode)
    assert mixed >= alone
    # decoding sequences pay what they would have paid without the passes
    np.testing.assert_array_equal(shares[len(prefill) :], own)


@given(names, passes)
def test_batching_passes_costs_no_more_than_running_them_one_by_one(name, prefill):
    model = model_of(name)
    together = model.step(prefill, [])[0]
    apart = sum(model.step([p], [])[0] for p in prefill)
    assert together <= apart * (1 + 1e-9)


@given(names, passes)
def test_passes_at_once_equal_passes_one_by_one(name, prefill):
    model = model_of(name)
    new, context, emits = np.array([[p.new_tokens, p.context_tokens, p.emits] for p in prefill], dtype=float).T
    at_once = model.prefill(new, context, emits)
    one_by_one = np.stack([model.prefill(*x) for x in zip(new, context, emits, strict=True)], axis=-1)
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-14)


@given(names, st.integers(1, 3000), st.integers(1, 2000), st.integers(0, 30_000), st.integers(1, 5000))
def test_more_tokens_and_more_context_take_longer(name, new, more, context, deeper):
    model = model_of(name)
    t = model.prefill(
        np.array([new, new + more, new], dtype=float), np.array([context, context, context + deeper]) * 1.0, np.ones(3)
    )[BUSY]
    assert t[0] < t[1]
    assert t[0] <= t[2]
    d = [model.step([], [c])[0] for c in (context, context + deeper)]
    assert d[0] <= d[1]


@pytest.mark.parametrize("name", sorted(CASES))
def test_factor_samples_at_once_equal_a_loop_over_them(name):
    dep = model_of(name).dep
    central = factor_values(dep)
    rng = np.random.default_rng(7)
    samples = {k: v * rng.uniform(0.7, 1.0, size=(5, 1)) for k, v in central.items()}
    new, context, emits = np.array([1.0, 90.0, 4000.0]), np.array([0.0, 2000.0, 500.0]), np.array([1.0, 0.0, 1.0])
    many = StepModel(dep, samples)
    passes_many = many.prefill(new, context, emits)
    run_many = many.decode_run(context, np.array([3.0, 10.0, 200.0]))
    assert passes_many.shape == run_many.shape == (len(QUANTITIES), 5, 3)
    for i in range(5):
        one = StepModel(dep, {k: float(v[i, 0]) for k, v in samples.items()})
        np.testing.assert_allclose(passes_many[:, i], one.prefill(new, context, emits), rtol=1e-12)
        np.testing.assert_allclose(run_many[:, i], one.decode_run(context, np.array([3.0, 10.0, 200.0])), rtol=1e-12)


@given(st.integers(0, 300), st.integers(0, 300), st.one_of(st.none(), st.integers(1, 400)))
def test_clipped_sum_is_the_sum_it_names(start, n, window):
    by_hand = sum(x if window is None else min(x, window) for x in range(start + 1, start + n + 1))
    assert clipped_sum(float(start), float(n), window) == by_hand


def test_host_time_is_per_step_per_sequence_and_per_request():
    dep = deploy("Qwen/Qwen3-0.6B", "h200")
    f = dict(factor_values(dep))
    slow = StepModel(dep, {**f, "host_step_s": f["host_step_s"] + 1.0, "host_seq_s": f["host_seq_s"] + 0.5})
    fast = StepModel(dep)
    # one second a step and half a second for each of the three sequences
    passes_ = [Pass(20, 0, True)]
    assert slow.step(passes_, [5, 6])[0] - fast.step(passes_, [5, 6])[0] == pytest.approx(1.0 + 3 * 0.5)
    custom = StepModel(dep, {**f, "request_s": 0.25, "request_token_s": 0.001})
    assert custom.request_s(1000) == pytest.approx(1.25)


def test_limits_of_a_deployment_reach_its_step_model():
    dep = deploy("Qwen/Qwen3-0.6B", "h200", max_seqs=7, chunk_tokens=640)
    model = StepModel(replace(dep))
    assert model.max_seqs == 7
    assert model.rule.chunk_tokens == 640
