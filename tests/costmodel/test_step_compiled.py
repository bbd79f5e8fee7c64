"""Compiled step costs equal the operation-by-operation sums to 1e-12, for numbers and for arrays of steps."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.cost import QUANTITIES
from costmodel.deployment import deploy
from costmodel.request import Pass
from costmodel.spans import Span
from costmodel.step import StepModel
from costmodel.step_compiled import CompiledStep

CASES = {
    "Qwen/Qwen3-8B": ("h200", 1, None),
    "Qwen/Qwen3.5-4B": ("a100-80gb", 1, None),
    "Qwen/Qwen3.5-397B-A17B": ("h200", 8, "fp8"),
    "google/gemma-3-4b-it": ("h200", 1, None),
    "openai/gpt-oss-20b": ("h200", 1, None),
    "deepseek-ai/DeepSeek-V3": ("h200", 8, None),
    "deepseek-ai/DeepSeek-V3.2": ("b300", 8, None),
}
names = st.sampled_from(sorted(CASES))
contexts = st.lists(st.integers(0, 40_000), max_size=6)
passes = st.lists(st.builds(Pass, st.integers(1, 3000), st.integers(0, 40_000), st.booleans()), max_size=4)


@cache
def model_of(name):
    device, n, dtype = CASES[name]
    return StepModel(deploy(name, device, n_devices=n, weight_dtype=dtype))


def by_operation(model, prefill, decode):
    """Columns and seconds of a step, summed over its operations."""
    each = [model._spans(float(p.new_tokens), float(p.context_tokens)) for p in prefill]
    pre = {w: Span(*(sum(spans[w][i] for spans in each) for i in range(4))) for w in each[0]} if each else None
    m = float(sum(p.new_tokens for p in prefill) + len(decode))
    emits = float(sum(p.emits for p in prefill) + len(decode))
    dec = model._decode_spans(decode) if decode else None
    columns, seconds = model.total(model.ops(m, emits, pre, dec), float(len(prefill) + len(decode)))
    return np.array([*columns, seconds], dtype=float)


@given(names, passes, contexts)
def test_compiled_costs_are_those_of_the_operations(name, prefill, decode):
    if not prefill and not decode:
        return
    model = model_of(name)
    compiled = model.compiled
    expected = by_operation(model, prefill, decode)
    seen = compiled.seen(decode)
    assert compiled.step_s(prefill, len(decode), seen) == pytest.approx(expected[-1], rel=1e-12)
    total = compiled.fixed(len(decode)) + np.array(seen) @ compiled.slopes if decode else np.zeros(len(QUANTITIES))
    if prefill:
        total = total + compiled.prefill_shares(prefill, len(decode)).sum(axis=0)
    np.testing.assert_allclose(total, expected, rtol=1e-12, atol=0)
    if decode and not prefill:
        assert compiled.decode_s(len(decode), seen) == pytest.approx(expected[-1], rel=1e-12)


@given(names, st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 40_000), contexts), min_size=1, max_size=5))
def test_many_steps_at_once_are_the_steps_one_by_one(name, steps):
    compiled = model_of(name).compiled
    steps = [s for s in steps if s[0] or s[2]]
    if not steps:
        return
    new, context = (np.array([float(s[i]) for s in steps]) for i in (0, 1))
    emits = np.minimum(new, 1.0)
    n_decode = np.array([float(len(d)) for _, _, d in steps])
    seen = np.array([compiled.seen(d) for _, _, d in steps]).T
    found = compiled.steps_s(new, context, emits, n_decode, seen)
    one = [compiled.step_s([Pass(n, c, True)] if n else [], len(d), compiled.seen(d) if d else ()) for n, c, d in steps]
    np.testing.assert_allclose(found, one, rtol=1e-12)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_token_of_context_costs_the_same_whatever_the_number_of_sequences(name):
    # the simulator's running sums rest on it
    model = model_of(name)
    for n in (1, 7, 200):
        _, slopes = model._decode_coefficients(n)
        for w, slope in zip(model.compiled.windows, model.compiled.slopes, strict=True):
            np.testing.assert_allclose(np.array(slopes[w], dtype=float), slope, rtol=1e-9)


def test_rows_beyond_the_token_budget_are_priced_too():
    model = model_of("Qwen/Qwen3-8B")
    prefill = [Pass(100_001, 5, True)]
    assert model.compiled.step_s(prefill) == pytest.approx(by_operation(model, prefill, [])[-1], rel=1e-12)


def test_tables_are_filled_by_the_block_and_once(monkeypatch):
    compiled = CompiledStep(model_of("Qwen/Qwen3-8B"))
    calls = []
    real = compiled._rows._evaluate
    monkeypatch.setattr(compiled._rows, "_evaluate", lambda m: calls.append(len(m)) or real(m))
    for new in range(1, 256):
        compiled.step_s([Pass(new, 0, True)])
    assert calls == [256]
