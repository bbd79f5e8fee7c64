"""Break-even maps: exact where they say so, close where they interpolate, and their contour is where the ratio is 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwprofiles.errors import InputError
from simulator.axis import Axis, parse_axis
from simulator.balance import balance
from simulator.breakeven import BreakEven, breakeven
from simulator.breakeven_simulated import _interval
from simulator.plan import plan
from simulator.scenario import Scenario
from simulator.scenario_file import load_scenario
from simulator.surface import knots_of, surface


@pytest.fixture(scope="module")
def retail() -> Scenario:
    return load_scenario("llama-a100").with_(**{"run.samples": 16, "workload.n": 24})


@pytest.fixture(scope="module")
def drawn(retail: Scenario) -> BreakEven:
    return breakeven(retail, "acceptance=0.2:0.99:20", "output_tokens=40:500:12")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("acceptance=0.5:0.9:3", (0.5, 0.7, 0.9)),
        ("window=1,2,8", (1.0, 2.0, 8.0)),
        ("concurrency=1:4:4", (1.0, 2.0, 3.0, 4.0)),
        ("rtt_s=0.01:1:3:log", (0.01, 0.1, 1.0)),
        ("link.rtt_s=0,0.5", (0.0, 0.5)),
    ],
)
def test_axes_are_read(text: str, values: tuple[float, ...]) -> None:
    assert parse_axis(text).values == pytest.approx(values)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("acceptance", "expected NAME=LO:HI:N"),
        ("acceptence=0.5:0.9:3", "acceptance"),
        ("weak.model=0:1:2", "no number"),
        ("window=1:4:9", "whole numbers lie in the range"),
        ("window=1.5,2", "whole numbers"),
        ("acceptance=0.9:0.5:3", "LO must be below HI"),
        ("acceptance=0.5:0.9:1", "N must be"),
        ("acceptance=0.5:inf:3", "finite"),
        ("rtt_s=0:1:5:log", "LO > 0"),
        ("acceptance=0.5,0.5", "rise"),
        ("acceptance=0.5:0.9:99999", "N must be"),
    ],
)
def test_bad_axes_are_named(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_axis(text)


def test_the_scenarios_own_point_is_the_plans_ratio(retail: Scenario) -> None:
    """The plan takes all tasks, the map a sample of them: they agree to their sampling, about 1 %."""
    own = retail.with_(acceptance=0.9)
    theirs = plan(own).ratios["spec_agent"]["time"]
    mine = breakeven(own, "acceptance=0.8,0.9", "window=2,4")
    assert theirs is not None
    assert mine.ratio[1, 1] == pytest.approx(theirs.value, rel=0.015)


def test_interpolated_cells_agree_with_cells_evaluated_on_their_own(retail: Scenario) -> None:
    x, y = parse_axis("acceptance=0.5,0.9"), parse_axis("output_tokens=40:500:60")
    full = surface(retail, x, y, "time", "spec_agent")
    off_knot = [i for i, v in enumerate(y.values) if v not in knots_of(y)][::12]
    some = Axis(name="output_tokens", values=tuple(y.values[i] for i in off_knot))
    alone = surface(retail, x, some, "time", "spec_agent")
    assert alone.n_tasks == full.n_tasks  # the same sample of tasks, or the comparison would be of samples
    worst = np.max(np.abs(np.log(full.mine / full.theirs)[off_knot] - np.log(alone.mine / alone.theirs)))
    assert worst < max(0.003, 2 * full.error)


def test_terms_add_up_to_the_objective(retail: Scenario) -> None:
    for objective in ("time", "traffic", "flops", "energy", "money"):
        s = surface(retail, parse_axis("acceptance=0.5,0.9"), parse_axis("window=1,4"), objective, "spec_agent")
        for i, whole in enumerate((s.mine, s.theirs)):
            assert np.sum([t[i] for t in s.terms.values()], axis=0) == pytest.approx(whole, rel=1e-9), objective


def test_more_acceptance_never_costs_more(drawn: BreakEven) -> None:
    assert np.all(np.diff(drawn.ratio, axis=1) < 0)
    assert np.all(drawn.low <= drawn.ratio)
    assert np.all(drawn.ratio <= drawn.high)


def test_the_contour_is_where_the_ratio_is_one(retail: Scenario, drawn: BreakEven) -> None:
    found = [p for p in drawn.frontier if p["x"] is not None]
    assert found
    for point in found[::6]:
        axis = Axis(name="acceptance", values=(float(point["x"] or 0), 0.995))
        again = breakeven(retail, axis, Axis(name="output_tokens", values=(float(point["y"] or 0), 501.0)))
        assert again.ratio[0, 0] == pytest.approx(1.0, abs=0.015)  # another sample of tasks stands for the workload
        low, high = point["x_low"], point["x_high"]
        assert low is None or low <= float(point["x"] or 0)
        assert high is None or high >= float(point["x"] or 0)


def test_the_verdict_follows_the_band(drawn: BreakEven) -> None:
    words = np.array(drawn.verdict)
    assert np.all((words == "wins") == (drawn.high < 1))
    assert np.all((words == "loses") == (drawn.low > 1))


def test_the_deciding_term_is_on_the_winning_side(drawn: BreakEven) -> None:
    words = np.array(drawn.decided_by)
    assert set(words[drawn.ratio < 1]) <= {"decode"}  # a win can only come from decoding that strong-only does
    assert "decode" not in set(words[drawn.ratio > 1])


def test_the_best_window_is_the_cheapest_of_those_given(retail: Scenario) -> None:
    x, y = "acceptance=0.6,0.9,0.98", "output_tokens=60,300"
    best = breakeven(retail, x, y, windows=(1, 2, 4))
    each = {w: breakeven(retail.with_(window=w), x, y) for w in (1, 2, 4)}
    assert best.best_window is not None
    for at in np.ndindex(best.ratio.shape):
        w = int(best.best_window[at])
        assert best.ratio[at] == pytest.approx(min(m.ratio[at] for m in each.values()), rel=1e-9)
        assert each[w].ratio[at] == pytest.approx(best.ratio[at], rel=1e-9)


@pytest.mark.parametrize(
    ("x", "y", "options", "says"),
    [
        ("acceptance=0.5,0.9", "protocol.acceptance=0.5,0.9", {}, "two different"),
        ("acceptance=0.5,0.9", "concurrency=1,4", {}, "simulated"),
        ("acceptance=0.5,0.9", "window=1,4", {"objective": "success"}, "objective"),
        ("acceptance=0.5,0.9", "window=1,4", {"strategy": "strong_only"}, "compared with"),
        ("acceptance=0.5,0.9", "window=1,4", {"windows": (1, 2)}, "axis already"),
        ("acceptance=0.5,0.9", "output_tokens=60,90", {"windows": (2, 1)}, "rising"),
        ("acceptance=0.5,0.9", "window=1,4", {"method": "guessed"}, "method"),
        ("acceptance=0.5,1.9", "window=1,4", {}, "acceptance"),
    ],
)
def test_bad_maps_are_refused(retail: Scenario, x: str, y: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        breakeven(retail, x, y, **options)  # type: ignore[arg-type]  # bad on purpose


@pytest.mark.slow
def test_a_simulated_map_of_idle_engines_agrees_with_the_expected_one() -> None:
    """One agent, no contention: both answer the same question, the simulation with noise of verdicts and tasks."""
    base = load_scenario("llama-a100").with_(**{"run.seeds": 3, "run.samples": 16, "workload.n": 20})
    axes = ("acceptance=0.7,0.95", "window=1,4")
    exact = breakeven(base, *axes)
    drawn = breakeven(base.with_(**{"load.n_trajectories": 60}), *axes, method="simulated")
    assert drawn.ratio == pytest.approx(exact.ratio, rel=0.05)
    assert drawn.notes[0].startswith("3 paired seeds")


def test_a_cell_of_one_seed_has_no_band() -> None:
    assert _interval((0.1,)) == (0.1, np.inf)


def test_balance_finds_the_acceptance_at_which_the_ratio_is_one(retail: Scenario) -> None:
    found = balance(retail, ["a100", "h200"])
    rows = {r["hardware"]: r for r in found.devices}
    for name in ("a100", "h200"):
        row = rows[name]
        edge = row["critical_acceptance"]["value"]
        assert 0.02 < edge < 1
        count = row["n_devices"]
        there = retail.with_(
            **{f"{r}.{k}": v for r in ("weak", "strong") for k, v in (("hardware", name), ("n_devices", count[r]))}
        )
        again = breakeven(there, Axis(name="acceptance", values=(edge, 0.999)), "window=3,4")
        assert again.ratio[1, 0] == pytest.approx(1.0, abs=0.02)
    ridges = [c["ridge_flops_per_byte"] for c in found.curve]
    assert ridges == sorted(ridges)


def test_a_device_too_small_is_listed_with_its_reason(retail: Scenario) -> None:
    rows = {r["hardware"]: r for r in balance(retail, ["a100", "jetson-orin-nano"]).devices}
    assert "reason" in rows["jetson-orin-nano"]
    with pytest.raises(InputError, match="no device"):
        balance(retail, ["jetson-orin-nano"])


def test_balance_wants_devices(retail: Scenario) -> None:
    with pytest.raises(InputError, match="hardware"):
        balance(retail, ["h20O"])
    with pytest.raises(InputError, match="each device once"):
        balance(retail, ["h100", "h100"])
    with pytest.raises(InputError, match="objective"):
        balance(replace(retail), ["h100"], objective="money")
