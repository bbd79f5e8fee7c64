"""Closed forms of waiting against exact values, and what the closed form of a pool must obey."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.size_queue import PoolWork
from simulator.theory import md1_wait_s, mdc_wait_s, mg1_wait_s, mgc_wait_s, mmc_wait_s


def exact_mdc_wait_s(rate: float, service: float, c: int) -> float:
    """Crommelin (1932): who is in service now has left one service time later, so N' = max(N - c, 0) + Poisson(a)."""
    a, n = rate * service, 400
    arrivals = np.exp([k * math.log(a) - a - math.lgamma(k + 1) for k in range(n)])
    move = np.zeros((n, n))
    for i in range(n):
        left = max(i - c, 0)
        move[i, left:] = arrivals[: n - left]
        move[i, -1] += 1 - move[i].sum()
    equations = np.vstack([move.T - np.eye(n), np.ones(n)])
    chance = np.linalg.lstsq(equations, np.append(np.zeros(n), 1.0), rcond=None)[0]
    return float(chance @ np.maximum(np.arange(n) - c, 0)) / rate


@pytest.mark.parametrize(
    ("c", "rho", "waits"),
    [(1, 0.8, 2.0), (2, 0.8, 0.9), (3, 0.8, 0.54), (5, 0.9, 0.77), (10, 0.9, 0.35)],
)
def test_the_exact_values_are_those_of_the_tables(c, rho, waits):
    """M/D/c: mean wait in service times (tables of Hillier and Yu 1981, two digits)."""
    assert exact_mdc_wait_s(rho * c, 1.0, c) == pytest.approx(waits, rel=0.06)


@pytest.mark.parametrize("c", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("rho", [0.5, 0.7, 0.8, 0.9, 0.95])
def test_cosmetatos_is_near_the_exact_value(c, rho):
    exact = exact_mdc_wait_s(rho * c, 1.0, c)
    assert mdc_wait_s(rho * c, 1.0, c) == pytest.approx(exact, rel=0.06 if rho == 0.5 else 0.02)


@given(st.floats(0.05, 0.95), st.integers(1, 30), st.floats(0.0, 4.0))
def test_mgc_joins_its_exact_ends(rho, c, v):
    assert mgc_wait_s(rho * c, 1.0, 1.0, c) == pytest.approx(mmc_wait_s(rho * c, 1.0, c))
    assert mgc_wait_s(rho, 1.0, v, 1) == pytest.approx(mg1_wait_s(rho, 1.0, v))
    assert mgc_wait_s(rho, 1.0, 0.0, 1) == pytest.approx(md1_wait_s(rho, 1.0))
    assert mgc_wait_s(rho * c, 1.0, v, c) <= mgc_wait_s(rho * c, 1.0, v + 0.1, c) * (1 + 1e-9)


def pool(b_max: int = 1, decode: float = 0.7, prefill: float = 0.3, marginal: float = 0.1) -> PoolWork:
    """Two requests per trajectory, equal ones; a decode step of n sequences takes 1 + marginal (n - 1) of one."""
    sizes = np.array(sorted({1, b_max}), dtype=float)
    return PoolWork(
        decode_s=np.full(4, decode),
        requests=np.full(4, 2.0),
        prefill_s=prefill,
        prefill_square_s2=(prefill / 2) ** 2,
        service_s=(decode + prefill) / 2,
        service_variance_s2=0.0,
        batches=sizes,
        step_s=0.01 * (1 + marginal * (sizes - 1)),
    )


def test_one_sequence_at_a_time_is_mdc():
    assert pool().added_s(2.4, 3) == pytest.approx(2 * mdc_wait_s(4.8, 0.5, 3))


@given(st.floats(0.01, 20), st.integers(1, 20), st.sampled_from([1, 2, 16, 256]))
def test_more_replicas_and_less_load_never_hurt(rate, replicas, b_max):
    work = pool(b_max)
    here = work.added_s(rate, replicas).max()
    assert work.added_s(rate, replicas + 1).max() <= here * (1 + 1e-9)
    assert work.added_s(rate * 0.9, replicas).max() <= here * (1 + 1e-9)
    assert here >= 0
    if rate / replicas * work.capacity_s() >= 1:
        assert here == math.inf


def test_an_empty_pool_adds_nothing_and_batching_raises_capacity():
    assert pool(256).added_s(1e-9, 1).max() < 1e-6
    assert pool(256).capacity_s() < 0.45 * pool(1).capacity_s()
