"""Worlds that fail: links that drop, tools that hang, rates of nearly nothing. Every trajectory ends with a reason."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel.acceptance import logit
from costmodel.cost import COLUMNS
from costmodel.expect import compile_tape, expect
from costmodel.pricing import Pricing
from costmodel.strategies import STRATEGY_NAMES, strategy
from costmodel.walk import forced, walk
from simulator.case import prepare
from simulator.run import simulate
from simulator.scenario_file import load_scenario

NAMES = STRATEGY_NAMES
SMALL = ("workload.n=4", "load.n_trajectories=4")


def frames(case, name, seed=1):
    run = simulate(case, name, seed, shift=logit(0.8), keep_log=True)
    return run.trajectories, run.phases, run


def end_well(case, name):
    """Every counted trajectory has ended, with a reason unless it finished; the clock goes on; same bytes again."""
    trajectories, phases, run = frames(case, name)
    counted = trajectories[trajectories["counted"]]
    assert set(counted["status"]) <= {"finished", "failed", "rejected"}
    bad = trajectories[trajectories["status"].isin(["failed", "rejected"])]
    assert (bad["reason"].str.len() > 10).all()
    assert (phases["end_s"] >= phases["start_s"] - 1e-9).all()
    assert (phases[list(COLUMNS)] >= -1e-9).all().all()
    done = trajectories[trajectories["status"] == "finished"]
    assert (done["time_s"] >= -1e-9).all()
    assert (done["finish_s"] - done["arrival_s"] - done["time_s"] >= -1e-6).all()
    again, _, _ = frames(case, name)
    assert again.equals(trajectories)
    assert run.meta["events"] < 200_000
    return trajectories


tools = st.fixed_dictionaries(
    {},
    optional={
        "law": st.sampled_from(
            [
                ('"lognormal"', "tools.sigma=1.5"),
                ('"pareto"', "tools.shape=1.2", "tools.spread=1e6"),
                ('"constant"', "tools.latency_s=0.4"),
            ]
        ),
        "hang": st.sampled_from(["0.05", "0.9"]),
        "failure": st.sampled_from(["0.1", "0.1", "0.1"]),
        "timeout_s": st.sampled_from(["0.001", "3", "1e9"]),
        "concurrency": st.sampled_from(["1", "2"]),
    },
)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(tools, st.sampled_from(NAMES), st.sampled_from([1, 3]), st.booleans())
def test_tools_that_hang_and_fail(chosen, name, agents, retry):
    lines = ["tools.latency_s=0.5"]
    for key, value in chosen.items():
        lines += [f"tools.{key}={value[0]}", *value[1:]] if key == "law" else [f"tools.{key}={value}"]
    if retry and {"failure", "hang", "timeout_s"} & set(chosen):
        lines += ["tools.retries=2", "tools.backoff_s=0.1"]
    case = prepare(load_scenario("llama-a100", [*SMALL, *lines, f"concurrency={agents}"]))
    trajectories = end_well(case, name)
    if "hang" in chosen and "timeout_s" not in chosen:
        failed = trajectories[trajectories["status"] == "failed"]
        assert failed["reason"].str.contains("hangs, and no timeout_s is set").all()
    else:
        assert (trajectories[trajectories["counted"]]["status"] == "finished").all()


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["1e-6", "0.5", "100"]),
    st.sampled_from(["1e-3", "20", "1e9"]),
    st.sampled_from([None, "1e-3", "5"]),
    st.sampled_from(["0", "3"]),
    st.sampled_from(NAMES),
    st.sampled_from(["edge-cloud", "llama-a100"]),
)
def test_links_that_drop(every, length, timeout, retries, name, scenario):
    lines = [f"link.outage_every_s={every}", f"link.outage_s={length}", "link.rtt_s=0.05"]
    lines += ["link.jitter_s=0.02", "link.jitter_law=lognormal", "link.jitter_sigma=1.0"]
    if timeout is not None:
        lines += [f"link.timeout_s={timeout}", f"link.retries={retries}"]
    case = prepare(load_scenario(scenario, [*SMALL, *lines, "concurrency=2"]))
    trajectories = end_well(case, name)
    failed = trajectories[trajectories["status"] == "failed"]
    assert failed["reason"].str.startswith("the link was down for").all()
    if timeout is None:
        assert not len(failed)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["requests_per_min=1e-3", "requests_per_min=20", "tokens_per_min=5000", "tokens_per_min=1e5"]),
    st.sampled_from([None, "0", "3"]),
    st.sampled_from([None, "1e-3", "60"]),
    st.sampled_from(NAMES),
)
def test_rates_of_nearly_nothing(limit, retries, life, name):
    lines = [f"strong.limits.{limit}"]
    if retries is not None:
        lines.append(f"strong.limits.retries={retries}")
    if life is not None:
        lines.append(f"strong.cache_ttl_s={life}")
    case = prepare(load_scenario("edge-cloud", [*SMALL, *lines, "concurrency=3"]))
    trajectories = end_well(case, name)
    bad = trajectories[trajectories["status"].isin(["failed", "rejected"])]
    if retries is None:
        assert bad["reason"].str.contains("can never pass strong.limits.tokens_per_min").all()


EXACT = {
    "heavy tails": ['tools.law="pareto"', "tools.shape=1.5", "tools.spread=1e3", "tools.latency_s=3"],
    "retries": ['tools.law="lognormal"', "tools.sigma=1", "tools.latency_s=3", "tools.failure=0.3",
                "tools.failure_s=1", "tools.retries=2", "tools.backoff_s=2", "tools.timeout_s=6"],
    "the trace's own, resampled": ['tools.law="empirical"'],
    "by effect": ["tools.latency_s=1", 'tools.by_effect.read={law="constant", latency_s=2.0}'],
    "jitter": ["link.jitter_s=0.5", 'link.jitter_law="lognormal"', "link.jitter_sigma=1.5"],
}  # fmt: skip
QUICK = {("spec_agent", "retries"), ("strong_only", "jitter")}
WORLDS = [
    pytest.param(name, world, marks=[] if (name, world) in QUICK else pytest.mark.slow)
    for world in EXACT
    for name in ("strong_only", "spec_agent")
]


@pytest.mark.parametrize(("name", "world"), WORLDS)
def test_expectation_and_simulation_agree(name, world):
    """One agent, all tasks equally often: the simulated mean time is the expected one within 4 standard errors."""
    n = 100 if (name, world) in QUICK else 400
    lines = ["workload.n=5", f"load.n_trajectories={n}", "link.rtt_s=0.05", "workload.output_tokens=40", "window=3"]
    case = prepare(load_scenario("llama-a100", [*lines, *EXACT[world]]))
    pricing = Pricing(case.sites)
    tape = compile_tape(strategy(name, 3), case.tasks, case.law, pricing, case.sizes)
    expected = float(expect(tape, logit(0.8), pricing).column("wall_s")[0])
    times = simulate(case, name, 2, shift=logit(0.8)).counted()["time_s"].to_numpy()
    blocks = times.reshape(-1, 5).mean(axis=1)  # every five trajectories live every task once
    assert abs(blocks.mean() - expected) <= 4 * blocks.std(ddof=1) / math.sqrt(len(blocks))


def test_constant_tools_take_the_walk():
    """Times without spread: each simulated trajectory is its walk to 1e-9."""
    lines = [*SMALL, 'tools.law="constant"', "tools.latency_s=2", "tools.by_effect.read={latency_s=0.5}"]
    case = prepare(load_scenario("llama-a100", lines))
    pricing = Pricing(case.sites)
    tasks = {task.id: task for task in case.tasks}
    run = simulate(case, "strong_only", 1, shift=logit(0.8))
    for row in run.counted().itertuples():
        task = tasks[row.task]
        path = walk(task, strategy("strong_only"), forced([True] * len(task.steps)), pricing, case.sizes)
        assert row.time_s == pytest.approx(path.wall_s, rel=1e-9)
    assert {round(s.tool_s, 9) for t in case.tasks for s in t.steps} == {0.0, 0.5, 2.0}


def test_a_tool_takes_the_same_time_under_every_strategy():
    """Common random numbers: the tool times of committed steps are those of strong_only, whatever the strategy."""
    lines = ['tools.law="lognormal"', "tools.sigma=1", "tools.latency_s=3", "concurrency=2"]
    case = prepare(load_scenario("llama-a100", [*SMALL, *lines]))

    def by_step(name):
        _, phases, _ = frames(case, name)
        mine = phases[(phases["kind"] == "tool") & (phases["phase"] == "tool")]
        return (mine.groupby(["trajectory", "step"])["wall_s"].first()).to_dict()

    base, other = by_step("strong_only"), by_step("spec_agent")
    both = set(base) & set(other)
    assert len(both) > 20
    assert all(base[k] == pytest.approx(other[k], rel=1e-9) for k in both)


def test_user_gaps_are_no_agent_time_but_the_clock_goes_on():
    lines = ["workload.n=4", "load.n_trajectories=12"]
    alone = simulate(load_scenario("retail-h200", lines), "strong_only", 1)
    thinking = prepare(load_scenario("retail-h200", [*lines, 'users.law="constant"', "users.gap_s=30"]))
    slow = simulate(thinking, "strong_only", 1)
    assert slow.trajectories["time_s"].to_numpy() == pytest.approx(alone.trajectories["time_s"].to_numpy())
    waited = slow.trajectories["finish_s"] - slow.trajectories["arrival_s"] - slow.trajectories["time_s"]
    assert waited.mean() == pytest.approx(thinking.user_s, rel=1e-6)
    assert thinking.user_s >= 30


def test_a_prefix_that_an_api_forgets_is_read_again():
    """Gaps longer than the time to live: every call after a gap pays its whole prompt; shorter ones change nothing."""
    lines = [*SMALL, 'users.law="constant"', "users.gap_s=400"]

    def usd(*more):
        return simulate(load_scenario("edge-cloud", [*lines, *more]), "strong_only", 1).summary()["mean"]["api_usd"]

    assert usd("strong.cache_ttl_s=1e6") == usd()
    assert usd("strong.cache_ttl_s=300") > 1.05 * usd()
    everything = usd("strong.cache_ttl_s=1e-6")
    assert everything > usd("strong.cache_ttl_s=300")


def test_users_come_from_the_trace_or_are_refused():
    case = prepare(load_scenario("retail-h200", ["workload.n=4", 'users.law="trace"']))
    own = [s.user_gap_s or 0.0 for t in case.workload.trajectories for s in t.steps[1:]]
    assert case.user_s == pytest.approx(sum(own) / len(case.tasks))


@pytest.mark.parametrize("router", ["least_loaded", "round_robin", "prefix_affinity"])
def test_routers_per_request_serve_everybody(router):
    lines = ["workload.n=6", "load.n_trajectories=10", "concurrency=6", "strong.replicas=3", f"strong.router={router}"]
    lines += [] if router == "prefix_affinity" else ["strong.route_per=request"]
    run = simulate(load_scenario("llama-a100", lines), "strong_only", 1)
    assert set(run.counted()["status"]) == {"finished"}
    jobs = [e["n_jobs"] for e in run.meta["engines"] if e["role"] == "strong"]
    assert len(jobs) == 3
    assert min(jobs) > 0


def test_prefix_affinity_recomputes_less_than_round_robin():
    def flops(*more):
        lines = ["workload.n=6", "load.n_trajectories=10", "concurrency=6", "strong.replicas=3", *more]
        return simulate(load_scenario("llama-a100", lines), "strong_only", 1).summary()["mean"]["flops"]

    affine, stay = flops("strong.router=prefix_affinity"), flops()
    spread = flops("strong.router=round_robin", "strong.route_per=request")
    assert affine == pytest.approx(stay, rel=0.02)
    assert spread > 1.5 * stay


def test_recorded_arrivals_start_trajectories(tmp_path):
    file = tmp_path / "arrivals.jsonl"
    row = {"input_length": 10, "output_length": 2}
    rows = [row | {"timestamp": 2500 * i, "session_id": str(i % 2)} for i in range(12)]
    file.write_text("\n".join(map(json.dumps, rows)))
    lines = ["workload.n=4", f"load.arrivals={file}", "load.arrivals_speed=5"]
    case = prepare(load_scenario("llama-a100", lines))
    run = simulate(case, "strong_only", 1)
    assert run.meta["load"]["kind"] == "recorded"
    assert run.trajectories["arrival_s"].to_numpy()[:9] == pytest.approx(np.arange(9) * 0.5)
    assert case.arrival_rate_per_s == pytest.approx(2.0)
    turns = simulate(prepare(load_scenario("llama-a100", [*lines, "load.sessions=true"])), "strong_only", 1)
    assert turns.meta["load"]["kind"] == "recorded_sessions"
    frame = turns.trajectories[turns.trajectories["status"] == "finished"]
    for parity in (0, 1):
        mine = frame[frame["trajectory"] % 2 == parity]
        assert (mine["arrival_s"].to_numpy()[1:] >= mine["finish_s"].to_numpy()[:-1] - 1e-9).all()
