"""What the app reads of a sweep, and what its pages hand out as files."""

import re
import sqlite3

import pandas as pd
import pytest

pytest.importorskip("dash")

from dashboards import figures
from dashboards.desk import Desk
from dashboards.jobs import Jobs
from dashboards.operating import operating_points
from dashboards.pages import explore, sweeps
from dashboards.pages.showing import Shown, children
from dashboards.saving import FIGURE_KINDS, saved
from dashboards.shelf import Shelf
from dashboards.sweeps import read_sweep
from hwprofiles.errors import InputError, ProfileError
from simulator.glance import Glancer
from simulator.scenario_file import load_scenario


@pytest.fixture(scope="module")
def study(make_study, tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("sweeps") / "two.sqlite")


def test_a_study_and_its_rows_are_read_alike(study, tmp_path):
    found = read_sweep(study)
    assert (found.label, found.varied, len(found.frame)) == ("two.sqlite", ("acceptance", "window"), 16)
    assert found.scenario["title"] == load_scenario("autonomous-h200").title
    assert found.notes == ("1 cells failed", "1 cells are not done yet")
    found.frame.to_csv(tmp_path / "rows.csv", index=False)
    found.frame.to_parquet(tmp_path / "rows.parquet", index=False)
    for name in ("rows.csv", "rows.parquet"):
        again = read_sweep(tmp_path / name)
        assert (again.varied, again.scenario) == (found.varied, None)
        pd.testing.assert_frame_equal(again.frame, found.frame, check_dtype=False)


def test_studies_are_found_in_a_folder_and_by_name(study):
    shelf = Shelf([str(study.parent), str(study)])
    assert [s.label for s in shelf.sweeps] == ["two.sqlite", "two.sqlite"]
    for wrong in ("2", "-1", "../1", None):
        with pytest.raises(InputError, match="no sweep of that number"):
            shelf.sweep(wrong)


def test_what_no_sweep_wrote_is_refused(study, tmp_path):
    (tmp_path / "text.sqlite").write_text("no database " * 100)
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE head (a)")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 broken")
    read_sweep(study).frame.head(0).to_csv(tmp_path / "empty.csv", index=False)
    for name, message in (
        ("text.sqlite", "not a study"),
        ("other.sqlite", "not a study"),
        ("other.csv", "not what `specroof sweep -o` writes: it lacks"),
        ("broken.parquet", "cannot be read"),
        ("empty.csv", "no cell of this sweep is done"),
        ("absent.csv", "cannot be read"),
    ):
        with pytest.raises(ProfileError if name != "empty.csv" else InputError, match=message):
            read_sweep(tmp_path / name)


def test_a_sweep_that_still_runs_is_named_as_such(make_study, tmp_path):
    from simulator.study import Study

    path = make_study(tmp_path / "s.sqlite")
    head, cells = make_study.head, make_study.cells
    with Study(path, head, cells), pytest.raises(InputError, match="another sweep writes to this study"):
        read_sweep(path)


def test_a_sweep_is_drawn_with_the_intervals_of_its_cells(study):
    shelf = Shelf([str(study)])
    at = {"sweep": "0", "x": "acceptance", "y": "time_s", "window": "2"}
    found = sweeps._answer(shelf.sweep("0"), at)
    assert [t for t, _ in found.figures] == [
        "Time per task over acceptance, window 2",
        "Time per task against strong only, window 2",
    ]
    strong, spec = found.figures[0][1].data
    assert list(spec.y) == pytest.approx([20.0, 15.0, 10.0])
    assert list(spec.error_y.array) == pytest.approx([2.0, 1.5, 1.0])
    assert list(spec.error_y.arrayminus) == pytest.approx([1.0, 0.75, 0.5])
    assert [round(x, 2) for x in strong.x] == [0.6, 0.75, 0.9]
    (ratio,) = found.figures[1][1].data
    assert list(ratio.y) == pytest.approx([1.0, 0.75, 0.5])
    over = sweeps._answer(shelf.sweep("0"), at | {"window": "all"})
    assert "medians over several cells" in str(over.above[0])
    with pytest.raises(InputError, match="no such cell"):
        sweeps._answer(shelf.sweep("0"), at | {"x": "cell"})


def test_the_knobs_of_a_sweep_start_where_the_url_says(study):
    desk = Desk(Shelf([str(study)]), Jobs(1))
    values = re.findall(r"'value': '(\w+)'", str(_plain(sweeps.layout(desk, {"x": "window", "y": "success"}))))
    assert "window" in values
    assert "success" in values
    assert "No sweep was given" in str(_plain(sweeps.layout(Desk(Shelf(), Jobs(1)), {})))


def _plain(part):
    if isinstance(part, list | tuple):
        return [_plain(p) for p in part]
    if hasattr(part, "to_plotly_json"):
        return {k: _plain(v) for k, v in part.to_plotly_json().get("props", {}).items()}
    return part


def test_operating_points_lie_below_their_roofs():
    found = operating_points(load_scenario("llama-a100"))
    labels = [p["label"] for p in found["points"]]
    assert labels == ["weak prefill", "strong prefill", "draft decode", "strong decode", "verify prefill",
                      "verdict decode"]  # fmt: skip
    assert all(0 < p["share_of_roof"] <= 1 for p in found["points"])
    at = {p["label"]: p["intensity_flops_per_byte"] for p in found["points"]}
    assert at["strong decode"] < at["verify prefill"] < at["strong prefill"]


def test_every_figure_is_saved_under_its_own_name():
    document = Glancer().glance(load_scenario("autonomous-h200")).document()
    frame, pictures = explore.strategy_frame(document), explore.pictures(document, "time")
    second = saved("html-1", "x", frame, pictures, document)
    assert second["filename"] == "x-2.html"
    assert second["content"].count('class="plot"') == 1
    for wrong in ("svg-2", "svg--1", "png-x"):
        with pytest.raises(InputError, match="no longer on the page"):
            saved(wrong, "x", frame, pictures, document)
    shown = Shown(figures=pictures, data=frame, document={})
    buttons = re.findall(r"'aria-label': '(\w+ of [^']+)'", str(_plain(children("x", shown, None))))
    assert buttons == [f"{kind.upper()} of {title}" for title, _ in pictures for kind in FIGURE_KINDS]


def test_a_page_without_a_scenario_offers_none(study):
    found = read_sweep(study)
    picture = figures.swept(found.frame, "window", "time_s")
    shown = Shown(figures=[("a", picture)], data=found.frame, document={})
    assert "Scenario (TOML)" not in str(_plain(children("x", shown, None)))
