"""Rate limits: long-run rate of a token bucket, first come first served, refusals that end with a reason."""

from __future__ import annotations

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from hwprofiles.errors import InputError
from simulator.api_limits import Gate, LimitRules, TokenBucket
from simulator.world import Ended


def flood(n, tokens=100, agents=None, **rules):
    """`n` requests at once, or from `agents` that ask again at once: times let in, and reasons of the others."""
    env = simpy.Environment()
    gate = Gate(env, LimitRules(**rules), 0, "strong")
    times, reasons = [], []

    def one(count):
        for _ in range(count):
            try:
                yield from gate.enter(tokens)
                times.append(env.now)
            except (Ended, InputError) as error:
                reasons.append(str(error))
        yield env.timeout(0)

    for _ in range(agents or n):
        env.process(one(n // agents if agents else 1))
    env.run()
    return np.array(times), reasons


def test_a_burst_of_a_minute_then_the_rate():
    """60 at once, then one a second."""
    times, _ = flood(300, requests_per_min=60.0)
    assert (times[:60] == 0).all()
    assert times[60:] == pytest.approx(np.arange(1, 241))


@pytest.mark.parametrize("rules", [{"requests_per_min": 30.0}, {"tokens_per_min": 3000.0}])
@pytest.mark.parametrize("retries", [None, 100])
def test_the_long_run_rate_is_the_limit(rules, retries):
    times, reasons = flood(600, agents=3, **rules, retries=retries)
    assert not reasons
    assert (len(times) - 30) / times[-1] == pytest.approx(0.5, rel=0.01)


def test_the_tighter_of_two_limits_holds():
    times, _ = flood(200, requests_per_min=600.0, tokens_per_min=1200.0)
    assert (len(times) - 12) / times[-1] == pytest.approx(12 / 60, rel=0.01)


def test_waiting_is_first_come_first_served():
    env = simpy.Environment()
    gate = Gate(env, LimitRules(requests_per_min=1.0), 0, "strong")
    order = []

    def one(name):
        yield env.timeout(name * 1e-3)
        yield from gate.enter(1)
        order.append(name)

    for name in range(20):
        env.process(one(name))
    env.run()
    assert order == list(range(20))


def test_refused_requests_end_with_a_reason():
    times, reasons = flood(40, requests_per_min=1e-3, retries=2, backoff_s=0.5)
    assert len(times) == 3
    assert len(reasons) == 37
    assert "the API's rate limit refused a request 3 times" in reasons[0]


def test_a_request_over_the_limit_can_never_pass():
    _, reasons = flood(1, tokens=2000, tokens_per_min=1000.0)
    assert reasons == ["a request of 2000 tokens can never pass strong.limits.tokens_per_min = 1000"]


@given(
    st.floats(1e-6, 1e6),
    st.one_of(st.none(), st.integers(0, 4)),
    st.integers(1, 12),
    st.integers(0, 300),
    st.sampled_from(["requests_per_min", "tokens_per_min"]),
)
def test_every_request_passes_or_ends(rate, retries, n, tokens, which):
    times, reasons = flood(n, tokens=tokens, **{which: rate}, retries=retries)
    assert len(times) + len(reasons) == n
    assert (np.diff(times) >= 0).all()


def test_a_bucket_never_overflows():
    bucket = TokenBucket(60.0)
    bucket.take(60)
    assert bucket.wait_s(1e6, 60.0) == 0.0
    assert bucket.level == 60.0
    bucket.take(60)
    assert bucket.wait_s(1e6, 30.0) == pytest.approx(30.0)
