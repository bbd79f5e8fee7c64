"""Success of the clean / tainted chain: limits, monotony, and the chain itself stepped by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.quality import implied_acceptance, step_hazard, success

p = st.floats(0.0, 1.0)


@given(p, p, st.integers(0, 60))
def test_the_closed_form_is_the_chain(hazard, recovery, n):
    clean = 1.0
    for _ in range(n):
        clean = clean * (1 - hazard) + (1 - clean) * recovery
    assert success(hazard, recovery, n) == pytest.approx(clean, abs=1e-9)


@given(p, st.integers(0, 100))
def test_without_recovery_every_step_must_be_right(hazard, n):
    assert success(hazard, 0.0, n) == pytest.approx((1 - hazard) ** n, abs=1e-12)


@given(p, st.integers(0, 100))
def test_without_hazard_success_is_certain(recovery, n):
    assert success(0.0, recovery, n) == 1.0


@given(st.floats(0, 0.45), st.floats(0, 0.5), st.floats(0, 0.05), st.integers(1, 50))
def test_success_falls_with_hazard_and_steps_and_rises_with_recovery(hazard, recovery, more, n):
    base = success(hazard, recovery, n)
    assert success(hazard + more, recovery, n) <= base + 1e-12
    assert success(hazard, recovery + more, n) >= base - 1e-12
    assert success(hazard, recovery, n + 1) <= base + 1e-12
    assert 0 <= base <= 1


def test_success_takes_arrays():
    found = success(np.array([0.0, 0.1, 0.0]), np.array([0.0, 0.0, 0.5]), 2)
    np.testing.assert_allclose(found, [1.0, 0.81, 1.0])


def test_hazards_by_strategy():
    # w = .1, u = .03, d = .5, f = .05: a = .9 x .95 + .1 x .5 = .905; q = .1 x .5 + .095 x .03
    assert implied_acceptance(0.1, 0.5, 0.05) == pytest.approx(0.905)
    assert step_hazard("strong_only", 0.1, 0.03, 0.5, 0.05) == 0.03
    assert step_hazard("weak_only", 0.1, 0.03, 0.5, 0.05) == 0.1
    for name in ("spec_agent", "step_verification"):
        assert step_hazard(name, 0.1, 0.03, 0.5, 0.05) == pytest.approx(0.05 + 0.095 * 0.03)


@given(p, p, p)
def test_a_perfect_reviewer_leaves_only_the_strong_author_s_errors(weak, strong, false_reject):
    accepted = implied_acceptance(weak, 1.0, false_reject)
    assert step_hazard("spec_agent", weak, strong, 1.0, false_reject) == pytest.approx((1 - accepted) * strong)


@given(p, p)
def test_a_blind_reviewer_leaves_the_weak_model_s(weak, strong):
    assert implied_acceptance(weak, 0.0, 0.0) == pytest.approx(1.0)
    assert step_hazard("spec_agent", weak, strong, 0.0, 0.0) == pytest.approx(weak)
