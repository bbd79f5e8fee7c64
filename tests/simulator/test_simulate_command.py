"""`specroof simulate`: JSON as in the contract, the same bytes twice, runs and traces on disk, plain errors."""

from __future__ import annotations

import json

from simulator.results import load

SMALL = ("--set", "run.seeds=2", "--set", "load.n_trajectories=4", "--set", "concurrency=2")


def test_json_is_the_contract_and_repeats(run_cli, tmp_path):
    command = ("simulate", "retail-h200", "--strategy", "strong_only", "--strategy", "spec_agent", *SMALL, "--json")
    first = run_cli(*command, "-o", tmp_path / "runs", "--timeline", tmp_path / "t.json")
    assert first.code == 0
    written, drawn = first.err.splitlines()
    assert f"4 runs written to {tmp_path / 'runs'}" in written
    assert f"timeline of strong_only, seed 0, written to {tmp_path / 't.json'}" in drawn
    document = json.loads(first.out)
    assert next(iter(document)) == "schema_version"
    assert set(document["summary"]) == {"strong_only", "spec_agent"}
    assert document["summary"]["spec_agent"]["time_s"]["n"] == 2
    assert document["time_ratio_to_strong_only"]["strong_only"]["value"] == 1.0
    assert document["status_counts"]["rejected"] == 0
    assert document["events"] > 0
    assert document["scenario"]["load"]["concurrency"] == 2
    assert run_cli(*command).out == first.out

    saved = load(tmp_path / "runs" / "spec_agent-seed1")
    assert (saved.meta["strategy"], saved.meta["seed"]) == ("spec_agent", 1)
    assert len(saved.engine) > 0
    assert json.loads((tmp_path / "t.json").read_text())["otherData"] == {"strategy": "strong_only"}


def test_a_table_for_people(run_cli):
    shown = run_cli("simulate", "edge-cloud", "--strategy", "spec_agent", *SMALL)
    assert shown.code == 0
    assert "spec_agent" in shown.out
    assert "API" in shown.out
    assert "0 rejected" in shown.out
    assert "2 agents, 2 seeds" in shown.out
    assert "to strong_only" not in shown.out


def test_one_is_singular_and_rounding_is_zero(run_cli):
    shown = run_cli("simulate", "retail-h200", "--strategy", "strong_only", *SMALL[:4], "--set", "run.seeds=1")
    assert "1 agent, 1 seed" in shown.out
    assert "e-" not in shown.out


def test_errors_are_plain(run_cli, tmp_path):
    for command, hint in (
        (("simulate", "retail-h20"), "did you mean 'retail-h200'"),
        (("simulate", "retail-h200", "--strategy", "specagent", *SMALL), "did you mean 'spec_agent'"),
        (("simulate", "retail-h200", "--set", "concurency=3"), "did you mean 'concurrency'"),
        (("simulate", "retail-h200", *SMALL, "--strategy", "weak_only", "--timeline", tmp_path), "cannot be written"),
    ):
        found = run_cli(*command)
        assert (found.code, found.out) == (2, "")
        assert hint in found.err
        assert len(found.err.splitlines()) == 1
