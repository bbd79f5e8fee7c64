"""Engines that draft tokens: alone they run the plan's passes, skipping ahead changes nothing, walk = simulate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.cost import COLUMNS, PHASES, QUANTITIES
from costmodel.deployment import deploy, factor_values
from costmodel.pricing import Pricing
from costmodel.protocol import Role
from costmodel.request import CacheRule, plan_request
from costmodel.speculation import token_speculation
from costmodel.step import StepModel
from costmodel.strategies import STRATEGY_NAMES, strategy
from costmodel.walk import forced, walk
from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.jobs import EngineJob
from simulator.load import Demand, uniforms
from simulator.run import simulate_tasks
from simulator.scenario_file import load_scenario

RULES = [
    CacheRule(block_tokens=16, chunk_tokens=64, tokens_per_pass=2.3, pass_tokens=4),
    CacheRule(block_tokens=48, chunk_tokens=100, state_aligned=True, tokens_per_pass=1.0, pass_tokens=2),
    CacheRule(block_tokens=1, chunk_tokens=90, tokens_per_pass=5.0, pass_tokens=5),
]


@st.composite
def workloads(draw):
    """Jobs at times that often coincide, on a KV cache that holds two or three of them."""
    arrivals, at_s = [], 0.0
    for _ in range(draw(st.integers(1, 10))):
        at_s += draw(st.integers(0, 40)) / 16
        prompt = draw(st.integers(1, 120))
        job = EngineJob(draw(st.integers(0, 3)), prompt, draw(st.integers(0, 120)), draw(st.integers(1, 70)))
        arrivals.append((at_s, job))
    limits = {
        "rule": draw(st.sampled_from(RULES)),
        "kv_tokens": draw(st.sampled_from([192, 208, 320, 640, 100_000])),
        "max_seqs": draw(st.sampled_from([1, 2, 4, 16])),
    }
    return limits, arrivals


@settings(max_examples=120)
@given(workloads())
def test_skip_ahead_equals_the_plain_loop_and_every_token_comes(linear_cost, played, workload):
    limits, arrivals = workload
    skipped = played(linear_cost(**limits), arrivals)
    plain = played(linear_cost(**limits), arrivals, skip_ahead=False)
    for a, b in zip(skipped.results, plain.results, strict=True):
        assert (a.passes, a.cached_tokens, a.n_preemptions) == (b.passes, b.cached_tokens, b.n_preemptions)
        assert a.emitted_tokens == a.job.output_tokens
        assert a.finish_s == pytest.approx(b.finish_s, rel=1e-11)
        np.testing.assert_allclose(a.decode, b.decode, rtol=1e-9, atol=1e-12)
    assert skipped.engine.ledger.free_blocks == plain.engine.ledger.free_blocks
    assert skipped.engine.n_running == skipped.engine.n_waiting == 0


@pytest.fixture(scope="module")
def windowed():
    option = token_speculation(
        "openai/gpt-oss-120b", "draft", length=3, acceptance=0.6, draft_model="openai/gpt-oss-20b"
    )
    dep = deploy("openai/gpt-oss-120b", "h200", speculation=option)
    return StepModel(dep, {**factor_values(dep), "request_s": 0.0, "request_token_s": 0.0})


@pytest.mark.parametrize("skip_ahead", [True, False])
@given(prompt=st.integers(1, 400), output=st.integers(1, 200))
@settings(max_examples=25)
def test_alone_is_the_plan(played, windowed, skip_ahead, prompt, output):
    """Contexts cross the window of 128 on the way."""
    run = played(windowed, [(0.0, EngineJob("a", prompt, 0, output))], skip_ahead=skip_ahead)
    plan = plan_request(windowed.rule, prompt, 0, output)
    (result,) = run.results
    decode = windowed.decode_run(np.array(float(prompt)), np.array(float(plan.decode_passes)))
    np.testing.assert_allclose(result.decode, decode, rtol=1e-9)
    assert result.decode_s == pytest.approx(decode[QUANTITIES.index("busy_s")], rel=1e-9)


def test_company_is_the_sum_of_its_iterations(played, windowed):
    """Six jobs of different lengths together: the engine's time is that of its steps, one by one."""
    jobs = [EngineJob(i, 40 + 37 * i, 0, 5 + 29 * i) for i in range(6)]
    run = played(windowed, [(0.0, job) for job in jobs])
    e, seconds = windowed.rule.tokens_per_pass, 0.0
    todo = [[float(j.prompt_tokens), plan_request(windowed.rule, j.prompt_tokens, 0, j.output_tokens)] for j in jobs]
    seconds += windowed.step([p for _, plan in todo for p in plan.passes], [])[0]
    left = [[context, plan.decode_passes] for context, plan in todo if plan.decode_passes]
    while left:
        seconds += windowed.step([], [context for context, _ in left])[0]
        left = [[context + e, n - 1] for context, n in left if n > 1]
    assert run.engine.busy_s == pytest.approx(seconds, rel=1e-9)
    charged = sum(sum(s[-1] for _, s in r.prefill) + r.decode[-1] for r in run.results)
    assert charged == pytest.approx(seconds, rel=1e-9)


def test_a_pass_of_more_than_a_block_is_refused(linear_cost, played):
    rule = CacheRule(block_tokens=16, chunk_tokens=640, tokens_per_pass=17.0, pass_tokens=17)
    with pytest.raises(InputError, match="more than a block"):
        played(linear_cost(rule=rule), [(0.0, EngineJob("a", 5, 0, 5))])
    with pytest.raises(InputError, match="3 tokens each"):
        played(linear_cost(rule=CacheRule(block_tokens=16, chunk_tokens=40, pass_tokens=3)), [])


DRAFTED = [
    'strong.decode={method="mtp", length=3, acceptance=0.7}',
    'weak.decode={method="mtp", length=1, acceptance=0.8}',
]


@pytest.fixture(scope="module")
def drafted_case():
    return prepare(load_scenario("retail-h200", ["workload.n=4", *DRAFTED]))


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_walk_and_simulate_agree_to_the_last_digit(drafted_case, name):
    case, pricing = drafted_case, Pricing(drafted_case.sites)

    def coin(number, task):
        return forced([u < 0.8 for u in uniforms(7, number, len(task.steps))])

    demand, one = Demand(n_trajectories=2, concurrency=1), {Role.WEAK: 1, Role.STRONG: 1}
    run = simulate_tasks(case.tasks, strategy(name, 3), coin, pricing, case.sizes, demand=demand, replicas=one, seed=1)
    found = np.zeros((len(run.trajectories), len(PHASES), len(COLUMNS)))
    where = (run.phases["trajectory"].to_numpy(), run.phases["phase"].map(PHASES.index).to_numpy())
    np.add.at(found, where, run.phases[list(COLUMNS)].to_numpy())
    tasks = {task.id: task for task in case.tasks}
    for row, ledger in zip(run.trajectories.itertuples(), found, strict=True):
        path = walk(tasks[row.task], strategy(name, 3), coin(row.trajectory, tasks[row.task]), pricing, case.sizes)
        assert row.time_s == pytest.approx(path.wall_s, rel=1e-9)
        scale = np.maximum(np.abs(path.ledger), np.abs(path.ledger).max(axis=0) * 1e-3) + 1e-300
        assert np.max(np.abs(ledger - path.ledger) / scale) < 1e-9


def test_drafting_tokens_saves_time_alone(drafted_case):
    plain = prepare(load_scenario("retail-h200", ["workload.n=4"]))
    times = []
    for case in (plain, drafted_case):
        path = walk(case.tasks[0], strategy("strong_only", 1), forced([]), Pricing(case.sites), case.sizes)
        times.append(path.wall_s)
    assert times[1] < 0.8 * times[0]
