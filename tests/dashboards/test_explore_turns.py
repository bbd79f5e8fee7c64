"""A turned knob of Explore: one question to the server, a small answer, nothing done twice, the numbers of a plan."""

import json
import tomllib

import pytest

dash = pytest.importorskip("dash")

from dashboards import knobs, shelf  # noqa: E402
from dashboards.app import create_app  # noqa: E402
from dashboards.comparison import ratio_parts  # noqa: E402
from dashboards.desk import Desk  # noqa: E402
from dashboards.jobs import Jobs  # noqa: E402
from dashboards.pages import explore  # noqa: E402
from hwprofiles.errors import InputError  # noqa: E402
from simulator import glance  # noqa: E402
from simulator.glance import Glancer  # noqa: E402
from simulator.scenario_file import from_document, load_scenario  # noqa: E402

NAME = "autonomous-h200"
AT = "http://127.0.0.1:8050"
DECODE = '[strong.decode]\nmethod = "mtp"\nlength = 3\nacceptance = 0.5\n\n'


@pytest.fixture(scope="module")
def client():
    return create_app(shelf.Shelf([NAME]), jobs=Jobs(1)).server.test_client()


def callbacks(client):
    return client.get("/_dash-dependencies", base_url=AT).json


def inputs_of(callback):
    return [(json.loads(i["id"]) if i["id"].startswith("{") else i["id"], i["property"]) for i in callback["inputs"]]


def test_a_turn_asks_the_server_once(client):
    moved = [
        c
        for c in callbacks(client)
        if any(isinstance(i, dict) and i.get("knob") and i.get("page") in ("explore", ["ALL"]) for i, _ in inputs_of(c))
    ]
    assert all(c["clientside_function"] for c in moved if "acceptance" not in c["output"])
    asked = [c for c in callbacks(client) if ("explore-asked", "data") in inputs_of(c)]
    assert len(asked) == 1
    assert asked[0]["clientside_function"] is None
    outputs = asked[0]["output"]
    assert "explore-figure-0.figure" in outputs
    assert "explore-figures.children" not in outputs, "figures are redrawn in their place, not built anew"


def test_the_answer_to_a_turn_is_small(client):
    callback = next(c for c in callbacks(client) if ("explore-asked", "data") in inputs_of(c))
    places = [o.rsplit(".", 1) for o in callback["output"].strip(".").split("...")]
    own = knobs.own_values(load_scenario(NAME))
    values = {"scenario": NAME, "objective": "time", **own, "acceptance": 0.6}
    ids = [{"page": "explore", "knob": k, "part": "in"} for k in values]
    answer = client.post(
        "/_dash-update-component",
        base_url=AT,
        json={
            "output": callback["output"],
            "outputs": [{"id": i, "property": p} for i, p in places],
            "changedPropIds": ["explore-asked.data"],
            "inputs": [
                {"id": "explore-asked", "property": "data", "value": 7},
                {"id": "theme", "property": "data", "value": "dark"},
            ],
            "state": [
                [{"id": i, "property": "value", "value": v} for i, v in zip(ids, values.values(), strict=True)],
                [{"id": i, "property": "id", "value": i} for i in ids],
            ],
        },
    )
    assert answer.status_code == 200
    assert len(answer.data) < 40_000
    found = answer.json["response"]
    assert found["explore-answered"]["data"] == 7
    assert found["explore-figure-0"]["figure"]["data"]
    assert found["explore-figure-1"]["figure"]["layout"]["template"]["layout"]["paper_bgcolor"] == "#15181d"


@pytest.mark.parametrize(
    ("knob", "place", "compiled"), [("acceptance", 0.6, 0), ("rtt_ms", 40, 0), ("concurrency", 9, 0), ("window", 3, 1)]
)
def test_a_turn_replays_no_rounds_that_it_leaves_alone(monkeypatch, knob, place, compiled):
    scenario = load_scenario("retail-h200")
    own = knobs.own_values(scenario)
    glancer = Glancer()
    glancer.glance(scenario)
    if knob in ("acceptance", "rtt_ms"):  # the first one states a law of acceptance, or adds a link
        glancer.glance(knobs.changed(scenario, own | {knob: {"acceptance": 0.5, "rtt_ms": 15}[knob]}, own))
    again, compile_tape = [], glance.compile_tape
    monkeypatch.setattr(glance, "compile_tape", lambda *a: again.append(a[0].name) or compile_tape(*a))
    turned = knobs.changed(scenario, own | {knob: place}, own)
    found = glancer.glance(turned).document()
    assert len(set(again)) == compiled, again
    monkeypatch.undo()
    fresh = Glancer()
    fresh._factors = dict(glancer._factors)
    assert _flat(found) == pytest.approx(_flat(fresh.glance(turned).document()), rel=1e-9)


def test_plain_parts_make_the_figures_of_the_page():
    document = Glancer().glance(load_scenario(NAME)).document()
    for parts, (_, figure) in zip(explore.drawings(document, "time"), explore.pictures(document, "time"), strict=True):
        assert len(figure.data) == len(parts["data"])
        assert [t.name for t in figure.data] == [t["name"] for t in parts["data"]]
        assert figure.layout.height == parts["layout"]["height"]
    assert ratio_parts([])["data"] == []


def test_token_speculation_is_refused_in_words_and_offered_the_full_plan():
    text = load_scenario(NAME).to_toml().replace("[strong]", DECODE + "[strong]", 1)
    scenario = from_document({**tomllib.loads(text), "strategies": ["strong_only", "token_speculation"]}, "mine.toml")
    with pytest.raises(InputError, match="ask for the full plan"):
        Glancer().glance(scenario)


def test_frames_are_read_once_and_by_column_until_they_change(tmp_path, monkeypatch):
    import os

    import pandas as pd

    pd.DataFrame({"trajectory": [0, 1], "time_s": [1.0, 2.0], "flops": [1.0, 1.0]}).to_parquet(
        tmp_path / "trajectories.parquet"
    )
    read, reader = [], shelf._read
    monkeypatch.setattr(shelf, "_read", lambda *a: read.append(a[2]) or reader(*a))
    for _ in range(3):
        found = shelf.columns(tmp_path, "trajectories", ("time_s",))
    assert list(found.columns) == ["time_s"]
    assert read == [("time_s",)]
    os.utime(tmp_path / "trajectories.parquet", ns=(1, 1))
    shelf.columns(tmp_path, "trajectories", ("time_s",))
    assert len(read) == 2


def test_a_page_opens_with_its_first_answer():
    desk = Desk(shelf.Shelf([NAME]), Jobs(1))
    text = json.dumps(explore.layout(desk, {"acceptance": "0.35"}), default=lambda c: c.to_plotly_json())
    assert "verdict" in text
    assert len(desk._glances) == 1
    own = desk.own_values(NAME)
    desk.glance(knobs.changed(desk.shelf.scenario(NAME), {**own, "acceptance": 0.35}, own))
    assert len(desk._glances) == 1


def _flat(value, place=""):
    """Numbers of a document by their place."""
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in _flat(item, f"{place}.{key}").items()}
    if isinstance(value, list | tuple):
        return {k: v for i, item in enumerate(value) for k, v in _flat(item, f"{place}.{i}").items()}
    return {place: float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else {}
