"""Published figures against predictions: every prior moves what it should, nothing is fitted, the inversion follows."""

from __future__ import annotations

import json
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.law import law, law_names, law_parameters
from simulator.reproduce import Reproduced, reproduce
from simulator.reproduce_priors import Figure, published
from simulator.reproduce_text import markdown
from simulator.scenario_file import load_scenario

IDS = [
    *("tau2.traffic", "tau2.time", "tau2.success", "tau2.flops"),
    *("automation.gap", "automation.traffic", "automation.time"),
    *("vita.gap", "vita.traffic", "vita.time"),
    *("atlas.gap", "atlas.strong_tokens", "atlas.cost"),
]


def figures(found: Reproduced) -> dict[str, float]:
    return {row["id"]: row["predicted"] for row in found.figures}


@pytest.fixture(scope="module")
def atlas() -> Reproduced:
    return reproduce(["atlas"], n_draws=16)


def test_the_data_file_holds_the_thirteen_figures() -> None:
    _, settings, rows = published()
    assert [f.id for f in rows] == IDS
    assert {f.setting for f in rows} == {s.name for s in settings}


def test_every_prior_names_its_tier_and_source() -> None:
    for s in published()[1]:
        for prior in s.priors.values():
            assert prior.source, (s.name, prior.name)
            assert prior.tier in ("datasheet", "measured", "fitted", "assumed"), (s.name, prior.name)


def test_no_prior_differs_by_figure() -> None:
    """A constant per figure would make any prediction come true: priors belong to a setting, never to a figure."""
    table = tomllib.loads(files("simulator").joinpath("data/reproduce.toml").read_text(encoding="utf-8"))
    for row in table["figures"]:
        assert set(row) == {"id", "metric", "quantity", "published"}


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({"acceptance": 0.6}, {"atlas.strong_tokens": 1, "atlas.cost": 1}),
        ({"acceptance": 0.97}, {"atlas.strong_tokens": -1, "atlas.cost": -1}),
        ({"verdict_tokens": 150}, {"atlas.strong_tokens": 1, "atlas.cost": 1}),
        ({"window": 1}, {"atlas.strong_tokens": 1, "atlas.cost": 1}),
        ({"detection": 0.95}, {"atlas.gap": 1}),
        ({"detection": 0.1}, {"atlas.gap": -1}),
    ],
)
def test_a_prior_moves_what_it_should(atlas: Reproduced, change: dict[str, Any], moves: dict[str, int]) -> None:
    before, after = figures(atlas), figures(reproduce(["atlas"], n_draws=16, changes=change))
    for name, sign in moves.items():
        assert sign * (after[name] - before[name]) > 0, name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({"weak_devices": 8}, {"tau2.time": -1}),
        ({"verbosity": 1.8}, {"tau2.time": 1, "tau2.traffic": 1}),
        ({"verbosity": 0.2}, {"tau2.time": -1, "tau2.traffic": -1}),
        ({"strong_dtype": "bf16"}, {"tau2.traffic": -1}),
        ({"acceptance": 0.97}, {"tau2.time": -1, "tau2.traffic": -1}),
        ({"strong_success": 0.95, "weak_success": 0.6}, {"tau2.success": -1}),
    ],
)
def test_a_prior_moves_the_tau2_figures(change: dict[str, Any], moves: dict[str, int]) -> None:
    before, after = (figures(reproduce(["tau2"], n_draws=16, changes=c)) for c in ({}, change))
    for name, sign in moves.items():
        assert sign * (after[name] - before[name]) > 0, name


def test_the_implied_region_lies_inside_the_prior_and_moves_towards_the_figures(atlas: Reproduced) -> None:
    """Strong tokens of 0.36 to 0.50 need long verdicts or low acceptance: the verdict's range moves up."""
    rows = {row["unknown"]: row for row in reproduce(["atlas"], n_draws=64).implied}
    verdict = rows["verdict_tokens"]
    assert verdict["implied"][0] > verdict["prior"][0]
    assert sum(rows["window"]["implied"].values()) == pytest.approx(1)


def test_same_seed_same_answer(atlas: Reproduced) -> None:
    again = reproduce(["atlas"], n_draws=16)
    assert json.dumps(again.document()) == json.dumps(atlas.document())
    assert figures(reproduce(["atlas"], n_draws=16, seed=1)) != figures(atlas)


def test_open_ends_and_distances() -> None:
    below = Figure(id="x.y", metric="", quantity="time", low=None, high=1.0)
    assert below.overlaps(0.9, 2.0)
    assert not below.overlaps(1.1, 2.0)
    assert below.distance(np.array([0.5, 1.25])).tolist() == [0.0, 0.25]


@pytest.mark.parametrize(
    ("settings", "changes", "says"),
    [
        (["tau3"], {}, "tau2"),
        (["atlas"], {"acceptence": 0.9}, "acceptance"),
        (["atlas"], {"acceptance": 1.2}, "at most 1"),
        (["atlas"], {"acceptance": "much"}, "a number"),
        (["atlas"], {"window": "four"}, "one value"),
        (["atlas"], {"verdict_tokens": {"value": 3, "low": 4, "high": 5}}, "low <= value"),
        (["atlas"], {"hardware": "h200"}, "hardware"),
    ],
)
def test_bad_input_is_named(settings: list[str], changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        reproduce(settings, n_draws=16, changes=changes)


@pytest.mark.slow
def test_the_page_holds_what_the_command_says() -> None:
    """docs/reproduce.md is written from `specroof reproduce --markdown`, all settings, default draws."""
    page = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    for table in markdown(reproduce()).split("\n\n"):
        assert table in page


@pytest.mark.parametrize("name", ["automation-bench", "mcp-atlas", "tau2-banking", "tau2-telecom", "vita-bench"])
def test_benchmark_shapes_serve_any_scenario(name: str) -> None:
    assert name in law_names()
    shape = law(name)
    assert all(p.source and p.tier for p in law_parameters(name))
    scenario = load_scenario("autonomous-h200").with_(**{"workload.law": name, "workload.n": 30})
    work = prepare(scenario).workload
    steps = [s for t in work.trajectories for s in t.steps]
    assert len(steps) / 30 == pytest.approx(shape.steps, rel=0.15)
    assert np.mean([s.visible_tokens or 0 for s in steps]) == pytest.approx(shape.output_tokens, rel=0.15)
