"""Maps by load: expected alone, simulated together, resumable, and honest about cells that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboards.breakeven_loads import loads_figure
from dashboards.breakeven_svg import loads_svg
from hwprofiles.errors import InputError
from simulator.axis import Axis, parse_axis
from simulator.breakeven import breakeven
from simulator.breakeven_cell import MapTask, attempt
from simulator.breakeven_knots import left_out, places_of, spread, through
from simulator.breakeven_loads import by_load
from simulator.breakeven_simulated import simulated
from simulator.scenario import Scenario
from simulator.scenario_file import load_scenario, to_document

AXES = ("acceptance=0.5:0.95:11", "window=1,4")


@pytest.fixture(scope="module")
def desk() -> Scenario:
    few = {"run.samples": 16, "workload.n": 6, "run.seeds": 2, "load.n_trajectories": 6}
    return load_scenario("llama-a100").with_(**few)


def test_short_axes_are_simulated_at_every_value_and_long_ones_at_a_few() -> None:
    assert places_of(parse_axis("window=1,2,8")).tolist() == [0, 1, 2]
    found = places_of(parse_axis("acceptance=0.5:0.99:100"))
    assert len(found) == 4
    assert (found[0], found[-1]) == (0, 99)


def test_a_knot_that_failed_leaves_its_neighbourhood_unknown() -> None:
    axis = Axis(name="acceptance", values=tuple(np.linspace(0.1, 0.9, 13).tolist()))
    place = np.array([0, 4, 8, 12])
    found = through(place, np.array([1.0, 2.0, np.nan, 4.0]), axis)
    assert np.isfinite(found[:5]).all()
    assert np.isnan(found[5:12]).all()
    assert found[12] == 4.0


def test_a_plane_is_interpolated_exactly() -> None:
    y, x = (Axis(name=n, values=tuple(np.linspace(0.5, 0.9, 13).tolist())) for n in ("a", "b"))
    plane = np.add.outer(np.array(y.values), 2 * np.array(x.values))
    knots = [places_of(y), places_of(x)]
    assert spread(plane[np.ix_(*knots)], knots, (y, x)) == pytest.approx(plane)
    assert left_out(plane[np.ix_(*knots)], knots, (y, x)) == pytest.approx(0.0, abs=1e-12)


def test_one_document_holds_a_map_per_load_and_a_study_goes_on(desk: Scenario, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    study = tmp_path / "maps.sqlite"
    first = by_load(desk, *AXES, (1, 2), study=study, workers=1, progress=lambda *n: told.append(n))
    document = first.document()
    assert [(m["concurrency"], m["method"]) for m in document["loads"]] == [(1, "expected"), (2, "simulated")]
    assert first.maps[0].ratio == pytest.approx(breakeven(desk, *AXES).ratio)
    for m in document["loads"]:
        assert np.shape(m["ratio"]) == np.shape(m["verdict"]) == np.shape(m["decided_by"]) == (2, 11)
    assert told[-1] == (8, 8)
    told.clear()
    again = by_load(desk, *AXES, (2,), study=study, workers=1, progress=lambda *n: told.append(n))
    assert told == [(8, 8)]
    assert again.document()["loads"] == document["loads"][1:]
    assert loads_figure(document).data
    assert loads_svg(document).endswith("</svg>\n")
    with pytest.raises(InputError, match="differs"):
        by_load(desk, AXES[0], "verdict_tokens=5,20", (2,), study=study)


def test_what_cannot_be_simulated_is_null_with_its_reason(desk: Scenario) -> None:
    """Steps so long that the context no longer fits the model, beside short ones."""
    short = desk.with_(**{"load.concurrency": 2})
    drawn = breakeven(short, "acceptance=0.9", "output_tokens=10,20000", method="simulated", workers=1)
    assert np.isfinite(drawn.ratio[0, 0])
    assert np.isnan(drawn.ratio[1, 0])
    document = drawn.document()
    assert document["ratio"][1] == document["low"][1] == [None]
    assert document["decided_by"][1] == [""]
    (failed,) = document["failed"]
    assert failed["y"] == 20000
    assert "longest context" in failed["reason"]
    with pytest.raises(InputError, match="no cell could be simulated"):
        breakeven(short, "acceptance=0.9", "output_tokens=20000,30000", method="simulated", workers=1)


def test_a_cell_gives_a_ratio_per_seed_and_gains_that_add_up(desk: Scenario) -> None:
    for objective in ("time", "traffic", "energy"):
        task: dict[str, Any] = {"cell": 3, "document": to_document(desk), "settings": {"load.concurrency": 2}}
        found = attempt(MapTask(**task, objective=objective, strategy="spec_agent"))
        (row,) = found.rows
        assert len(row["log_ratios"]) == 2
        assert sum(row["gains"].values()) == pytest.approx(1 - np.exp(row["log_ratios"][0]), rel=1e-6), objective


@pytest.mark.parametrize(
    ("axes", "loads", "says"),
    [
        (AXES, (), "1 to 8"),
        (AXES, (0, 1), "rising"),
        (AXES, (2, 1), "rising"),
        (AXES, (20_000,), "10000"),
        (("acceptance=0.5,0.9", "concurrency=1,2"), (1, 2), "axis already"),
    ],
)
def test_bad_loads_are_refused(desk: Scenario, axes: tuple[str, str], loads: tuple[int, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        by_load(desk, *axes, loads)


def test_a_load_beside_another_is_refused(desk: Scenario) -> None:
    with pytest.raises(InputError, match="arrivals already"):
        by_load(desk.with_(**{"load.arrival_rate_per_s": 0.1}), *AXES, (1, 2))


@pytest.mark.slow
def test_interpolated_cells_agree_with_simulated_ones() -> None:
    """Every cell simulated against the map from knots on the same seeds: within the error the map states."""
    base = load_scenario("llama-a100").with_(**{"run.samples": 16, "run.seeds": 3, "load.n_trajectories": 30})
    y = parse_axis("output_tokens=60,240")
    x = parse_axis("acceptance=0.5:0.98:16")
    (rough,) = simulated(base, x, y, "time", "spec_agent", loads=[6])
    some = Axis(name="acceptance", values=x.values[1::4])
    (exact,) = simulated(base, some, y, "time", "spec_agent", loads=[6])
    assert rough.ratio[:, 1::4] == pytest.approx(exact.ratio, rel=0.03)
    assert np.all(rough.low <= rough.ratio)
    assert np.all(rough.ratio <= rough.high)
