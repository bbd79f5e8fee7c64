"""The search for the cheapest fleet, on judges whose answer is known."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from costmodel.protocol import Role
from simulator.size_runs import Judged
from simulator.size_search import Fleet, Search

ROLES = (Role.WEAK, Role.STRONG)


def searched(true_score, guess, price=(1.0, 8.0), most=12, allowed=lambda f: True):
    def judge(fleet):
        score = true_score(fleet)
        return Judged(meets=score <= 1, estimates=(), p95=None, score=score, n_runs=4, energy_j=0.0, api_usd=0.0)

    search = Search(
        roles=ROLES,
        least=dict.fromkeys(ROLES, 1),
        most=most,
        cost=lambda f: price[0] * f.weak + price[1] * f.strong,
        allowed=allowed,
        score=guess,
        judge=judge,
    )
    return search.run(), search


def queueing(a_weak, a_strong):
    """A score that falls with both pools and has no bound where one is overloaded."""

    def score(fleet):
        if fleet.weak <= a_weak or fleet.strong <= a_strong:
            return math.inf
        return 0.5 + 0.2 / (fleet.weak - a_weak) + 0.2 / (fleet.strong - a_strong)

    return score


@given(st.floats(0.1, 7.9), st.floats(0.1, 4.9), st.floats(0.8, 1.25))
def test_the_cheapest_fleet_is_found_although_the_guess_is_off(a_weak, a_strong, off):
    truth = queueing(a_weak, a_strong)
    best, search = searched(truth, lambda f: off * truth(f))
    fleets = [Fleet(w, s) for w in range(1, 13) for s in range(1, 13)]
    cheapest = min((search.cost(f), f) for f in fleets if truth(f) <= 1)[1]
    assert best is not None
    assert search.cost(best) <= search.cost(cheapest) + 1.0, "within one weak replica"
    assert len(search.judged) <= 24


def test_no_fleet_is_simulated_when_a_larger_one_failed():
    _, search = searched(queueing(3.5, 1.5), lambda f: 0.5)
    seen = list(search.judged)
    for i, fleet in enumerate(seen):
        failed = [f for f in seen[:i] if not search.judged[f].meets]
        assert not any(f.covers(fleet) for f in failed)


def test_budgets_and_impossible_goals():
    assert searched(lambda f: 2.0, lambda f: 2.0)[0] is None
    assert searched(lambda f: 2.0, lambda f: 2.0)[1].judged == {}
    best, search = searched(queueing(3.5, 1.5), queueing(3.5, 1.5), allowed=lambda f: f.weak + f.strong <= 5)
    assert best is None
    assert all(f.weak + f.strong <= 5 for f in search.judged)


def test_covers():
    assert Fleet(2, 3).covers(Fleet(2, 2))
    assert Fleet(1, 1).covers(Fleet(1, 1))
    assert not Fleet(2, 3).covers(Fleet(3, 2))
