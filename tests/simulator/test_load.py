"""Loads: how many trajectories live when, and that random streams do not disturb each other."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import simpy

from hwprofiles.errors import InputError
from simulator.load import Demand, poisson_gaps, streams, task_order, uniforms


def lives(demand, life_s=1.0, until=None, seed=0):
    """(start, end) of every trajectory, the run ending with the last counted one."""
    env = simpy.Environment()
    enough = env.event()
    spans = {}

    def life(number):
        start = env.now
        spans[number] = (start, None)
        yield env.timeout(life_s)
        spans[number] = (start, env.now)
        if all(spans.get(i, (0, None))[1] is not None for i in range(demand.n_warmup + demand.n_trajectories)):
            enough.succeed()

    demand.start(env, life, enough, streams(seed, "arrivals")["arrivals"])
    env.run(until=until or enough)
    return spans


def test_closed_loop_keeps_the_agents_busy():
    demand = Demand(n_trajectories=10, concurrency=4)
    spans = lives(demand)
    assert demand.n_warmup == 4
    assert [number for number in spans if demand.counts(number)] == list(range(4, 14))
    for number, (start, end) in spans.items():
        assert start == number // 4
        assert end is None or end == start + 1
    # the last counted one (13) is never alone: two that are not counted keep it company
    assert {number for number, (start, _) in spans.items() if start == 3} == {12, 13, 14, 15}


def test_one_agent_needs_no_warm_up_and_leaves_nothing_behind():
    demand = Demand(n_trajectories=5, concurrency=1)
    assert demand.n_warmup == 0
    assert sorted(lives(demand)) == [0, 1, 2, 3, 4]


def test_poisson_arrivals_have_the_rate_and_the_spread():
    """20,000 gaps at 2/s: mean 0.5 within 4 standard errors, coefficient of variation 1."""
    gaps = np.array(list(islice(poisson_gaps(2.0, streams(3, "arrivals")["arrivals"]), 20_000)))
    assert abs(gaps.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(gaps))
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)


def test_open_loop_does_not_wait_for_the_slow():
    demand = Demand(n_trajectories=40, arrival_rate_per_s=10.0)
    spans = lives(demand, life_s=100.0)
    assert demand.n_warmup == 10
    assert len(spans) > 500
    assert max(start for number, (start, _) in spans.items() if number < 50) < 15


def test_streams_are_independent_of_each_other():
    both = streams(5, "order", "arrivals")
    both["order"].random(1000)
    assert both["arrivals"].random() == streams(5, "order", "arrivals")["arrivals"].random()
    assert both["arrivals"].random() != both["order"].random()


def test_common_random_numbers_belong_to_the_trajectory():
    assert uniforms(1, 7, 20)[:5] == uniforms(1, 7, 5)
    assert uniforms(1, 7, 5) != uniforms(1, 8, 5)
    assert uniforms(2, 7, 5) != uniforms(1, 7, 5)


def test_task_order_visits_every_task_equally():
    order = list(islice(task_order(5, streams(0, "order")["order"]), 15))
    for block in (order[:5], order[5:10], order[10:]):
        assert sorted(block) == [0, 1, 2, 3, 4]
    assert order[:5] != order[5:10]


@pytest.mark.parametrize(
    "bad",
    [
        {"n_trajectories": 0, "concurrency": 1},
        {"n_trajectories": 1, "concurrency": 0},
        {"n_trajectories": 1},
        {"n_trajectories": 1, "concurrency": 1, "arrival_rate_per_s": 1.0},
        {"n_trajectories": 1, "arrival_rate_per_s": 0.0},
        {"n_trajectories": 1, "arrival_rate_per_s": float("nan")},
    ],
)
def test_nonsense_is_refused(bad):
    with pytest.raises(InputError):
        Demand(**bad)
    with pytest.raises(InputError, match="seed"):
        streams(-1, "a")
