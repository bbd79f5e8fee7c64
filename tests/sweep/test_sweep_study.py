"""What a study keeps, refuses and reports."""

from __future__ import annotations

import json
import os

import pandas as pd
import pytest

import specroof as sr
from hwprofiles.errors import InputError, ProfileError
from simulator.pool import DIED, Pool
from simulator.scenario_file import load_scenario
from simulator.study import CellResult, Study, difference
from simulator.sweep import sweep

HEAD = {"scenario": {"load": {"concurrency": 4}}, "design": {"kind": "grid"}, "method": "auto", "specroof": "1"}
CELLS = [{"window": 1}, {"window": 2}]


@pytest.fixture(scope="module")
def scenario():
    return load_scenario("autonomous-h200", ["workload.n=2", "run.samples=16"])


def test_results_outlive_the_object_and_come_back_in_order(tmp_path):
    path = tmp_path / "s.sqlite"
    with Study(path, HEAD, CELLS) as study:
        study.record(CellResult(cell=1, reason="no"))
    with Study(path, HEAD, CELLS) as study:
        assert study.pending() == [(0, {"window": 1})]
        study.record(CellResult(cell=0, rows=({"strategy": "a", "time_s": 0.1},)))
        assert study.counts() == (1, 1)
        assert study.failed() == [{"cell": 1, "settings": {"window": 2}, "reason": "no"}]
        assert list(study.rows()) == [{"cell": 0, "window": 1, "strategy": "a", "time_s": 0.1}]
        study.forget_failed()
        assert [cell for cell, _ in study.pending()] == [1]


@pytest.mark.parametrize(
    ("head", "cells", "words"),
    [
        ({"scenario": {"load": {"concurrency": 8}}}, CELLS, "scenario: load.concurrency is 4 there and 8 here"),
        ({"scenario": {"load": {}}}, CELLS, "load.concurrency is 4 there and unset here"),
        ({"design": {"kind": "lhs"}}, CELLS, 'design: kind is "grid" there and "lhs" here'),
        ({"method": "expected"}, CELLS, 'method: "auto" there and "expected" here'),
        ({"specroof": "2"}, CELLS, "version of specroof"),
        ({"files": {"t.json": "ab"}}, CELLS, "files the scenario names"),
        ({}, CELLS[:1], "other cells"),
    ],
    ids=str,
)
def test_another_sweep_is_refused_with_the_difference(tmp_path, head, cells, words):
    path = tmp_path / "s.sqlite"
    Study(path, HEAD, CELLS).close()
    with pytest.raises(InputError, match=words):
        Study(path, {**HEAD, **head}, cells)


def test_one_writer_at_a_time(tmp_path):
    with Study(tmp_path / "s.sqlite", HEAD, CELLS), pytest.raises(InputError, match="another sweep writes"):
        Study(tmp_path / "s.sqlite", HEAD, CELLS)


def test_what_is_no_study(tmp_path):
    (tmp_path / "text").write_text("not a database, though long enough to be looked at " * 40)
    with pytest.raises(ProfileError, match="not a study"):
        Study(tmp_path / "text", HEAD, CELLS)
    with pytest.raises(InputError, match="folder"):
        Study(tmp_path, HEAD, CELLS)
    with pytest.raises(InputError, match="does not exist"):
        Study(tmp_path / "nowhere" / "s.sqlite", HEAD, CELLS)


def test_difference_finds_the_first_place():
    assert difference({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}).startswith("a.c is 2 there and 3 here")


def test_a_failed_cell_stops_nothing_and_the_rows_are_those_of_plan(scenario, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = []
    found = sweep(scenario, ["window=4,99"], workers=1, progress=lambda *counts: told.append(counts))
    assert (found.cells, found.done, len(found.failed)) == (2, 1, 1)
    assert "protocol.window" in found.failed[0]["reason"]
    assert told[0] == (0, 0, 2)
    assert told[-1] == (1, 1, 2)
    frame = found.frame()
    assert list(frame["strategy"]) == list(scenario.strategies)
    planned = sr.plan(scenario)
    for name, row in planned.predictions.items():
        mine = frame[frame["strategy"] == name].iloc[0]
        for column, value in row.items():
            assert (mine[column], mine[f"{column}_low"]) == pytest.approx((value.value, value.low), rel=1e-12)
    spec = frame[frame["strategy"] == "spec_agent"].iloc[0]
    assert spec["ratio_time"] == pytest.approx(planned.ratios["spec_agent"]["time"].value)
    found.export(tmp_path / "r.csv")
    found.export(tmp_path / "r.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "r.parquet"), frame, check_dtype=False)
    assert pd.read_csv(tmp_path / "r.csv")["time_s"].tolist() == frame["time_s"].tolist()
    with pytest.raises(InputError, match=r"\.csv or \.parquet"):
        found.export(tmp_path / "r.xls")


def double(x):
    if x == 3:
        os._exit(9)
    return 2 * x


def test_a_process_that_dies_takes_only_its_own_task_along():
    with Pool(double, 2) as pool:
        assert dict(pool.run([1, 2])) == {1: 2, 2: 4}
        found = dict(pool.run(range(6)))
    assert found == {0: 0, 1: 2, 2: 4, 3: DIED, 4: 8, 5: 10}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "dsk"}, "did you mean 'dask'"),
        ({"engine": "dask"}, "address"),
        ({"scheduler": "tcp://127.0.0.1:1"}, "goes with"),
        ({"method": "guess"}, "method"),
        ({"workers": 0}, "workers must be"),
    ],
)
def test_options_that_cannot_be(scenario, options, words, tmp_path):
    with pytest.raises(InputError, match=words):
        sweep(scenario, ["window=4,5"], study=tmp_path / "s.sqlite", **options)


def test_the_command_speaks_as_the_contract_says(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = ["sweep", "retail-h200", "--set", "workload.n=2", "--set", "run.samples=16", "--workers", 1, "--json"]
    first = run_cli(*line, "--vary", "write_share=0.1,0.2", "-o", "r.csv")
    document = json.loads(first.out)
    assert {"cells", "done", "failed", "study", "scenario"} <= set(document)
    assert (document["cells"], document["done"]) == (2, 0)
    assert "needs a law" in document["failed"][0]["reason"]
    again = run_cli(*line, "--vary", "write_share=0.1,0.2")
    assert again.out == first.out
    refused = run_cli(*line, "--vary", "window=1,2", "--set", "protocol.window=3")
    assert refused.code == 2
    assert "two sources" in refused.err
    law = run_cli(*line, "--vary", "write_share=0.1,0.2", "--as-law")
    assert json.loads(law.out)["done"] == 2, law.err
