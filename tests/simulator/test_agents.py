"""Trajectories on engines: alone they are the walk to the last digit, together nothing is lost and nothing is free."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.cost import COLUMNS, PHASES
from costmodel.pricing import Pricing
from costmodel.protocol import Role
from costmodel.strategies import STRATEGY_NAMES, strategy
from costmodel.walk import forced, walk
from simulator.case import prepare
from simulator.load import Demand, uniforms
from simulator.run import simulate, simulate_tasks
from simulator.scenario_file import load_scenario

ALONE = Demand(n_trajectories=4, concurrency=1)
ONE_EACH = {Role.WEAK: 1, Role.STRONG: 1}
WALL = COLUMNS.index("wall_s")

SCENARIOS = {
    "hybrid models": ("retail-h200", []),
    "a link": ("retail-h200", ["rtt_s=0.08", "protocol.repair_mode=continue"]),
    "small chunks": ("retail-h200", ["weak.chunk_tokens=600", "strong.chunk_tokens=2100", "weak.max_seqs=8"]),
    "a shared prefix": ("autonomous-h200", ["workload.n=6", "workload.shared_prefix_tokens=700"]),
    "plain attention": ("llama-a100", ["workload.n=6", "protocol.repair_mode=continue"]),
    "a priced API": ("edge-cloud", ["workload.n=6"]),
}


@pytest.fixture(scope="module", params=SCENARIOS, ids=lambda name: name.replace(" ", "-"))
def case(request):
    return prepare(load_scenario(*SCENARIOS[request.param]))


@pytest.fixture(scope="module")
def retail():
    return prepare(load_scenario("retail-h200", ["workload.n=12"]))


def coin(p, seed=7):
    """Verdicts from fixed bits: step j of trajectory i is valid with probability p."""
    return lambda number, task: forced([u < p for u in uniforms(seed, number, len(task.steps))])


def ledgers(run):
    """Ledger (phase x column) of each trajectory, from the frame `phases`."""
    out = np.zeros((len(run.trajectories), len(PHASES), len(COLUMNS)))
    where = (run.phases["trajectory"].to_numpy(), run.phases["phase"].map(PHASES.index).to_numpy())
    np.add.at(out, where, run.phases[list(COLUMNS)].to_numpy())
    return out


def assert_close(found, expected):
    """To 1e-9 of the cell, or of the largest cell of its column where a cell is (nearly) empty."""
    scale = np.maximum(np.abs(expected), np.abs(expected).max(axis=0) * 1e-3) + 1e-300
    assert np.max(np.abs(found - expected) / scale) < 1e-9


def play(case, name, *, demand=ALONE, pricing=None, p=0.8, replicas=ONE_EACH, window=3, **options):
    return simulate_tasks(
        case.tasks,
        strategy(name, window),
        coin(p),
        pricing or Pricing(case.sites),
        case.sizes,
        demand=demand,
        replicas=replicas,
        seed=1,
        **options,
    )


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_alone_it_is_the_walk(case, name):
    """Same verdicts, idle engines: every ledger cell and the wall time agree to 1e-9."""
    pricing = Pricing(case.sites)
    run = play(case, name, pricing=pricing)
    tasks = {task.id: task for task in case.tasks}
    assert len(run.trajectories) == ALONE.n_trajectories
    for row, ledger in zip(run.trajectories.itertuples(), ledgers(run), strict=True):
        task = tasks[row.task]
        path = walk(task, strategy(name, 3), coin(0.8)(row.trajectory, task), pricing, case.sizes)
        assert_close(ledger, path.ledger)
        assert row.time_s == pytest.approx(path.wall_s, rel=1e-9)
        assert (row.n_rounds, row.n_steps) == (len(path.rounds), len(task.steps))


def test_frames_tell_one_story(retail):
    """Under load: phases add up to trajectories, wall time to finish - arrival, every committed step has an author."""
    run = play(retail, "spec_agent", demand=Demand(n_trajectories=20, concurrency=8))
    frame = run.trajectories
    np.testing.assert_allclose(ledgers(run).sum(axis=1), frame[list(COLUMNS)], rtol=1e-9)
    done = frame[frame["status"] == "finished"]
    np.testing.assert_allclose(done["wall_s"], done["time_s"], rtol=1e-9)
    np.testing.assert_allclose(done["finish_s"] - done["arrival_s"], done["time_s"], rtol=1e-9)
    np.testing.assert_allclose(
        frame["traffic_bytes"], frame["weight_bytes"] + frame["kv_bytes"] + frame["state_bytes"], rtol=1e-12
    )
    fates = run.steps.groupby(["trajectory", "fate"]).size().unstack(fill_value=0)
    assert (fates["accepted"] + fates["repaired"] == frame["n_steps"][fates.index]).all()
    assert (fates["accepted"] + fates["discarded"] == frame["n_drafted"][fates.index]).all()
    assert frame["counted"].sum() == 20
    assert (frame.loc[frame["counted"], "status"] == "finished").all()
    assert (run.phases["end_s"] >= run.phases["start_s"]).all()


def test_company_costs_time_and_saves_weight_traffic(retail):
    """The same trajectories alone and beside seven others: same steps and verdicts, none faster, fewer weight bytes."""
    alone = play(retail, "spec_agent", demand=Demand(n_trajectories=12, concurrency=1)).trajectories
    together = play(retail, "spec_agent", demand=Demand(n_trajectories=4, concurrency=8)).trajectories
    both = alone.merge(together[together["status"] == "finished"], on=["trajectory", "task"])
    assert len(both) >= 6
    for count in ("n_steps", "n_rounds", "n_drafted", "n_accepted", "strong_output_tokens"):
        assert (both[f"{count}_x"] == both[f"{count}_y"]).all()
    assert (both["time_s_y"] >= both["time_s_x"] * (1 - 1e-9)).all()
    assert (both["weight_bytes_y"] < both["weight_bytes_x"]).all()


def test_skip_ahead_changes_nothing(retail):
    load = Demand(n_trajectories=6, concurrency=4)
    skipped, plain = (play(retail, "spec_agent", demand=load, skip_ahead=s) for s in (True, False))
    np.testing.assert_allclose(ledgers(skipped), ledgers(plain), rtol=1e-9, atol=1e-9)
    assert skipped.meta["events"] < plain.meta["events"] / 3


def test_engine_time_is_shared_out_completely(retail):
    """Without unfinished trajectories the shares of busy time add up to what the engines were busy."""
    run = play(retail, "spec_agent", demand=Demand(n_trajectories=3, concurrency=1), keep_log=True)
    busy = sum(e["busy_s"] for e in run.meta["engines"])
    assert run.trajectories["busy_s"].sum() == pytest.approx(busy, rel=1e-9)
    assert run.engine["time_s"].sum() == pytest.approx(busy, rel=1e-9)


def test_an_evicted_context_is_prefilled_again(retail):
    """A strong KV cache for two or three contexts and eight agents: what is recomputed is called reprefill."""
    load = Demand(n_trajectories=8, concurrency=8)
    pricing = Pricing(retail.sites)
    pricing.models[Role.STRONG].kv_tokens = 25_000
    tight, ample = play(retail, "spec_agent", demand=load, pricing=pricing), play(retail, "spec_agent", demand=load)
    again = [ledgers(r)[:, PHASES.index("reprefill"), WALL].sum() for r in (tight, ample)]
    assert again[0] > 3 * again[1]
    frame = tight.counted()
    assert len(frame) == 8
    assert frame["n_preemptions"].sum() > 0
    np.testing.assert_allclose(frame["wall_s"], frame["time_s"], rtol=1e-9)


def test_a_task_that_can_never_fit_is_rejected_and_kept(retail):
    pricing = Pricing(retail.sites)
    pricing.models[Role.STRONG].kv_tokens = 6_000
    run = play(retail, "strong_only", pricing=pricing, demand=Demand(n_trajectories=12, concurrency=1))
    rejected = run.trajectories[run.trajectories["status"] == "rejected"]
    assert len(run.trajectories) == 12
    assert len(rejected) > 0
    assert rejected["reason"].str.contains("can never fit the KV cache of 6000 tokens").all()
    assert run.summary()["status_counts"]["rejected"] == len(rejected)


def test_a_horizon_leaves_the_rest_unfinished(retail):
    run = play(retail, "strong_only", demand=Demand(n_trajectories=12, concurrency=4), horizon_s=20.0)
    assert run.meta["end_s"] <= 20.0
    assert set(run.trajectories["status"]) <= {"finished", "unfinished"}
    assert run.summary()["status_counts"]["unfinished"] == 4


def test_replicas_share_the_trajectories(retail):
    run = play(retail, "strong_only", demand=Demand(n_trajectories=8, concurrency=4), replicas={Role.STRONG: 2})
    jobs = [e["n_jobs"] for e in run.meta["engines"] if e["role"] == "strong"]
    assert len(jobs) == 2
    assert min(jobs) > 0.3 * sum(jobs)


def test_a_scenario_runs_at_its_load(retail):
    closed = simulate(load_scenario("retail-h200", ["concurrency=4", "load.n_trajectories=6"]), "spec_agent", seed=3)
    assert closed.meta["load"] == {"kind": "closed", "concurrency": 4, "arrival_rate_per_s": None}
    assert closed.meta["scenario"]["load"]["concurrency"] == 4
    assert len(closed.counted()) == 6
    slow = load_scenario("retail-h200", ["arrival_rate_per_s=0.001", "load.n_trajectories=8"])
    opened = simulate(slow, "spec_agent", seed=3)
    assert opened.summary()["mean"]["queue_s"] == pytest.approx(0, abs=1e-9)
    assert len(opened.counted()) == 8


def test_the_mean_is_the_expectation(retail):
    """300 trajectories on idle engines against `expect`: agent time and strong tokens within 4 standard errors."""
    from costmodel.expect import compile_tape, expect, fit_shift

    case = prepare(load_scenario("retail-h200", ["workload.n=12", "load.n_trajectories=300", "acceptance=0.85"]))
    done = simulate(case, "spec_agent", seed=11).counted()
    pricing = Pricing(case.sites)
    tape = compile_tape(strategy("spec_agent", 4), case.tasks, case.law, pricing, case.sizes)
    expected = expect(tape, fit_shift(tape, case.law, np.array([0.85])), pricing)
    pairs = (
        (done["time_s"], expected.column("wall_s")[0]),
        (done["strong_output_tokens"], expected.count("strong_output_tokens")[0]),
    )
    for drawn, value in pairs:
        within = drawn - drawn.groupby(done["task"]).transform("mean")  # every task was lived equally often
        error = within.std() / np.sqrt(len(done) - len(case.tasks))
        assert abs(drawn.mean() - value) < 4 * error


def test_same_seed_same_bytes(retail, tmp_path):
    for folder in ("a", "b"):
        play(retail, "spec_agent", demand=Demand(n_trajectories=4, concurrency=3), keep_log=True).save(
            tmp_path / folder
        )
    for file in sorted((tmp_path / "a").iterdir()):
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name
