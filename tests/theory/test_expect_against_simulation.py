"""`expect` against simulation at random scenarios: exact without contention, close under moderate load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2, norm, t

from costmodel.pricing import Pricing
from simulator.case import Case, prepare
from simulator.outcome import Evaluator
from simulator.plan import plan
from simulator.replication import replicate
from simulator.run import acceptance_shift, simulate
from simulator.scenario import Scenario
from simulator.scenario_file import load_scenario

PAIRS = (
    ("meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.1-70B", ("a100", "h100", "h200", "b200"), "bf16", 4),
    ("Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-397B-A17B", ("h200", "b200"), "fp8", 8),
)
STRATEGIES = ("spec_agent", "step_verification", "spec_agent_adaptive", "step_speculation", "spec_agent_pipelined")
N_RUNS = 80


def drawn(rng: np.random.Generator, **more: object) -> Scenario:
    """A random scenario: models, devices, workload, acceptance (by position now and then), windows, sizes, waits."""
    weak, strong, devices, dtype, n = PAIRS[int(rng.integers(len(PAIRS)))]
    source = [{"workload.law": w} for w in ("autonomous", "mcp-atlas")] + [{"workload.trace": "retail"}]
    acceptance: dict[str, object] = {"protocol.acceptance": round(float(rng.uniform(0.3, 0.98)), 3)}
    if rng.random() < 0.3:
        acceptance = {"protocol.acceptance_by_position": tuple(np.round(rng.uniform(0.5, 0.98, 3), 3).tolist())}
    base = load_scenario("llama-a100").with_(
        **{
            "weak.model": weak,
            "strong.model": strong,
            "weak.hardware": str(rng.choice(devices)),
            "strong.hardware": str(rng.choice(devices)),
            "strong.weight_dtype": dtype,
            "strong.n_devices": n,
            "protocol.window": int(rng.integers(1, 9)),
            "protocol.verdict_tokens": float(rng.integers(1, 80)),
            "tools.latency_s": round(float(rng.uniform(0, 3)), 3),
            "workload.verbosity": round(float(rng.uniform(0.5, 1.5)), 3),
            "run.samples": 16,
        }
    )
    law = source[int(rng.integers(len(source)))]
    if "workload.law" in law:
        base = base.with_(**{"workload.trace": None, **law, "workload.n": 30})
    return base.with_(**acceptance, **more)


def one_task(case: Case, rng: np.random.Generator) -> Case:
    """The case with one of its tasks of at most 30 steps: its trajectories are then independent and alike."""
    short = [task for task in case.tasks if 2 <= len(task.steps) <= 30]
    return replace(case, tasks=(short[int(rng.integers(len(short)))],), tools=None, gaps=None)


@pytest.mark.slow
def test_z_scores_of_two_hundred_idle_points_pass_a_chi_square_test() -> None:
    """Mean time of 80 drawn paths against the expectation, in standard errors (Student's, mapped to a normal's)."""
    rng = np.random.default_rng(7)
    scores = []
    for point in range(200):
        case = one_task(prepare(drawn(rng, **{"load.n_trajectories": N_RUNS, "run.seed": point})), rng)
        name = STRATEGIES[point % len(STRATEGIES)]
        expected = Evaluator(case, {}).outcome(name, case.scenario.protocol.window).central.column("wall_s")[0]
        pricing = Pricing(case.sites)
        run = simulate(case, name, point, details=False, pricing=pricing, shift=acceptance_shift(case, pricing))
        times = run.columns("trajectories")["time_s"]
        error = times.std(ddof=1) / np.sqrt(len(times))
        if error < 1e-9 * times.mean():  # no verdict changes the time here
            assert times.mean() == pytest.approx(expected, rel=1e-6)
            continue
        scores.append(norm.ppf(np.clip(t.cdf((times.mean() - expected) / error, N_RUNS - 1), 1e-12, 1 - 1e-12)))
    z = np.array(scores)
    assert len(z) > 150
    low, high = (float(chi2.ppf(p, len(z))) for p in (0.005, 0.995))
    assert low < np.sum(z**2) < high
    assert abs(z.mean()) < norm.ppf(0.995) / np.sqrt(len(z))


@pytest.mark.slow
def test_loaded_plans_agree_with_long_independent_simulations() -> None:
    """Fifty loads whose busiest engine works less than 0.7 of the time: mean time within 10 %."""
    rng = np.random.default_rng(11)
    checked = 0
    while checked < 50:
        agents, strategy = int(rng.integers(2, 9)), ("spec_agent", "step_verification")[checked % 2]
        load = {"load.concurrency": agents, "strategies": ("strong_only", strategy), "run.seeds": 2, "run.seed": 0}
        latency_s = round(float(rng.uniform(2, 20)), 2)
        scenario = drawn(rng, **load, **{"tools.latency_s": latency_s})
        if scenario.workload.trace is not None:
            continue  # short tasks only: what is tested is load
        long = prepare(scenario.with_(**{"load.n_trajectories": 120, "run.seed": 1000 + 10 * checked, "run.seeds": 3}))
        runs = replicate(long, (strategy,), details=False)[strategy]
        busiest = max(e["utilisation"] for run in runs for e in run.meta["engines"])
        if busiest >= 0.7:
            continue
        found = plan(scenario)
        assert {row["method"] for row in found.document()["strategies"]} == {"simulated"}
        expected = np.mean([run.summary()["time_s"]["mean"] for run in runs])
        row = found.predictions[strategy]["time_s"]
        assert row is not None
        assert row.value == pytest.approx(expected, rel=0.10), (checked, agents, strategy)
        checked += 1


@pytest.mark.slow
def test_a_busy_fleet_is_simulated() -> None:
    """Above utilisation 0.7 no figure of a plan is an expectation."""
    found = plan(load_scenario("llama-a100").with_(**{"load.concurrency": 24, "run.seeds": 2, "workload.n": 8}))
    document = found.document()
    assert {row["method"] for row in document["strategies"]} == {"simulated"}
