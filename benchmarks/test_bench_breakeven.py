"""How fast break-even maps are: `pytest benchmarks/test_bench_breakeven.py`. CPU seconds, children included."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from simulator.axis import parse_axis
from simulator.breakeven import breakeven
from simulator.breakeven_cell import MapTask, attempt
from simulator.breakeven_simulated import simulated
from simulator.scenario_file import load_scenario, to_document


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


pytestmark = pytest.mark.benchmark(timer=cpu_s)


@pytest.fixture(scope="module")
def retail():
    return load_scenario("retail-h200")


@pytest.mark.parametrize("n", [100, 1000])
def test_expected_map(benchmark, retail, n):
    """n x n cells in a warm process."""
    axes = f"acceptance=0.5:0.99:{n}", f"output_tokens=30:600:{n}"
    found = benchmark.pedantic(breakeven, (retail, *axes), rounds=3, warmup_rounds=1)
    assert found.ratio.shape == (n, n)


@pytest.mark.parametrize("n", [100, 1000])
def test_expected_map_whole_process(benchmark, n):
    """The same as a command, start and JSON included; `extra_info` has the bytes it prints."""
    axes = ["--x", f"acceptance=0.5:0.99:{n}", "--y", f"output_tokens=30:600:{n}"]
    command = [sys.executable, "-m", "specroof", "breakeven", "retail-h200", *axes, "--json"]
    done = benchmark.pedantic(
        subprocess.run, (command,), {"check": True, "capture_output": True}, rounds=3 if n < 1000 else 1
    )
    assert len(json.loads(done.stdout)["ratio"]) == n
    benchmark.extra_info["json_bytes"] = len(done.stdout)


@pytest.mark.parametrize("agents", [10, 100])
def test_simulated_cell(benchmark, retail, agents):
    """One simulated cell with the scenario's five paired seeds: 16 of them make a map of any size."""
    settings = {"load.concurrency": agents, "acceptance": 0.8, "output_tokens": 120.0}
    task = MapTask(cell=0, document=to_document(retail), settings=settings, objective="time", strategy="spec_agent")
    found = benchmark.pedantic(attempt, (task,), rounds=3 if agents < 100 else 1)
    assert not found.reason


def test_simulated_map(benchmark, retail):
    """1,000 cells at ten agents on all cores, processes started and ended."""
    axes = parse_axis("acceptance=0.5:0.99:50"), parse_axis("output_tokens=30:600:20")
    (found,) = benchmark.pedantic(simulated, (retail, *axes, "time", "spec_agent"), {"loads": [10]}, rounds=1)
    assert found.ratio.shape == (20, 50)
    benchmark.extra_info["notes"] = list(found.notes)
