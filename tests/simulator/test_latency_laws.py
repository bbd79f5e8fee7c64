"""Latency laws: mean one, truncated means and tails in closed form, quantiles that follow them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprofiles.errors import InputError
from simulator.latency import Constant, Empirical, Lognormal, Pareto, empirical, read_times

LAWS = [
    Constant(),
    Lognormal(0.5),
    Lognormal(2.0),
    Pareto(1.0, 1000.0),
    Pareto(1.3, 1e6),
    Pareto(3.0, 20.0),
    Empirical((0.2, 0.5, 0.5, 2.8)),
]
MIDPOINTS = (np.arange(400_000) + 0.5) / 400_000


@pytest.fixture(scope="module", params=LAWS, ids=str)
def law(request):
    return request.param


def values(law, n=400_000):
    return np.array([law.quantile(u) for u in MIDPOINTS[:: 400_000 // n]])


def test_the_mean_is_one(law):
    assert law.mean_below(math.inf) == pytest.approx(1.0, abs=1e-12)
    assert law.beyond(math.inf) == 0.0


@pytest.mark.parametrize("most", [0.05, 0.4, 1.0, 3.0, 20.0])
def test_truncated_means_and_tails_are_those_of_the_quantiles(law, most):
    y = values(law, 40_000)
    assert law.mean_below(most) == pytest.approx(np.minimum(y, most).mean(), rel=2e-3)
    assert law.beyond(most) == pytest.approx((y > most).mean(), abs=1e-3)


def test_quantiles_rise(law):
    y = values(law, 1000)
    assert (np.diff(y) >= 0).all()
    assert y.min() >= 0


@given(st.floats(0.1, 20), st.floats(1.001, 1e9), st.floats(0, 0.999999))
def test_a_bounded_pareto_stays_inside_its_bounds(shape, spread, u):
    law = Pareto(shape, spread)
    assert law.least * (1 - 1e-9) <= law.quantile(u) <= law.least * spread * (1 + 1e-6)
    assert 0 < law.least <= 1
    assert law.mean_below(law.least * spread * 2) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(
    "wrong", [(Lognormal, (0.0,)), (Lognormal, (9.0,)), (Pareto, (0.0, 2.0)), (Pareto, (1.5, 1.0))]
)
def test_parameters_out_of_range_are_refused(wrong):
    kind, arguments = wrong
    with pytest.raises(InputError, match="must be"):
        kind(*arguments)


def test_recorded_times_become_a_law(tmp_path):
    file = tmp_path / "times.txt"
    file.write_text("# seconds\n0.5\n\n1.5\n4\n")
    law, mean = empirical(read_times(file), "times")
    assert mean == 2.0
    assert law.values == (0.25, 0.75, 2.0)
    with pytest.raises(InputError, match="all times are 0"):
        empirical([0.0], "times")


@pytest.mark.parametrize(
    ("text", "fault"), [("1\nx\n", "line 2: must be a number"), ("-1\n", "line 1"), ("nan\n", "line 1"), ("\n", "1 to")]
)
def test_a_file_of_times_that_is_wrong_names_the_line(tmp_path, text, fault):
    file = tmp_path / "times.txt"
    file.write_text(text)
    with pytest.raises(InputError, match=fault):
        read_times(file)
