"""Small scenarios, planned once per session."""

from __future__ import annotations

from functools import cache

import pytest

from simulator.case import prepare
from simulator.outcome import Evaluator
from simulator.plan import Plan, plan
from simulator.sampling import draw_samples, inputs
from simulator.scenario import Scenario
from simulator.scenario_file import load_scenario
from simulator.verdict import ratio


@cache
def _scenario(name: str, *settings: str) -> Scenario:
    return load_scenario(name, ["run.samples=16", "workload.n=4", *settings])


@cache
def _planned(name: str, *settings: str) -> Plan:
    return plan(_scenario(name, *settings))


@pytest.fixture(scope="session")
def small():
    """A bundled scenario cut to four trajectories and sixteen samples, with `KEY=VALUE` settings."""
    return _scenario


@pytest.fixture(scope="session")
def planned():
    """The plan of such a scenario; the same settings are planned once."""
    return _planned


@pytest.fixture(scope="session")
def central_ratio():
    """Central ratio of a strategy to strong-only in a scenario, without the rest of a plan."""

    def find(scenario, strategy, objective):
        case = prepare(scenario)
        ev = Evaluator(case, draw_samples(inputs(case), 16, 0))
        mine, theirs = (ev.outcome(name, scenario.protocol.window) for name in (strategy, "strong_only"))
        return ratio(case, ev, mine, theirs, objective).value

    return find
