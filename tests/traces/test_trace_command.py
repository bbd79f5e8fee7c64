"""`specroof trace import` and `trace stats`."""

from __future__ import annotations

import json

import pytest

from costmodel.trajectory import Effect, Step, ToolCall, Trajectory, Workload
from simulator.traces import neutral, read_trace
from simulator.traces.stats import statistics
from simulator.workloads import workload

KEYS = {
    "format",
    "trajectories",
    "steps",
    "effects",
    "tool_calls",
    "prompt_tokens",
    "output_tokens",
    "missing",
    "warnings",
}


@pytest.fixture
def airline(tmp_path):
    path = tmp_path / "airline.json"
    neutral.write(workload("airline"), path)
    return path


def test_import_says_what_it_holds_and_writes_it(run_cli, airline, tmp_path):
    for suffix in ("json", "jsonl", "parquet"):
        out = tmp_path / f"out.{suffix}"
        done = run_cli("trace", "import", airline, "-o", out, "--json")
        found = json.loads(done.out)
        assert done.code == 0
        assert set(found) >= KEYS
        assert (found["format"], found["trajectories"], found["steps"], found["tool_calls"]) == ("neutral", 11, 106, 67)
        assert list(found["effects"]) == ["read", "pure", "write", "reply", "unknown"]
        assert sum(found["effects"].values()) == 106
        assert read_trace(out).workload == workload("airline")


def test_stats_of_a_bundled_name(run_cli):
    done = run_cli("trace", "stats", "retail", "--json")
    found = json.loads(done.out)
    assert set(found) >= KEYS
    assert found["steps_per_trajectory"]["mean"] == pytest.approx(12.7, abs=0.01)
    assert found["reads_before_a_write"]["mean"] < 0.1  # the customer's consent comes right before a write
    assert found["tools"][0] == {"name": "get_order_details", "effect": "read", "calls": 327}
    assert run_cli("trace", "stats", "retail", "--json").out == done.out


def test_tables_are_for_people(run_cli):
    done = run_cli("trace", "stats", "autonomous")
    assert done.code == 0
    assert "steps per trajectory" in done.out


def test_an_effects_map_changes_the_steps(run_cli, airline, tmp_path):
    (tmp_path / "map.toml").write_text('"*" = "write"\n', encoding="utf-8")
    done = run_cli("trace", "import", airline, "--effects", tmp_path / "map.toml", "--json")
    assert json.loads(done.out)["effects"]["read"] == 0


def test_warnings_go_to_stderr_and_into_the_document(run_cli, tmp_path):
    usage = {"prompt_tokens": 5, "completion_tokens": 1}
    message = {"role": "assistant", "content": "x", "usage": usage}
    document = {
        "simulations": [{"task_id": "1", "messages": [message, {**message, "usage": {**usage, "prompt_tokens": 2}}]}]
    }
    (tmp_path / "t.json").write_text(json.dumps(document), encoding="utf-8")
    done = run_cli("trace", "import", tmp_path / "t.json", "--json")
    found = json.loads(done.out)
    assert found["missing"] == ["cache", "outcome", "thinking", "times"]
    assert len(found["warnings"]) == done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"a": NaN}', "NaN"),
        (b"[]", "not recognised"),
    ],
)
def test_bad_files_end_with_one_line_and_exit_2(run_cli, tmp_path, content, message):
    (tmp_path / "t.json").write_bytes(content)
    for command in ("import", "stats"):
        done = run_cli("trace", command, tmp_path / "t.json", "--json")
        assert (done.code, done.out) == (2, "")
        assert message in done.err
        assert done.err.count("\n") == 1


def test_a_place_that_cannot_be_written(run_cli, airline, tmp_path):
    done = run_cli("trace", "import", airline, "-o", tmp_path / "none" / "x.json")
    assert done.code == 2
    assert "cannot be written" in done.err


def test_reads_before_a_reply_are_unknown_where_no_effect_is_known():
    steps = (
        Step(index=0, effect=Effect.UNKNOWN, tools=(ToolCall(name="x", effect=Effect.UNKNOWN),)),
        Step(index=1, effect=Effect.REPLY),
    )
    work = Workload(name="w", trajectories=(Trajectory(id="t", source_format="x", steps=steps),))
    assert statistics(work)["reads_before_a_reply"] is None
    assert statistics(workload("retail"))["reads_before_a_reply"] is not None
