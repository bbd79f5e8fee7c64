"""Routers: who serves, and how much of a trajectory's prefix that replica still holds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.routing import Router, RouteRule


def replicas(*outstanding, max_seqs=4):
    return [SimpleNamespace(n_outstanding=n, cost=SimpleNamespace(max_seqs=max_seqs)) for n in outstanding]


def test_a_trajectory_keeps_its_replica_by_default():
    router = Router(replicas(9, 0), RouteRule())
    assert [router.seat() for _ in range(4)] == [0, 1, 0, 1]
    assert router.pick("a", 0, 500, 550) == (0, 500)
    router.leave(1)
    assert router.seat() == 1


def test_round_robin_takes_turns():
    router = Router(replicas(0, 0, 0), RouteRule(router="round_robin"))
    assert [router.seat() for _ in range(4)] == [0, 1, 2, 0]
    per_request = Router(replicas(0, 0), RouteRule(router="round_robin", per_request=True), shared_tokens=64)
    assert [per_request.pick("a", 0, n, n + 500) for n in (64, 500, 800)] == [(0, 64), (1, 64), (0, 500)]


def test_the_least_loaded_replica_serves_the_request():
    router = Router(replicas(3, 1, 2), RouteRule(per_request=True))
    assert router.pick("a", 0, 100, 150) == (1, 0)


def test_affinity_follows_the_prefix_until_the_batch_is_full():
    engines = replicas(0, 0)
    router = Router(engines, RouteRule(router="prefix_affinity"))
    assert router.pick("a", 0, 0, 950) == (0, 0)
    engines[0].n_outstanding = 3
    assert router.pick("a", 0, 900, 1300) == (0, 900)
    engines[0].n_outstanding = 4
    assert router.pick("a", 0, 1500, 1550) == (1, 0)
    engines[0].n_outstanding = 0
    assert router.pick("a", 0, 1400, 1450) == (1, 1400)
    assert router.pick("b", 0, 0, 50) == (0, 0)


def test_a_context_that_went_back_voids_what_others_hold():
    """Replica 0 holds 950 tokens; the context is cut to 300 and grows again elsewhere: only 300 of them still agree."""
    router = Router(replicas(0, 0), RouteRule(router="round_robin", per_request=True))
    assert router.pick("a", 0, 0, 950) == (0, 0)
    assert router.pick("a", 0, 300, 350) == (1, 0)
    assert router.pick("a", 0, 1200, 1250) == (0, 300)


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=40),
    st.sampled_from(["least_loaded", "round_robin", "prefix_affinity"]),
    st.integers(0, 512),
)
def test_nobody_reuses_more_than_there_is(reusable, name, shared):
    router = Router(replicas(0, 1, 2), RouteRule(router=name, per_request=True), shared)
    for n in reusable:
        replica, found = router.pick("a", 0, n, n + 40)
        assert 0 <= found <= n
        assert replica in (0, 1, 2)


@pytest.mark.parametrize("per_request", [False, True])
def test_one_replica_is_always_chosen(per_request):
    router = Router(replicas(7), RouteRule(per_request=per_request))
    assert router.pick("a", router.seat(), 10, 20)[0] == 0
