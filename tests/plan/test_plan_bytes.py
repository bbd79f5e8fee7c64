"""Same scenario, same seed: the same bytes, in another process and with another hash seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SETTINGS = ["--set", "run.samples=16", "--set", "workload.n=3"]


def _run(tmp_path, hash_seed, *args):
    env = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "specroof", "plan", *args, *SETTINGS, "--json"]
    done = subprocess.run(command, capture_output=True, env=env, cwd=tmp_path, check=True)
    return done.stdout


def test_json_and_report_do_not_depend_on_the_process(tmp_path):
    first, second = (
        _run(tmp_path, seed, "retail-h200", "-o", str(tmp_path / f"{seed}.html")) for seed in ("1", "4242")
    )
    assert first == second
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "4242.html").read_bytes()


def test_a_simulated_plan_does_not_depend_on_the_process(tmp_path):
    load = ["--set", "concurrency=3", "--set", "load.n_trajectories=3", "--set", "run.seeds=2"]
    first, second = (_run(tmp_path, seed, "llama-a100", *load) for seed in ("7", "8"))
    assert first == second
    assert {s["method"] for s in json.loads(first)["strategies"]} == {"simulated"}


@pytest.mark.parametrize("name", ["llama-a100", "edge-cloud"])
def test_planning_twice_in_one_process_gives_the_same_document(name, small, planned):
    from simulator.plan import plan

    assert plan(small(name)).to_json() == planned(name).to_json()


def test_another_seed_moves_the_intervals_and_no_central_value(planned):
    one, other = planned("llama-a100"), planned("llama-a100", "run.seed=1")
    moved = 0
    for strategy, row in one.predictions.items():
        for column, p in row.items():
            q = other.predictions[strategy][column]
            assert p.value == q.value
            moved += (p.low, p.high) != (q.low, q.high)
    assert moved > 5
