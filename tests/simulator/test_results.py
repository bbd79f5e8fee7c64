"""Runs as records: round trip, strict reading, summaries, intervals, timelines."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from costmodel.cost import COLUMNS, PHASES
from costmodel.protocol import Role
from hwprofiles.errors import InputError, ProfileError
from simulator import results
from simulator.agents import Record
from simulator.replication import mean_interval, ratio_interval, summarise
from simulator.results import SCHEMA, STATUSES, RunResult, build, load
from simulator.run import simulate
from simulator.scenario_file import load_scenario
from simulator.timeline import LANES, chrome_trace, timeline

META = {"kind": "simulated", "strategy": "spec_agent", "seed": 0, "engines": [], "events": 5}
NO_COST = [0.0] * len(COLUMNS)


def record(number, time_s, *, counted=True, status="finished"):
    finish_s = 10.0 * number + time_s if status == "finished" else math.nan
    made = Record(number, f"task-{number}", counted, 10.0 * number, status, finish_s=finish_s)
    made.output_tokens[Role.STRONG] = 7 * number
    return made.row()


def phase(number, start_s, end_s, lane="weak", name="draft_decode"):
    cost = dict.fromkeys(COLUMNS, 0.0) | {"flops": 3.5, "wall_s": end_s - start_s}
    return (number, 0, 2, "draft", lane, name, start_s, end_s, *cost.values())


@pytest.fixture
def run():
    rows = {
        "trajectories": [
            record(0, 99.0, counted=False),
            record(1, 2.0),
            record(2, 4.0),
            record(3, 6.0),
            record(4, 0.0, status="unfinished"),
            record(5, 0.0, status="rejected"),
        ],
        "steps": [(1, 0, 2, "weak", "accepted", "read", 10.0, 11.0, 40)],
        "phases": [phase(1, 10.0, 11.0), phase(1, 11.0, 12.0, "network", "network")],
        "engine": [("weak", 0, 10.0, 0.5, 20, 0, 1, 320, 0)],
    }
    return build(META, rows)


def test_round_trip(run, tmp_path):
    run.save(tmp_path / "a")
    again = load(tmp_path / "a")
    assert again.meta == META
    for name in SCHEMA:
        assert again.frames[name].equals(run.frames[name]), name
        assert list(again.frames[name].dtypes) == list(run.frames[name].dtypes)
    again.save(tmp_path / "b")
    for file in sorted((tmp_path / "a").iterdir()):
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_empty_frames_round_trip(tmp_path):
    build(META, {}).save(tmp_path)
    assert load(tmp_path).summary()["time_s"] == {"mean": None, "p50": None, "p95": None, "p99": None}


def test_summary_counts_all_and_averages_the_counted(run):
    summary = run.summary()
    assert summary["status_counts"] == {"finished": 4, "unfinished": 1, "rejected": 1, "failed": 0}
    assert set(summary["status_counts"]) == set(STATUSES)
    assert summary["n_counted"] == 3
    assert summary["time_s"]["mean"] == pytest.approx(4.0)
    assert summary["time_s"]["p50"] == pytest.approx(4.0)
    assert summary["mean"]["strong_output_tokens"] == pytest.approx(14.0)
    json.dumps(summary, allow_nan=False)


def test_the_schema_is_complete():
    for name, columns in SCHEMA.items():
        for column, spec in columns.items():
            assert spec.meaning, (name, column)
            assert spec.dtype in {"int64", "float64", "bool", "string"}
            ends = {"_s": "s", "_bytes": "B", "_tokens": "tokens", "_j": "J", "_usd": "USD"}
            for suffix, unit in ends.items():
                if column.endswith(suffix):
                    assert spec.unit == unit, (name, column)


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="a row of steps has 9 values, got 2"):
        build(META, {"steps": [(1, 2)]})
    with pytest.raises(InputError, match="did you mean 'phases'"):
        build(META, {"phase": []})


def test_frames_of_another_shape_are_refused(run):
    frames = dict(run.frames)
    with pytest.raises(InputError, match="a run holds the frames"):
        RunResult({"steps": frames["steps"]}, META)
    for change, message in (
        (frames["steps"].rename(columns={"step": "stop"}), "unknown column of steps 'stop'; did you mean 'step'"),
        (frames["steps"].astype({"step": "float64"}), "'step' of steps must be int64, got float64"),
        (frames["steps"].drop(columns="effect"), "'effect' of steps must be string, got nothing"),
        (frames["steps"][list(reversed(SCHEMA["steps"]))], "order of the schema"),
    ):
        with pytest.raises(InputError, match=message):
            RunResult(frames | {"steps": change}, META)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a run document"),
        ("[]", "expected an object, got list"),
        ('{"schema_version": 2, "meta": NaN}', "NaN is not allowed"),
        ('{"schema_version": 1, "meta": {}}', "schema_version must be 2, got 1"),
        (
            '{"schema_version": 2, "meta": {}, "summary": {}, "extra": 0}',
            "expected schema_version, meta .* and summary",
        ),
        ('{"schema_version": 2, "meta": [], "summary": {}}', "expected schema_version, meta .* and summary"),
        ("[" * 100_000, "not a run document"),
    ],
)
def test_a_broken_document_is_one_message(run, tmp_path, text, message):
    run.save(tmp_path)
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ProfileError, match=message):
        load(tmp_path)


def test_broken_files_are_one_message(run, tmp_path):
    with pytest.raises(ProfileError, match=r"run.json: cannot be read"):
        load(tmp_path / "nowhere")
    run.save(tmp_path)
    (tmp_path / "run.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match="not a run document"):
        load(tmp_path)
    run.save(tmp_path)
    (tmp_path / "steps.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(ProfileError, match=r"steps.parquet: cannot be read as parquet"):
        load(tmp_path)
    run.save(tmp_path)
    (tmp_path / "steps.parquet").write_bytes((tmp_path / "engine.parquet").read_bytes())
    with pytest.raises(ProfileError, match=r"steps.parquet: columns must be"):
        load(tmp_path)
    (tmp_path / "steps.parquet").unlink()
    with pytest.raises(ProfileError, match=r"steps.parquet: cannot be read"):
        load(tmp_path)


def test_meta_must_be_json(run, tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        RunResult(run.frames, {"value": math.nan}).save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_mean_interval():
    """n = 5, s = 1: half width t_{0.95, 4} / sqrt(5) = 2.1318 / 2.2361."""
    x = np.array([-1.2649, -0.6325, 0.0, 0.6325, 1.2649]) + 10
    found = mean_interval(x.tolist())
    assert found.value == pytest.approx(10)
    assert found.high - 10 == pytest.approx(2.13185 / math.sqrt(5) * x.std(ddof=1), rel=1e-4)
    assert 10 - found.low == pytest.approx(found.high - 10)
    assert mean_interval([3.0]) == (3.0, None, None, 1)
    with pytest.raises(InputError):
        mean_interval([])


def runs_of(times):
    return [build(META, {"trajectories": [record(1, t)]}) for t in times]


def test_ratios_are_paired():
    """Seeds differ tenfold, ratios do not: the interval is narrow."""
    base = [1.0, 10.0, 100.0]
    found = ratio_interval(runs_of([0.5 * t for t in base]), runs_of(base), "time_s")
    assert found.value == pytest.approx(0.5)
    assert found.high - found.low == pytest.approx(0, abs=1e-9)
    nothing = [build(META, {}) for _ in base]
    assert ratio_interval(nothing, runs_of(base), "time_s") is None
    with pytest.raises(InputError, match="'speed' is not summarised"):
        ratio_interval(nothing, nothing, "speed")


def test_summarise_over_seeds():
    found = summarise(runs_of([1.0, 2.0, 3.0]))
    assert found["time_s"]["value"] == pytest.approx(2.0)
    assert found["time_s_p95"]["n"] == 3
    assert found["status_counts"] == {"finished": 3, "unfinished": 0, "rejected": 0, "failed": 0}
    assert summarise([build(META, {})])["time_s"] is None


def test_a_timeline_starts_at_zero(run):
    spans = timeline(run, 1)
    assert list(spans.columns) == ["strategy", "start_s", "end_s", "lane", "phase", "step", "label"]
    assert spans["start_s"].tolist() == [0.0, 1.0]
    assert spans["label"].tolist() == ["draft 2", "draft 2"]
    with pytest.raises(InputError, match="trajectory must be between 0 and 5, got 9"):
        timeline(run, 9)


def test_chrome_trace(run):
    trace = chrome_trace(run)
    json.dumps(trace, allow_nan=False)
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert [(e["ts"], e["dur"]) for e in spans] == [(10e6, 1e6), (11e6, 1e6), (10e6, 0.5e6)]
    assert spans[1]["tid"] == LANES.index("network")
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
    assert {"trajectory 1: task-1", "weak engine 0", "strong"} <= names


NEEDED = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "C": {"name", "ph", "ts", "pid", "args"},
    "M": {"name", "ph", "pid", "tid", "args"},
    "s": {"name", "cat", "ph", "id", "ts", "pid", "tid"},
    "t": {"name", "cat", "ph", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "ph", "id", "ts", "pid", "tid", "bp"},
}
"""Keys of each kind of event in the Trace Event Format."""


def test_the_trace_keeps_to_the_format():
    """Kinds and keys, counters of numbers, and flows that begin once, end once and bind to a span of their lane."""
    case = load_scenario("llama-a100", ["workload.n=2", "load.n_trajectories=2", "concurrency=2"])
    trace = chrome_trace(simulate(case, "spec_agent", keep_log=True))
    events = trace["traceEvents"]
    json.dumps(trace, allow_nan=False)
    assert trace["displayTimeUnit"] in {"ms", "ns"}
    for e in events:
        assert set(e) == NEEDED[e["ph"]], e
    spans = {}
    for e in events:
        if e["ph"] == "X":
            assert e["dur"] >= 0
            spans.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
        if e["ph"] == "C":
            assert all(isinstance(v, int | float) for v in e["args"].values())
    assert {e["name"] for e in events if e["ph"] == "C"} == {"batch", "prefill", "KV cache", "queue"}
    flows = {}
    for e in events:
        if e["ph"] in "stf":
            flows.setdefault(e["id"], []).append(e)
            assert any(a - 1 <= e["ts"] <= b + 1 for a, b in spans[e["pid"], e["tid"]])
    assert flows
    for flow in flows.values():
        assert [e["ph"] for e in flow] == ["s", *["t"] * (len(flow) - 2), "f"]
        assert [e["ts"] for e in flow] == sorted(e["ts"] for e in flow)


def test_waste_is_counted_per_committed_step():
    run = simulate(
        load_scenario("llama-a100", ["workload.n=4", "load.n_trajectories=6", "concurrency=2"]), "spec_agent"
    )
    done = run.counted()
    mine = run.phases[run.phases["trajectory"].isin(done["trajectory"])]
    wasted = mine[mine["phase"].isin(["wasted_draft", "wasted_tool"])]
    drafts = run.steps[run.steps["trajectory"].isin(done["trajectory"]) & (run.steps["fate"] == "discarded")]
    per_step = run.summary()["wasted_per_step"]
    n = done["n_steps"].sum()
    assert per_step["energy_j"] == pytest.approx(wasted["energy_j"].sum() / n)
    assert per_step["busy_s"] == pytest.approx(wasted["busy_s"].sum() / n)
    assert per_step["output_tokens"] == pytest.approx(drafts["output_tokens"].sum() / n)
    assert per_step["output_tokens"] > 0
    assert per_step["usd"] > 0
    assert per_step["tool_calls"] <= len(drafts) / n


def test_costs_follow_the_ledger():
    assert tuple(results.SCHEMA["phases"])[-len(COLUMNS) :] == COLUMNS
    assert len(set(PHASES)) == len(PHASES)
