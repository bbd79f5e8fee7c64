"""Links: outages as an alternating renewal process, jitter of the stated mean, time-outs that end with a reason."""

from __future__ import annotations

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from simulator.latency import Lognormal
from simulator.links import Link, LinkRules, Outages
from simulator.world import Ended


def link(seed=0, **rules):
    return Link(simpy.Environment(), LinkRules(**rules), seed)


def send(a_link, at_s):
    """Send something at `at_s`; seconds until it left, or the reason why it never did."""
    env = a_link.env

    def one():
        yield env.timeout(at_s - env.now)
        return (yield from a_link.wait())

    return env.run(env.process(one()))


def test_the_share_of_time_down_is_that_of_the_means():
    """P(down) = down / (up + down); what is left of an outage has its mean, times being without memory."""
    outages = Outages(30.0, 10.0, np.random.default_rng(1))
    times = np.arange(0.0, 400_000.0, 7.3)
    left = np.array([outages.up_at(t) - t for t in times])
    assert (left > 0).mean() == pytest.approx(0.25, abs=0.01)
    assert left[left > 0].mean() == pytest.approx(10.0, rel=0.04)


def test_a_jump_over_many_outages_keeps_the_long_run():
    """A clock that leaps ahead draws its state from the long run in no time."""
    down = []
    for seed in range(600):
        outages = Outages(2e-3, 6e-3, np.random.default_rng(seed))
        down.append(outages.up_at(1e9) > 1e9)
    assert np.mean(down) == pytest.approx(0.75, abs=0.06)


def test_what_is_sent_in_an_outage_waits_for_its_end():
    weather = link(outage_every_s=1e-3, outage_s=50.0)
    assert send(weather, 1.0) > 0
    assert send(weather, weather.env.now) == 0.0


def test_a_timed_out_request_is_sent_again_and_then_given_up():
    rules = {"outage_every_s": 1e-6, "outage_s": 1e9, "timeout_s": 2.0, "retries": 3, "backoff_s": 1.0}
    weather = link(**rules)
    with pytest.raises(Ended, match="the link was down for 15 s, 3 retries included"):
        send(weather, 1.0)
    assert weather.env.now == pytest.approx(1.0 + 4 * 2 + 1 + 2 + 4)


def test_a_link_without_outages_takes_no_time():
    assert send(link(jitter_s=0.1, jitter=Lognormal(1.0)), 1.0) == 0.0


def test_jitter_adds_its_mean_over_many_requests():
    """Its mean is in the round trip, so what is drawn is the deviation: mean 0, never below -jitter / 2 each way."""
    weather = link(jitter_s=0.2, jitter=Lognormal(0.8))
    drawn = np.array([weather.jitter_s(n, 3, 1) for n in range(4000)])
    assert drawn.min() >= -0.1
    assert np.abs(drawn.mean(axis=0)).max() < 0.006
    assert weather.jitter_s(7, 3, 1) == link(jitter_s=0.2, jitter=Lognormal(0.8)).jitter_s(7, 3, 1)


@given(
    st.floats(1e-4, 1e4), st.floats(1e-4, 1e6), st.lists(st.floats(0, 1e9), min_size=1, max_size=30), st.integers(0, 9)
)
def test_the_link_is_up_again_at_a_later_time(up, down, times, seed):
    outages = Outages(up, down, np.random.default_rng(seed))
    for now in sorted(times):
        again = outages.up_at(now)
        assert again >= now
        assert outages.up_at(now) == again
