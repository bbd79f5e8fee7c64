"""Tool runs: closed forms of retries and time-outs, slots as M/M/c, keyed randomness, hangs that end."""

from __future__ import annotations

import math

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from costmodel.pricing import WALL
from costmodel.session import ToolRun
from hwprofiles.errors import InputError
from simulator.latency import Constant, Lognormal, Pareto
from simulator.theory import mmc_wait_s
from simulator.tools import Rule, Timed
from simulator.world import Ended, World


def seconds(rule, mean_s, drawn):
    return sum(a.wait_s + a.seconds for a in rule.attempts(mean_s, drawn))


def run(rule, mean_s, *, number=0, seed=0):
    """One run alone: parts, and the time it took."""
    env = simpy.Environment()
    visit = World(env, seed=seed, tools=[[Timed(rule, mean_s)]]).visit(number, 0)
    process = env.process(visit.tool(ToolRun(0, 0.0)))
    return env.run(process), env.now


def test_retries_have_a_closed_form():
    """Failures of 0.3, two retries, back-off 1 then 2: 1 + .3 (1 + 1) + .09 (1 + 2) attempts and pauses."""
    rule = Rule(name="t", law=Constant(), failure=0.3, retries=2, backoff_s=1.0)
    assert rule.mean_s(1.0) == pytest.approx(1 + 0.3 * 2 + 0.09 * 3)
    assert Rule(name="t", law=Constant(), failure=1.0, failure_s=0.5, retries=3).mean_s(9.0) == pytest.approx(2.0)


def test_a_time_out_truncates_the_mean():
    law = Lognormal(1.0)
    rule = Rule(name="t", law=law, timeout_s=3.0)
    assert rule.mean_s(2.0) == pytest.approx(2.0 * law.mean_below(1.5))
    assert Rule(name="t", law=Constant(), timeout_s=1.0, retries=2).mean_s(5.0) == pytest.approx(3.0)


def test_hangs_with_a_time_out_cost_the_time_out():
    rule = Rule(name="t", law=Constant(), hang=0.25, timeout_s=8.0)
    assert rule.mean_s(2.0) == pytest.approx(0.25 * 8 + 0.75 * 2)


@given(
    st.sampled_from([Constant(), Lognormal(1.2), Pareto(1.5, 1e3)]),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.sampled_from([None, 0.0, 0.7]),
    st.sampled_from([0.5, 2.0, math.inf]),
    st.integers(0, 3),
)
def test_the_mean_is_that_of_the_attempts(law, failure, hang, failure_s, timeout_s, retries):
    """Against a grid of all outcomes: kinds by their probabilities, times by midpoints of the law."""
    rule = Rule(
        name="t", law=law, failure=failure, hang=hang, failure_s=failure_s, timeout_s=timeout_s, retries=retries,
        backoff_s=0.3,
    )  # fmt: skip
    rng = np.random.default_rng(5)
    drawn = rng.random((3000, 2 * (retries + 1)))
    taken = np.array([seconds(rule, 1.0, row) for row in drawn.tolist()])
    ended = taken[np.isfinite(taken)]
    if len(ended) < 100:
        return
    error = ended.std(ddof=1) / math.sqrt(len(ended))
    assert abs(ended.mean() - rule.mean_s(1.0)) <= 4.5 * error + 1e-9


def test_a_run_takes_what_its_attempts_take():
    rule = Rule(name="t", law=Lognormal(1.0), failure=0.4, retries=3, backoff_s=0.2, timeout_s=4.0)
    for number in range(50):
        parts, now = run(rule, 1.0, number=number)
        assert sum(p.cost[WALL] for p in parts) == pytest.approx(now)
        assert {p.phase for p in parts} == {"tool"}


def test_a_step_takes_the_same_time_whenever_it_runs():
    rule = Rule(name="t", law=Lognormal(1.0))
    assert run(rule, 1.0, number=4)[1] == run(rule, 1.0, number=4)[1]
    assert len({run(rule, 1.0, number=n)[1] for n in range(20)}) == 20
    assert run(rule, 1.0)[1] != run(rule, 1.0, seed=1)[1]


def test_a_hang_without_a_time_out_ends_with_a_reason():
    with pytest.raises(Ended, match="t hangs, and no timeout_s is set"):
        run(Rule(name="t", law=Constant(), hang=1.0), 1.0)
    assert run(Rule(name="t", law=Constant(), hang=1.0, timeout_s=2.0, retries=1), 1.0)[1] == 4.0


def test_failure_and_hang_are_one_probability():
    with pytest.raises(InputError, match="at most 1"):
        Rule(name="t", law=Constant(), failure=0.6, hang=0.6)


def queue(n, rate, rule, mean_s, seed=3):
    """Poisson runs of one rule; waits, most at once, and mean number in service."""
    env = simpy.Environment()
    world = World(env, seed=seed, tools=[[Timed(rule, mean_s)]])
    waits, busy = [], [0, 0, 0.0]

    def one(number):
        parts = yield from world.visit(number, 0).tool(ToolRun(0, 0.0))
        waits.append(sum(p.cost[WALL] for p in parts if p.phase == "queue"))
        busy[2] += sum(p.cost[WALL] for p in parts if p.phase == "tool")

    def source():
        rng = np.random.default_rng(seed)
        for number in range(n):
            yield env.timeout(rng.exponential(1 / rate))
            env.process(one(number))

    env.process(source())
    while env.peek() < math.inf:
        env.step()
        slots = world._slots.get(rule.name)
        busy[0] = max(busy[0], slots.count if slots else 0)
    assert len(waits) == n
    return np.array(waits), busy[0], busy[2] / env.now


class Exponential(Constant):
    """ln(1 / (1 - u)): what M/M/c needs."""

    def quantile(self, u):
        return -math.log1p(-u)


def test_slots_are_an_mmc_queue():
    waits, most, _ = queue(20_000, 3.0, Rule(name="t", law=Exponential(), concurrency=4), 1.0)
    assert most == 4
    assert waits.mean() == pytest.approx(mmc_wait_s(3.0, 1.0, 4), rel=0.12)


def test_without_a_limit_it_is_mg_infinity():
    """Nobody waits, and the mean number in service is rate * mean (insensitive to the law)."""
    waits, most, in_service = queue(20_000, 5.0, Rule(name="t", law=Pareto(1.8, 1e3)), 0.8)
    assert not waits.any()
    assert most == 0
    assert in_service == pytest.approx(4.0, rel=0.06)
