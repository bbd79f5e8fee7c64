"""`risk`: what the grid must show, exactly; drawn damage agrees; frontier and safe windows are what they say."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from costmodel.chain import StepRisk, reviewed
from costmodel.hazards import Hazards
from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.risk import Risk, risk
from simulator.risk_drawn import drawn_damage
from simulator.risk_patterns import pattern
from simulator.scenario_file import load_scenario

WINDOWS, FAILURES = (1, 2, 4, 8), (0.0, 0.02, 0.2)
READ, REPLY = StepRisk(Effect.READ), StepRisk(Effect.REPLY)
TASK = (READ, READ, StepRisk(Effect.WRITE, "a"), READ, READ, READ, StepRisk(Effect.WRITE, "b"), READ, REPLY) * 2


@cache
def _risk(name: str, *settings: str, check: int = 0) -> Risk:
    exact = ("verbosity=1", "workload.thinking_tokens=150") if name != "llama-a100" else ()
    scenario = load_scenario(name, ["run.samples=16", "workload.n=4", "verdict_tokens=10", *exact, *settings])
    return risk(scenario, steps=(10, 40), windows=WINDOWS, hold_failures=FAILURES, check=check)


SCENARIOS = [
    ("llama-a100",),
    ("autonomous-h200",),
    ("autonomous-h200", "quality.hold_failure_sticky=false"),
    ("autonomous-h200", "quality.heterogeneity=0.2", "quality.reviewer_correlation=0.6"),
]


@pytest.mark.parametrize("given", SCENARIOS)
def test_risk_does_not_fall_with_hold_failure_or_a_doubled_window(given: tuple[str, ...]) -> None:
    found = _risk(*given)
    for cells in (found.cells, found.own):
        at = {(c.steps, c.window, c.hold_failure): c for c in cells}
        for steps in {c.steps for c in cells}:
            for f in FAILURES:
                line = [at[steps, w, f] for w in WINDOWS]
                assert all(b.excess.value >= a.excess.value - 1e-12 for a, b in pairwise(line))
            for w in WINDOWS:
                line = [at[steps, w, f] for f in FAILURES]
                assert all(b.excess.value >= a.excess.value - 1e-12 for a, b in pairwise(line))
                assert all(b.success.value <= a.success.value + 1e-12 for a, b in pairwise(line))


@pytest.mark.parametrize("given", SCENARIOS)
def test_cells_hold_together(given: tuple[str, ...]) -> None:
    found = _risk(*given)
    alone = {r["steps"]: r["damage_probability"] for r in found.strong_only}
    for c in (*found.cells, *found.own):
        assert 0 <= c.damage.low <= c.damage.value <= c.damage.high <= 1
        assert c.damage.value <= c.harms.value + 1e-12
        assert c.excess.value == pytest.approx(c.damage.value - alone[c.steps])
        assert 0 <= c.success.low <= c.success.value <= c.success.high <= 1


def test_without_hold_failure_the_window_is_no_risk() -> None:
    found = [c.damage.value for c in _risk("autonomous-h200").cells if c.hold_failure == 0 and c.steps == 40]
    assert found == pytest.approx([found[0]] * len(WINDOWS), rel=1e-12)


def test_misses_that_grow_with_depth_make_long_windows_worse() -> None:
    """Reviews that fade: success falls and damage rises with the window even where every hold holds."""
    cells = _risk("autonomous-h200", "quality.detection_depth_steps=2").cells
    held = [c for c in cells if c.hold_failure == 0 and c.steps == 40]
    assert all(b.damage.value > a.damage.value for a, b in pairwise(held))
    assert all(b.success.value < a.success.value for a, b in pairwise(held))


def test_no_damage_exactly_when_nothing_can_slip() -> None:
    """0 if hold failure is 0, detection 1 and the strong hazard 0; above 0 if any of the three is not."""
    safe = ("quality.detection=1", "quality.strong_hazard=0")
    found = _risk("autonomous-h200", *safe)
    for c in found.cells:
        assert (c.damage.value == 0) == (c.hold_failure == 0)
    for changed in (("quality.detection=0.999", safe[1]), (safe[0], "quality.strong_hazard=0.001")):
        assert all(c.damage.value > 0 for c in _risk("autonomous-h200", *changed).cells)


def test_long_tasks_of_every_window_are_computed() -> None:
    """200 steps, windows to 32, the whole grid of hold failures."""
    scenario = load_scenario("autonomous-h200", ["run.samples=16", "workload.n=4"])
    found = risk(scenario, steps=(200,), windows=(1, 32))
    assert len(found.cells) == 2 * 4
    assert all(c.damage.value > 0.5 for c in found.cells)


def test_safe_windows_stay_within_the_budget() -> None:
    found = _risk("autonomous-h200")
    at = {(c.steps, c.window, c.hold_failure): c for c in (*found.cells, *found.own)}
    for row in found.safe:
        for key, name in (("window", "damage"), ("window_in_excess", "excess")):
            values = {w: getattr(at[row["steps"], w, row["hold_failure"]], name).value for w in WINDOWS}
            safe = [w for w, v in values.items() if v <= found.budget]
            assert row[key] == (max(safe) if safe else None)  # windows double, so none below is unsafe


def test_the_frontier_keeps_what_nothing_beats() -> None:
    rows = _risk("autonomous-h200").frontier
    for row in rows:
        better = [
            o
            for o in rows
            if o["hold_failure"] == row["hold_failure"]
            and o["time_ratio"] < row["time_ratio"] - 1e-9
            and o["damage_probability"] < row["damage_probability"] - 1e-9
        ]
        assert not (row["efficient"] and better)
    for f in FAILURES:
        assert any(r["efficient"] for r in rows if r["hold_failure"] == f)


def test_the_time_ratio_is_the_plans() -> None:
    from simulator.plan import plan

    scenario = load_scenario("llama-a100", ["run.samples=16", "workload.n=4", "verdict_tokens=10"])
    ours = {r["window"]: r["time_ratio"] for r in _risk("llama-a100").frontier}
    theirs = plan(scenario).ratios
    assert ours[1] == pytest.approx(theirs["step_verification"]["time"].value)
    assert ours[4] == pytest.approx(theirs["spec_agent"]["time"].value)


def test_patterns_have_the_laws_shares() -> None:
    case = prepare(load_scenario("autonomous-h200", ["workload.n=6", "write_share=0.1"]))
    steps = pattern(case, 200)
    assert len(steps) == 200
    assert sum(s.effect is Effect.WRITE for s in steps) == 20
    assert steps[-1].effect is Effect.REPLY
    assert pattern(case, 200) == steps


@pytest.mark.parametrize("sticky", [True, False])
@pytest.mark.parametrize(("rare", "low", "high"), [(0.001, 1e-5, 3e-3), (0.003, 1e-4, 1e-2)])
@pytest.mark.parametrize("window", [1, 4])
def test_rare_damage_drawn_with_raised_hazards_is_the_exact_one(
    window: int, rare: float, low: float, high: float, sticky: bool
) -> None:
    h = Hazards(
        weak=2 * rare,
        strong=rare / 10,
        detection=1 - 2 * rare,
        false_reject=0.04,
        recovery_weak=0.2,
        recovery_strong=0.2,
        hold_failure=rare,
        sticky=sticky,
    )
    exact = float(reviewed(TASK, window, h).damage)
    assert low < exact < high
    found = drawn_damage(TASK, window, h, n=3000, seed=window)
    assert found.damage == pytest.approx(exact, abs=4 * found.standard_error)
    assert found.effective_harms > 30
    assert found.standard_error < 0.35 * exact


def test_raising_hazards_is_worth_it_and_does_not_bias() -> None:
    h = Hazards(
        weak=0.1,
        strong=0.001,
        detection=0.99,
        false_reject=0.04,
        recovery_weak=0.2,
        recovery_strong=0.2,
        hold_failure=0.002,
    )
    exact = float(reviewed(TASK, 4, h).damage)
    plain, raised = (drawn_damage(TASK, 4, h, n=4000, seed=3, raised=r) for r in (0.0, 0.3))
    for found in (plain, raised):
        assert found.damage == pytest.approx(exact, abs=4 * found.standard_error)
    assert raised.effective_harms > 3 * plain.effective_harms
    assert raised.standard_error < plain.standard_error / 2


def test_the_check_draws_difficulties_and_fading_reviews_too() -> None:
    settings = ("quality.heterogeneity=0.2", "quality.reviewer_correlation=0.6", "quality.detection_depth_steps=4")
    found = _risk("autonomous-h200", *settings, check=800)
    assert len(found.checks) == len(WINDOWS) * 2  # the longest tasks, every hold failure above 0
    assert all(abs(row["z"]) < 4 for row in found.checks)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"steps": (0,)}, "steps: 0; allowed: 1 to 2000"),
        ({"steps": ()}, "steps: nothing given"),
        ({"windows": (1, 65)}, "windows: 65; allowed: 1 to 64"),
        ({"windows": (2, 2)}, "windows: each value once"),
        ({"hold_failures": (0.1, 1.5)}, "hold_failures: 1.5; allowed: 0 to 1"),
        ({"hold_failures": (float("nan"),)}, "hold_failures: nan"),
        ({"damage_budget": -0.1}, "damage_budget: -0.1"),
        ({"check": -1}, "check: -1"),
    ],
)
def test_bad_values_are_named(given: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        risk(load_scenario("llama-a100", ["workload.n=2"]), **given)


@pytest.mark.parametrize(("n", "raised"), [(1, 0.3), (100, 1.0), (100, -0.1)])
def test_impossible_draws_are_refused(n: int, raised: float) -> None:
    with pytest.raises(InputError, match="trajectories"):
        drawn_damage(TASK, 2, Hazards(*[], **dict.fromkeys(_NAMES, 0.1)), n=n, seed=0, raised=raised)


_NAMES = ("weak", "strong", "detection", "false_reject", "recovery_weak", "recovery_strong")
ARGS = ("llama-a100", "--set", "workload.n=4", "--set", "run.samples=16", "--steps", "10,30", "--windows", "1,4")


def test_the_command_gives_the_contracts_keys_and_the_same_bytes(run_cli) -> None:
    first, second = (run_cli("risk", *ARGS, "--json") for _ in range(2))
    assert first.code == 0, first.err
    assert first.out == second.out
    document = json.loads(first.out)
    wanted = {"steps", "window", "hold_failure", "damage_probability", "excess_over_strong_only", "success"}
    assert all(wanted <= set(c) for c in document["cells"])
    assert len(document["cells"]) == 2 * 2 * 4
    assert {"largest_safe_window", "strong_only", "own_tasks", "frontier", "gap_recovered", "trials"} <= set(document)


def test_the_command_draws_a_page_and_says_what_it_found(run_cli, tmp_path: Path) -> None:
    out = tmp_path / "risk.html"
    done = run_cli("risk", *ARGS, "--check", "200", "-o", out)
    assert done.code == 0, done.err
    for words in ("probability of damage", "largest window", "time to strong-only", "effective harms"):
        assert words in done.out
    page = out.read_text(encoding="utf-8")
    assert "What drafting puts at risk" in page
    assert "excess damage" in page


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--steps", "ten"), "--steps ten: expected whole numbers"),
        (("--hold-failure", "0,x"), "--hold-failure 0,x"),
        (("--windows", "1,99"), "windows: 99"),
        (("-o", "risk.png"), "must end in .html"),
        (("--damage-budget", "2"), "damage_budget: 2"),
    ],
)
def test_the_command_refuses_in_one_line(run_cli, more: tuple[str, ...], says: str) -> None:
    done = run_cli("risk", "llama-a100", *more)
    assert done.code == 2
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_figures_show_every_hold_failure() -> None:
    from dashboards.risk import risk_figures

    *drawn, (_, frontier) = risk_figures(_risk("autonomous-h200").document())
    maps = [t for _, figure in drawn for t in figure.data if t.type == "heatmap"]
    assert [np.shape(m.z) for m in maps] == [(2, len(WINDOWS))] * len(FAILURES)
    assert sum("hold failure" in t.name for t in frontier.data) == len(FAILURES)
