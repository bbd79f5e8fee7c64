"""How fast the dashboard answers: a turned knob, and large saved runs. CPU seconds, as in `test_bench_speed.py`."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pandas as pd
import plotly.io
import pytest

pytest.importorskip("dash")

from dashboards import figures, knobs, shelf
from dashboards.desk import Desk
from dashboards.jobs import Jobs
from dashboards.pages import explore
from simulator.scenario_file import load_scenario

pytestmark = pytest.mark.benchmark(timer=time.process_time, warmup=True)
ROWS = 1_000_000


@pytest.mark.parametrize("knob", ["acceptance", "window", "verbosity", "rtt_ms", "concurrency"])
def test_knob_to_figures(benchmark, knob):
    """From the knobs of Explore to the JSON of its two figures; every round is another place of the knob."""
    desk = Desk(shelf.Shelf(), Jobs(1))
    scenario = load_scenario("retail-h200")
    own = knobs.own_values(scenario)
    low, high, step = knobs.SLIDERS[knob][2]
    places = itertools.cycle(np.arange(low, high, step)[::-1].tolist())

    def turn():
        document = desk.glance(knobs.changed(scenario, own | {knob: next(places)}, own))
        return [plotly.io.to_json(f, validate=False) for _, f in explore.pictures(document, "time")]

    turn()
    benchmark.pedantic(turn, rounds=12)


@pytest.fixture(scope="module")
def large_run(tmp_path_factory):
    """A saved run with a million engine iterations and a million spans of ten thousand trajectories."""
    folder = tmp_path_factory.mktemp("large")
    at = np.arange(ROWS, dtype=float)
    pd.DataFrame(
        {"role": "strong", "replica": 0, "start_s": at, "time_s": 1.0, "n_decode": (at % 37).astype(int),
         "kv_used_tokens": (at % 9973).astype(int), "n_waiting": (at % 11).astype(int)}
    ).to_parquet(folder / "engine.parquet")  # fmt: skip
    pd.DataFrame(
        {"trajectory": np.repeat(np.arange(ROWS // 100), 100), "kind": "write", "step": (at % 100).astype(int),
         "lane": "strong", "phase": "decode", "start_s": at, "end_s": at + 1.0}
    ).to_parquet(folder / "phases.parquet", row_group_size=50_000)  # fmt: skip
    pd.DataFrame(
        {"trajectory": np.arange(ROWS // 100), "arrival_s": at[::100], "time_s": 100.0, "counted": True}
    ).to_parquet(folder / "trajectories.parquet")
    return folder


def test_trajectory_of_a_large_run(benchmark, large_run):
    """One of ten thousand trajectories, read and drawn."""
    benchmark(lambda: figures.timeline(shelf.spans(large_run, 7777, "strong_only")))


def test_engine_of_a_large_run(benchmark, large_run):
    """A million iterations, read and drawn."""
    names = ("role", "replica", "start_s", "time_s", "n_decode", "kv_used_tokens", "n_waiting")
    benchmark.pedantic(lambda: figures.engine_load(shelf._read(large_run, "engine", names, None)), rounds=3)


def test_fifty_runs_compared(benchmark, large_run):
    """The distributions of fifty runs of ten thousand tasks."""

    def compare():
        times = [shelf._read(large_run, "trajectories", ("time_s",), None)["time_s"].tolist() for _ in range(50)]
        return figures.latencies(
            [{"strategy": "spec_agent", "label": str(i), "time_s": t} for i, t in enumerate(times)]
        )

    benchmark.pedantic(compare, rounds=3)
