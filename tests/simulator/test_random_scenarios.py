"""Random tasks on cramped engines: every run ends, every trajectory has a reason, nothing is lost, bytes repeat."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.pricing import Pricing
from costmodel.protocol import Role
from costmodel.strategies import STRATEGY_NAMES, strategy
from costmodel.task import Task, TaskStep
from costmodel.trajectory import Effect
from costmodel.walk import forced
from simulator.case import prepare
from simulator.load import Demand, uniforms
from simulator.results import STATUSES, load
from simulator.run import simulate_tasks
from simulator.scenario_file import load_scenario

EVENTS_PER_STEP = 60
"""No more than this for any strategy on cramped engines; a run that spins has no bound."""


class Place:
    """Where tasks are run: a case without the repr of one."""

    def __init__(self, case):
        self.sites, self.sizes = case.sites, case.sizes


@pytest.fixture(scope="module")
def place():
    return Place(prepare(load_scenario("llama-a100", ["workload.n=1"])))


@st.composite
def worlds(draw):
    """Tasks of any shape, some of which cannot run, and an engine that holds one or a few of them."""

    def step(index):
        return TaskStep(
            index,
            draw(st.sampled_from(list(Effect))),
            draw(st.sampled_from([0, 1, 1, 5, 40])),
            draw(st.sampled_from([0, 1, 5, 60])),
            draw(st.sampled_from([1, 5, 60])),
            draw(st.sampled_from([0, 0, 30, 700])),
            draw(st.sampled_from([0.0, 0.0, 0.5, 30.0])),
        )

    tasks = []
    for i in range(draw(st.integers(1, 4))):
        n = draw(st.sampled_from([1, 2, 5, 12]))
        prompt = draw(st.sampled_from([1, 15, 16, 17, 400, 3000, 50_000]))
        prompts = ((Role.WEAK, prompt), (Role.STRONG, prompt))
        tasks.append(Task(f"task-{i}", prompts, 0, tuple(step(j) for j in range(n))))
    limits = {"kv_tokens": draw(st.sampled_from([512, 4096, 20_000])), "max_seqs": draw(st.sampled_from([1, 2, 64]))}
    agents = draw(st.integers(1, 6))
    return tasks, limits, agents, draw(st.sampled_from(STRATEGY_NAMES)), draw(st.sampled_from([0.0, 0.5, 1.0]))


def played(place, world, n=8, **options):
    tasks, limits, agents, name, p = world
    pricing = Pricing(place.sites)
    for model in pricing.models.values():
        model.kv_tokens, model.max_seqs = limits["kv_tokens"], limits["max_seqs"]
    return simulate_tasks(
        tasks,
        strategy(name, 3),
        lambda number, task: forced([u < p for u in uniforms(7, number, len(task.steps))]),
        pricing,
        place.sizes,
        demand=Demand(n_trajectories=n, concurrency=agents),
        replicas={Role.WEAK: 1, Role.STRONG: 1},
        seed=1,
        keep_log=True,
        **options,
    )


@settings(max_examples=25, deadline=None)
@given(worlds())
def test_every_run_ends_and_every_trajectory_has_a_reason(place, world):
    run = played(place, world)
    frame = run.trajectories
    n_steps = sum(len(task.steps) for task in world[0]) / len(world[0])
    assert run.meta["events"] < EVENTS_PER_STEP * (len(frame) + 1) * (max(n_steps, 1) + 12)
    assert set(frame["status"]) <= set(STATUSES)
    assert ((frame["reason"] != "") == frame["status"].isin(["rejected", "failed"])).all()
    assert len(frame[frame["counted"] & (frame["status"] != "unfinished")]) == 8
    ended = frame[frame["status"] == "finished"]
    lengths = {task.id: len(task.steps) for task in world[0]}
    assert (ended["n_steps"] == ended["task"].map(lengths)).all()
    assert (ended["finish_s"] >= ended["arrival_s"]).all()
    costs = run.phases.groupby("trajectory")["wall_s"].sum().reindex(ended["trajectory"]).fillna(0.0)
    np.testing.assert_allclose(costs, ended["time_s"], rtol=1e-9, atol=1e-9)


@settings(max_examples=12, deadline=None)
@given(worlds())
def test_causes_come_before_effects(place, world):
    """Steps lie inside their trajectory, iterations of an engine follow each other, its KV cache is never overdrawn."""
    run = played(place, world)
    start = run.trajectories.set_index("trajectory")["arrival_s"]
    for frame in (run.steps, run.phases):
        assert (frame["end_s"] >= frame["start_s"]).all()
        assert (frame["start_s"] >= frame["trajectory"].map(start) - 1e-9).all()
    for _, log in run.engine.groupby("role"):
        ends = (log["start_s"] + log["time_s"]).to_numpy()
        assert (log["start_s"].to_numpy()[1:] >= ends[:-1] - 1e-9).all()
        assert log["kv_used_tokens"].between(0, world[1]["kv_tokens"]).all()
        assert (log["n_decode"] <= world[1]["max_seqs"]).all()


@settings(max_examples=12, deadline=None)
@given(worlds())
def test_littles_law_with_a_fixed_number_of_agents(place, world):
    """Every agent always has one trajectory under way: their times in the system add up to agents x duration."""
    run = played(place, world)
    frame = run.trajectories
    if (frame["status"] == "rejected").any():
        return
    stay = frame["finish_s"].fillna(run.meta["end_s"]) - frame["arrival_s"]
    assert stay.sum() == pytest.approx(world[2] * run.meta["end_s"], rel=1e-9, abs=1e-9)


@settings(max_examples=5, deadline=None)
@given(worlds())
def test_streaming_changes_nothing_and_bytes_repeat(tmp_path_factory, place, world):
    kept = played(place, world)
    out = tmp_path_factory.mktemp("runs")
    kept.save(out / "kept")
    streamed = played(place, world, out=out / "streamed")
    assert streamed.summary() == kept.summary()
    again = load(out / "streamed")
    for name, frame in kept.frames.items():
        assert (out / "kept" / f"{name}.parquet").read_bytes() == (out / "streamed" / f"{name}.parquet").read_bytes()
        assert again.frames[name].equals(frame)
    assert (out / "kept" / "run.json").read_bytes() == (out / "streamed" / "run.json").read_bytes()


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_two_hundred_steps(place, name):
    steps = tuple(TaskStep(j, Effect.WRITE if j % 7 == 6 else Effect.READ, 20, 20, 20, 40, 0.1) for j in range(200))
    task = Task("long", ((Role.WEAK, 500), (Role.STRONG, 500)), 0, steps)
    run = played(place, ([task], {"kv_tokens": 40_000, "max_seqs": 8}, 1, name, 0.5), n=2)
    done = run.trajectories[run.trajectories["status"] == "finished"]
    assert len(done) >= 2
    assert (done["n_steps"] == 200).all()


def test_the_yardstick_takes_at_most_fifteen_events_a_step():
    """The scenario `speed`, a part of it: events are counted, not timed."""
    from simulator.run import simulate

    run = simulate(load_scenario("speed", ["load.n_trajectories=40"]), "spec_agent")
    assert run.meta["events"] <= 15 * run.trajectories["n_steps"].sum()
