"""Quantiles of Student's t against scipy's."""

from __future__ import annotations

import pytest
from scipy.special import stdtrit

from simulator.student import t_quantile


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 30, 31, 200])
@pytest.mark.parametrize("level", [0.01, 0.5, 0.9, 0.95, 0.998])
def test_quantiles_are_those_of_scipy(level, df):
    assert t_quantile(level, df) == pytest.approx(stdtrit(df, (1 + level) / 2), rel=1e-9)
