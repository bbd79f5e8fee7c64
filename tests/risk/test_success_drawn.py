"""Success drawn along simulated trajectories agrees with the exact chain, whatever the strategy."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from hwprofiles.errors import InputError
from simulator.case import Case, prepare
from simulator.run import simulate
from simulator.scenario_file import load_scenario
from simulator.success_chain import chain_success
from simulator.success_drawn import DrawnSuccess, drawn_success

BASE = ("workload.n=4", "workload.steps=6", "quality.weak_hazard=0.15", "quality.irreversible=0.1")
BASE = (*BASE, "quality.recovery_weak=0.1")
APART = ("quality.heterogeneity=0.3", "quality.reviewer_correlation=0.8")
STRATEGIES = ("strong_only", "weak_only", "task_router", "step_router", "step_speculation", "spec_agent")
MORE = ("step_verification", "spec_agent_pipelined")


@cache
def _case(n: int, *settings: str) -> Case:
    return prepare(load_scenario("autonomous-h200", [*BASE, f"load.n_trajectories={n}", *settings]))


@cache
def _drawn(strategy: str, n: int, *settings: str) -> DrawnSuccess:
    case = _case(n, *settings)
    return drawn_success(case, [simulate(case, strategy, 1)])


def _agrees(strategy: str, n: int, *settings: str) -> None:
    found = _drawn(strategy, n, *settings)
    assert found.n == n
    error = found.values.std(ddof=1) / n**0.5
    assert found.value == pytest.approx(chain_success(_case(n, *settings), strategy, None)[0], abs=4 * error)
    assert found.low <= found.value <= found.high


@pytest.mark.parametrize("settings", [(), APART], ids=["alike", "apart"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_drawn_success_is_the_chains(strategy: str, settings: tuple[str, ...]) -> None:
    _agrees(strategy, 120, *settings)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [(), APART, ("quality.recovery_mode=immediate", *APART)])
@pytest.mark.parametrize("strategy", [*STRATEGIES, *MORE])
def test_drawn_success_is_the_chains_over_many(strategy: str, settings: tuple[str, ...]) -> None:
    _agrees(strategy, 2000, *settings)


def test_strategies_share_their_uniforms() -> None:
    """The same steps written by the same model err alike: differences between strategies are no noise."""
    assert np.array_equal(_drawn("step_speculation", 120).values, _drawn("strong_only", 120).values)
    assert np.all(_drawn("weak_only", 120).values <= _drawn("strong_only", 120).values)


def test_the_same_run_gives_the_same_success() -> None:
    case = _case(120)
    again = drawn_success(case, [simulate(case, "spec_agent", 1)])
    assert np.array_equal(again.values, _drawn("spec_agent", 120).values)


def test_weights_have_mean_one() -> None:
    """Hazards of 0: every trajectory succeeds, and what is averaged is its weight for difficulty."""
    sure = ("quality.weak_hazard=0", "quality.strong_hazard=0", *APART)
    assert _drawn("spec_agent", 120, *sure).value == pytest.approx(1)


def test_failing_holds_are_left_to_the_plan() -> None:
    with pytest.raises(InputError, match="holds of a simulated run work"):
        drawn_success(_case(120, "quality.hold_failure=0.1"), [])


def test_runs_without_steps_are_refused() -> None:
    case = _case(120)
    with pytest.raises(InputError, match="no counted trajectory"):
        drawn_success(case, [simulate(case, "strong_only", 1, details=False)])


def test_the_command_adds_success(run_cli) -> None:
    args = ["simulate", "autonomous-h200", "--strategy", "spec_agent", "--success", "--json"]
    sets = [x for s in (*BASE, "load.n_trajectories=20", "run.seeds=2") for x in ("--set", s)]
    done = run_cli(*args, *sets)
    assert done.code == 0, done.err
    found = json.loads(done.out)["success"]["spec_agent"]
    assert found["n"] == 40
    assert found["low"] <= found["value"] <= found["high"]
