"""Recorded arrivals: each trajectory starts at its time; those of one session wait for the one before."""

from __future__ import annotations

import pytest
import simpy

from hwprofiles.errors import InputError
from simulator.load import Demand, streams


def lives(demand, service_s):
    """(number, start, end) of all trajectories that take `service_s`."""
    env, enough, rows = simpy.Environment(), None, []
    enough = env.event()
    left = [demand.n_trajectories]

    def life(number):
        start = env.now
        yield env.timeout(service_s)
        rows.append((number, start, env.now))
        left[0] -= demand.counts(number)
        if not left[0] and not enough.triggered:
            enough.succeed()

    demand.start(env, life, enough, streams(0, "arrivals")["arrivals"])
    env.run(enough)
    return sorted(rows)


def test_arrivals_come_at_their_times():
    times = tuple((t, None) for t in (0.0, 0.0, 0.5, 4.0, 4.2))
    demand = Demand(n_trajectories=4, arrivals=times)
    assert demand.kind == "recorded"
    assert demand.n_warmup == 1
    assert [start for _, start, _ in lives(demand, 3.0)] == [t for t, _ in times]


def test_turns_of_a_session_wait_for_each_other():
    times = ((0.0, "a"), (0.1, "b"), (1.0, "a"), (9.0, "a"), (1e3, None))
    demand = Demand(n_trajectories=4, arrivals=times)
    assert demand.kind == "recorded_sessions"
    starts = {number: start for number, start, _ in lives(demand, 5.0)}
    assert starts == {0: 0.0, 1: 0.1, 2: 5.0, 3: 10.0, 4: 1e3}


def test_kinds_are_named():
    assert Demand(n_trajectories=1, concurrency=2).kind == "closed"
    assert Demand(n_trajectories=1, arrival_rate_per_s=2.0).kind == "poisson"


def test_too_few_arrivals_are_refused():
    with pytest.raises(InputError, match="2 recorded arrivals are fewer than 4 counted trajectories and 1 before them"):
        Demand(n_trajectories=4, arrivals=((0.0, None), (1.0, None)))
    with pytest.raises(InputError, match="give exactly one"):
        Demand(n_trajectories=1, concurrency=1, arrivals=((0.0, None),))
