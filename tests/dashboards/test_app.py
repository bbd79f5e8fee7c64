"""The app without a browser: what it was given, what it lets a client ask for, what it sends back."""

import base64
import json

import pytest

dash = pytest.importorskip("dash")

from dashboards import knobs, query  # noqa: E402
from dashboards.app import PAGES, create_app, is_loopback  # noqa: E402
from dashboards.jobs import Jobs  # noqa: E402
from dashboards.pages import breakeven, explore, risk, size  # noqa: E402
from dashboards.saving import saved  # noqa: E402
from dashboards.shelf import Shelf, columns, spans  # noqa: E402
from dashboards.uploads import MOST_BYTES, take  # noqa: E402
from hwprofiles.errors import InputError  # noqa: E402
from simulator.glance import Glancer  # noqa: E402
from simulator.scenario_file import load_scenario  # noqa: E402


def packed(content, name="x.toml"):
    data = content if isinstance(content, bytes) else content.encode()
    return "data:application/octet-stream;base64," + base64.b64encode(data).decode(), name


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    from simulator.case import prepare
    from simulator.replication import replicate

    out = tmp_path_factory.mktemp("runs")
    scenario = load_scenario(
        "autonomous-h200", ["concurrency=4", "run.seeds=1", "load.n_trajectories=12", "workload.n=6"]
    )
    replicate(prepare(scenario), ["strong_only", "spec_agent"], keep_log=True, out=out)
    return out


@pytest.fixture(scope="module")
def shelf(run_folder):
    return Shelf(["retail-h200", str(run_folder)])


@pytest.fixture(scope="module")
def app(shelf):
    return create_app(shelf, jobs=Jobs(1))


def test_figures_need_no_dash():
    import subprocess
    import sys

    code = "import sys; sys.modules['dash'] = None; import dashboards.figures, dashboards.report"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_shelf_finds_runs_scenarios_and_nothing_else(shelf, tmp_path):
    assert [r.strategy for r in shelf.runs] == ["spec_agent", "strong_only"]
    assert shelf.first == "retail-h200"
    assert shelf.run("1").strategy == "strong_only"
    for wrong in ("2", "-1", "../1", "1e3", "\u0661", None, "9" * 9):
        with pytest.raises(InputError, match="no run of that number"):
            shelf.run(wrong)
    with pytest.raises(InputError, match="holds no saved run"):
        Shelf([str(tmp_path)])
    with pytest.raises(InputError, match="upload it again"):
        shelf.scenario("/etc/passwd")


def test_a_trajectory_is_read_alone(shelf, run_folder):
    run = shelf.run("0")
    frame = spans(run.folder, 3, run.strategy)
    assert frame["start_s"].min() == 0.0
    assert set(frame.columns) >= {"strategy", "start_s", "end_s", "lane", "phase", "step", "label"}
    assert len(columns(run.folder, "trajectories", ("time_s",))) >= 12
    with pytest.raises(InputError, match="no trajectory 999"):
        spans(run.folder, 999, run.strategy)


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("?acceptance=0.8", 0.8),
        ("?acceptance=7", 0.99),
        ("?acceptance=nan", 0.5),
        ("?acceptance=inf", 0.5),
        ("?acceptance=<script>", 0.5),
        ("?" + "a=1&" * 100 + "acceptance=0.8", 0.5),
        ("?acceptance=0.8&x=" + "y" * 5000, 0.5),
        (None, 0.5),
    ],
)
def test_numbers_of_a_url_stay_in_their_bounds(search, expected):
    assert query.number(query.parse(search), "acceptance", 0.3, 0.99, 0.5) == expected


def test_knobs_left_alone_leave_the_scenario_alone():
    scenario = load_scenario("retail-h200")
    own = knobs.own_values(scenario)
    assert knobs.changed(scenario, own, own) is scenario
    turned = knobs.changed(scenario, own | {"acceptance": 0.5, "rtt_ms": 100, "weak_model": "Qwen/Qwen3-8B"}, own)
    assert turned.protocol.acceptance.value == 0.5
    assert turned.link.rtt_s.value == 0.1
    assert turned.weak.model == "Qwen/Qwen3-8B"


def test_a_client_cannot_name_a_file_through_a_knob():
    scenario = load_scenario("retail-h200")
    own = knobs.own_values(scenario)
    for wrong in ("/etc/passwd", "../config.json", "my.toml"):
        assert knobs.changed(scenario, own | {"weak_model": wrong, "strong_hardware": wrong}, own) is scenario


def test_an_uploaded_scenario_is_read_strictly(shelf):
    text = load_scenario("retail-h200").to_toml()
    key = take(*packed(text, "mine.toml"), shelf, shelf.scenario("retail-h200"))
    assert shelf.scenario(key) == load_scenario("retail-h200")
    assert (key, "uploaded: mine.toml") in shelf.labels()
    with pytest.raises(InputError, match=r"mine\.toml: unknown key 'protocol.widow'; did you mean 'window'"):
        take(*packed(text.replace("[protocol]", "[protocol]\nwidow = 3"), "mine.toml"), shelf, None)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("run.calibration", "/etc/passwd"),
        ("workload.trace", "/etc/passwd"),
        ("workload.law", "../law.toml"),
        ("effects.mcp_tools", "x.json"),
        ("tools.latency_file", "/x"),
        ("tools.by_effect.read.latency_file", "/x"),
        ("users.gap_file", "/x"),
        ("load.arrivals", "/x"),
        ("quality.judgements", "/x"),
        ("weak.model", "/x/config.json"),
        ("strong.hardware", "/x/h.TOML"),
        ("strong.decode.draft_model", "/x"),
    ],
)
def test_an_uploaded_scenario_reaches_no_file_of_this_machine(shelf, place, value):
    import tomli_w

    document = _document("retail-h200")
    *path, last = place.split(".")
    table = document
    for name in path:
        table = table.setdefault(name, {})
    table[last] = value
    with pytest.raises(InputError, match=rf"evil\.toml: {place} names nothing bundled"):
        take(*packed(tomli_w.dumps(document), "evil.toml"), shelf, None)


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"\xff\xfe", "x.toml", "not valid TOML"),
        ("a = [" * 5000, "x.toml", "nested too deeply|not valid TOML"),
        ("{}", "x.json", "x.json"),
        ("[" * 100_000, "x.json", "x.json"),
        ("cos\nsystem\n", "x.pkl", "a scenario is a .toml file"),
        ("", "../../etc/cron.toml", "cron.toml"),
        (b"x" * (MOST_BYTES + 1), "big.json", "at most 8 MB"),
    ],
)  # fmt: skip
def test_a_bad_upload_is_refused_in_one_line_without_our_paths(shelf, content, name, message):
    with pytest.raises(InputError, match=message) as caught:
        take(*packed(content, name), shelf, shelf.scenario("retail-h200"))
    assert "\n" not in str(caught.value)
    assert str(shelf.folder) not in str(caught.value)


def test_an_uploaded_trace_becomes_the_workload(shelf, tmp_path):
    from importlib.resources import files

    content = (files("simulator") / "data" / "workloads" / "airline.json").read_bytes()
    key = take(*packed(content, "my airline.json"), shelf, shelf.scenario("retail-h200"))
    assert shelf.handed[key].trace == "my airline.json"
    assert shelf.scenario(key).workload.trace.startswith(str(shelf.folder))
    portable = explore._portable({"scenario": {"workload": {"trace": "x"}}}, type("D", (), {"shelf": shelf}), key)
    assert portable["scenario"]["workload"]["trace"] == "my airline.json"


def test_every_page_answers_and_every_answer_is_fenced(app):
    client = app.server.test_client()
    for path in ("/", "/_dash-layout", "/_dash-dependencies", "/assets/app.js", *(p.PATH for p in PAGES)):
        answer = client.get(path, base_url="http://127.0.0.1:8050")
        assert answer.status_code == 200, path
        policy = answer.headers["Content-Security-Policy"]
        answer.close()
        assert "default-src 'none'" in policy
        assert "unsafe-eval" not in policy
        assert "'unsafe-inline'" not in policy.split("style-src")[0]
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_foreign_name_is_refused(app):
    client = app.server.test_client()
    assert client.get("/", base_url="http://evil.example:8050").status_code == 403
    assert client.get("/", base_url="http://localhost:8050").status_code == 200
    assert client.get("/", base_url="http://[::1]:8050").status_code == 200


def test_no_address_leads_out_of_the_assets(app):
    client = app.server.test_client()
    for path in ("/assets/../app.py", "/assets/%2e%2e/app.py", "/_dash-component-suites/dash/../../flask/app.py"):
        answer = client.get(path, base_url="http://127.0.0.1:8050")
        assert answer.status_code >= 400 or b"def create_app" not in answer.data


def test_a_body_beyond_the_limit_is_refused(app):
    client = app.server.test_client()
    answer = client.post(
        "/_dash-update-component", data=b"{" * (MOST_BYTES * 2), content_type="application/json",
        base_url="http://127.0.0.1:8050",
    )  # fmt: skip
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_loopback_is_told_from_the_world(host, local):
    assert is_loopback(host) is local


def test_pages_start_where_the_url_says(app, shelf):
    from dashboards.desk import Desk

    desk = Desk(shelf, Jobs(1))
    for page in PAGES:
        assert page.layout(desk, {}) is not None
    text = json.dumps(explore.layout(desk, {"acceptance": "0.55"}), default=lambda c: c.to_plotly_json())
    assert '"value": 0.55' in text
    for page in (breakeven, size, risk):
        assert "retail-h200" in json.dumps(
            page.layout(desk, {"scenario": "/etc"}), default=lambda c: c.to_plotly_json()
        )


def test_a_job_answers_tells_and_stops():
    jobs = Jobs(1)
    try:
        wrong = jobs.start("breakeven", {"scenario": {}, "x": "", "y": "", "objective": "", "strategy": ""})
        scenario = json.loads(json.dumps(_document("autonomous-h200")))
        right = jobs.start("sensitivity", {"scenario": scenario, "strategy": "spec_agent"})
        assert jobs.start("sensitivity", {"scenario": scenario, "strategy": "spec_agent"}) == right
        never = jobs.start("risk", {"scenario": scenario, "hold_failures": [0.0], "damage_budget": 0.05})
        jobs.cancel(never)
        assert jobs.get(never).status == "cancelled"
        _until_over(jobs, wrong, right)
        assert jobs.get(wrong).status == "failed"
        assert "missing key" in jobs.get(wrong).line
        assert jobs.get(right).document["objectives"]["time"]["sources"]
        running = jobs.start("plan", {"scenario": {**scenario, "load": {"concurrency": 64}}})
        jobs.cancel(running)
        _until_over(jobs, running)
        assert jobs.get(running).status == "cancelled"
        assert jobs.get("nobody") is None
    finally:
        jobs.close()


def _document(name):
    from simulator.scenario_file import to_document

    return to_document(load_scenario(name))


def _until_over(jobs, *keys):
    assert all(jobs.get(key).over.wait(timeout=120) for key in keys)


def test_saved_files_hold_what_the_page_shows():
    import io

    import pandas as pd

    document = Glancer().glance(load_scenario("autonomous-h200")).document()
    frame, pictures = explore.strategy_frame(document), explore.pictures(document, "time")
    csv = saved("csv", "x", frame, pictures, document)
    assert pd.read_csv(io.StringIO(csv["content"]))["time_s"].tolist() == pytest.approx(frame["time_s"].tolist())
    parquet = saved("parquet", "x", frame, pictures, document)
    again = pd.read_parquet(io.BytesIO(base64.b64decode(parquet["content"])))
    assert again["usd_low"].tolist() == frame["usd_low"].tolist()
    page = saved("html", "x", frame, pictures, document)["content"]
    assert page.count("plotly.js v") == 1
    assert "</html>" in page
    toml = saved("toml", "x", frame, pictures, document)
    assert toml["filename"] == "x.toml"
    assert "[weak]" in toml["content"]
