"""Acceptance by position and effect, and the shift that gives a wanted mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.acceptance import PRIOR_LAW, PRIOR_MEAN, AcceptanceLaw, expit, logit
from costmodel.deployment import deploy
from costmodel.expect import compile_tape, expect, fit_shift, mean_acceptance
from costmodel.pricing import Pricing, Site
from costmodel.protocol import Role
from costmodel.session import ProtocolSizes
from costmodel.strategies import strategy
from costmodel.task import Task, TaskStep
from costmodel.trajectory import Effect

PRICING = Pricing(
    {
        Role.WEAK: Site(server=deploy("Qwen/Qwen3-0.6B", "h200")),
        Role.STRONG: Site(server=deploy("Qwen/Qwen3-8B", "h200")),
    }
)


def tape_of(effects, law, window=4):
    steps = tuple(TaskStep(i, e, 10, 10, 10, 10, 0.0) for i, e in enumerate(effects))
    task = Task("t", ((Role.WEAK, 50), (Role.STRONG, 50)), 0, steps)
    return compile_tape(strategy("spec_agent", window), [task], law, PRICING, ProtocolSizes())


def test_logit_and_expit():
    assert logit(0.5) == 0
    assert logit(0.9) == pytest.approx(math.log(9))
    assert logit(1.0) == math.inf
    assert logit(0.0) == -math.inf
    assert expit(math.log(4)) == pytest.approx(0.8)
    assert list(expit([-math.inf, -1e4, 1e4, math.inf])) == [0, 0, 1, 1]


def test_a_law_adds_position_and_effect_logits():
    law = AcceptanceLaw(position_logits=(-1.0, 0.5), effect_logits={Effect.WRITE: -2.0})
    p = law.probabilities(1.0, [Effect.READ, Effect.READ, Effect.READ, Effect.WRITE])
    # beyond the last entry it holds; effects without an entry add nothing
    np.testing.assert_allclose(p, [1 / (1 + math.exp(-z)) for z in (0.0, 1.5, 1.5, -0.5)])
    assert not law.is_flat
    assert AcceptanceLaw(position_logits=(0.0, 0.0), effect_logits={Effect.READ: 0.0}).is_flat


def test_the_prior_keeps_writes_and_first_steps_less_often():
    low, high = PRIOR_MEAN[1:]
    assert low < PRIOR_MEAN[0] < high
    read, later = PRIOR_LAW.probabilities(logit(0.9), [Effect.READ, Effect.READ])
    assert read < later
    write = PRIOR_LAW.probabilities(logit(0.9) + 0.35, [Effect.WRITE])[0]
    assert write == pytest.approx(0.80)  # with the first position's shift taken out


def test_mean_acceptance_counts_the_steps_that_reviews_reach():
    # two reads, window 2, p = .5 everywhere. Round one: both reached if the first is kept. From there on by hand:
    # reached: index 0 always, index 1 always (either behind a kept 0, or alone in a later round): mean is p
    tape = tape_of([Effect.READ] * 2, AcceptanceLaw(), 2)
    assert mean_acceptance(tape, np.array([0.0]))[0] == pytest.approx(0.5)
    # p = .25 at the first position and .75 at the second: index 0 is first; index 1 second with .25, first with .75
    law = AcceptanceLaw(position_logits=(-math.log(3), math.log(3)))
    tape = tape_of([Effect.READ] * 2, law, 2)
    assert mean_acceptance(tape, np.array([0.0]))[0] == pytest.approx((0.25 + 0.25 * 0.75 + 0.75 * 0.25) / 2)


laws = st.builds(
    lambda positions, write: AcceptanceLaw(position_logits=tuple(positions), effect_logits={Effect.WRITE: write}),
    st.lists(st.floats(-3, 3), min_size=1, max_size=4),
    st.floats(-4, 4),
)


@settings(max_examples=60)
@given(
    laws,
    st.lists(st.sampled_from([Effect.READ, Effect.WRITE]), min_size=1, max_size=8),
    st.lists(st.floats(0.001, 0.999), min_size=1, max_size=4),
    st.integers(1, 6),
)
def test_the_fitted_shift_gives_the_wanted_mean(law, effects, wanted, window):
    tape = tape_of(effects, law, window)
    shift = fit_shift(tape, law, np.array(wanted))
    np.testing.assert_allclose(mean_acceptance(tape, shift), wanted, rtol=1e-9)


def test_certain_acceptance_and_certain_refusal():
    tape = tape_of([Effect.READ, Effect.WRITE, Effect.READ], PRIOR_LAW)
    shift = fit_shift(tape, PRIOR_LAW, np.array([0.0, 0.9, 1.0]))
    assert shift[0] == -math.inf
    assert shift[2] == math.inf
    found = expect(tape, shift, PRICING)
    np.testing.assert_allclose(found.count("repairs")[[0, 2]], [3, 0], atol=1e-12)
    assert np.isfinite(found.ledger).all()


def test_a_strategy_without_reviews_has_no_mean_acceptance():
    steps = (TaskStep(0, Effect.READ, 10, 10, 10, 10, 0.0),)
    task = Task("t", ((Role.WEAK, 50), (Role.STRONG, 50)), 0, steps)
    tape = compile_tape(strategy("strong_only"), [task], PRIOR_LAW, PRICING, ProtocolSizes())
    assert math.isnan(mean_acceptance(tape, np.array([1.0]))[0])
    assert np.isfinite(fit_shift(tape, PRIOR_LAW, np.array([0.9]))).all()
