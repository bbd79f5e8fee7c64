"""How fast the simulator is: `pytest benchmarks`. CPU seconds, so that a busy machine counts for less."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from costmodel.deployment import deploy
from costmodel.pricing import Pricing
from costmodel.protocol import Role
from costmodel.request import Pass
from costmodel.step import StepModel
from simulator.arrivals import read_requests
from simulator.case import prepare
from simulator.engine import Engine
from simulator.request_stream import stream
from simulator.run import simulate
from simulator.scenario_file import load_scenario

TRACE = Path(__file__).parents[2] / "shared/traces/serving/mooncake_conversation_trace.jsonl"

pytestmark = pytest.mark.benchmark(timer=time.process_time, warmup=True)


@pytest.fixture(scope="module")
def speed():
    return prepare(load_scenario("speed"))


@pytest.mark.benchmark(timer=time.perf_counter)
def test_speed_scenario_whole_process(benchmark):
    """The scenario `speed` as a command: 1,000 ten-step trajectories, cold start included (wall seconds)."""
    command = [sys.executable, "-m", "specroof", "simulate", "speed", "--json"]
    benchmark.pedantic(subprocess.run, (command,), {"check": True, "stdout": subprocess.DEVNULL}, rounds=5)


def test_steps_after_start(benchmark, speed):
    """The same in a warm process; `extra_info` has agent steps per CPU second and events per step."""
    pricing = Pricing(speed.sites)
    run = benchmark.pedantic(simulate, (speed,), {"pricing": pricing, "details": False}, rounds=5, warmup_rounds=1)
    n_steps = int(run.columns("trajectories")["n_steps"].sum())
    benchmark.extra_info["steps_per_s"] = n_steps / benchmark.stats["min"]
    benchmark.extra_info["events_per_step"] = run.meta["events"] / n_steps


def test_engine_alone(benchmark, speed):
    """One engine, eight clients, 4,000 requests of 5,000 prompt and 300 output tokens: no agents, no protocol."""
    import simpy

    from simulator.jobs import EngineJob

    model = Pricing(speed.sites).models[Role.STRONG]

    def play():
        env = simpy.Environment()
        engine = Engine(env, model)
        jobs = iter([EngineJob(i % 50, 5_000 + i % 97, 4_900, 250 + i % 101) for i in range(4_000)])

        def follow(_):
            job = next(jobs, None)
            if job is not None:
                engine.submit(job).callbacks.append(follow)

        for _ in range(8):
            follow(None)
        env.run()

    benchmark.pedantic(play, rounds=5, warmup_rounds=1)
    benchmark.extra_info["requests_per_s"] = 4_000 / benchmark.stats["min"]


def test_step_costs(benchmark):
    """10,000 prefill passes priced beside eight decoding sequences."""
    model = StepModel(deploy("meta-llama/Llama-3.1-70B", "h200", n_devices=4, weight_dtype="bf16"))
    passes = [Pass(1 + i % 2048, 512 * (i % 40), True) for i in range(10_000)]

    def price():
        for one in passes:
            model.prefill_added([one], 8)

    benchmark.pedantic(price, rounds=5, warmup_rounds=1)
    benchmark.extra_info["costs_per_s"] = len(passes) / benchmark.stats["min"]


@pytest.mark.skipif(not TRACE.exists(), reason="the Mooncake conversation trace is not beside the repository")
@pytest.mark.parametrize("router", ["round_robin", "prefix_affinity"])
def test_mooncake(benchmark, router):
    """12,031 recorded requests on eight replicas with a hash-addressed prefix cache, reading the trace included."""
    model = StepModel(deploy("meta-llama/Llama-3.1-70B", "h200", n_devices=4, weight_dtype="bf16"))

    def play():
        return stream(list(read_requests(TRACE)), model, replicas=8, router=router)

    result = benchmark.pedantic(play, rounds=3, warmup_rounds=1)
    assert len(result.finish_s) == 12_031
    benchmark.extra_info["requests_per_s"] = 12_031 / benchmark.stats["min"]
