"""Strategies in which the models work at once: simulated alone they are the walk, cancelled work and waits included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.acceptance import AcceptanceLaw
from costmodel.api import api
from costmodel.cost import COLUMNS, PHASES
from costmodel.deployment import deploy
from costmodel.pricing import NetworkLink, Pricing, Site
from costmodel.protocol import Role
from costmodel.session import ProtocolSizes
from costmodel.strategies import STRATEGY_NAMES, Settings, strategy
from costmodel.task import Task, TaskStep
from costmodel.trajectory import Effect
from costmodel.walk import walk
from simulator.agents import drawn_verdicts
from simulator.load import Demand
from simulator.run import simulate_tasks

SMALL = Site(server=deploy("Qwen/Qwen3-0.6B", "l4", chunk_tokens=512))
SLOW = Site(server=deploy("Qwen/Qwen3-8B", "a100-80gb", chunk_tokens=8192))
HYBRID = Site(server=deploy("Qwen/Qwen3.5-4B", "h200", chunk_tokens=600))
SLIDING = Site(server=deploy("openai/gpt-oss-20b", "h200"), link=NetworkLink(rtt_s=0.08, bytes_per_s=2e5))
CLOUD = Site(server=api("anthropic/claude-sonnet-4-6"), link=NetworkLink(rtt_s=0.1, bytes_per_s=1e6))
SITES = {
    "chunked beside a link": {Role.WEAK: SMALL, Role.STRONG: SLIDING},
    "slow weak model": {Role.WEAK: SLOW, Role.STRONG: Site(server=deploy("Qwen/Qwen3-0.6B", "h200"))},
    "hybrid beside an API": {Role.WEAK: HYBRID, Role.STRONG: CLOUD},
    "an API that drafts": {Role.WEAK: CLOUD, Role.STRONG: HYBRID},
}
SETTINGS = Settings(router_shares=dict.fromkeys(("start", "read", "pure", "write", "reply", "unknown"), 0.5))
N = 6


def make_tasks(seed):
    """Six tasks of up to 24 steps, mostly reads, some of them instant."""
    rng = np.random.default_rng(seed)
    tasks = []
    for number in range(N):
        effects = rng.choice(list(Effect), size=rng.integers(1, 25), p=[0.75, 0.1, 0.06, 0.05, 0.04])
        steps = []
        for i, effect in enumerate(effects):
            visible = int(rng.integers(1, 150))
            weak, strong = (visible + int(rng.choice([0, 200])) for _ in range(2))
            tool_s = float(rng.choice([0.0, rng.exponential(0.4), rng.exponential(4.0)]))
            steps.append(TaskStep(i, Effect(effect), visible, weak, strong, int(rng.integers(0, 900)), tool_s))
        tasks.append(Task(f"t{number}", ((Role.WEAK, 9000), (Role.STRONG, 1900)), 0, tuple(steps)))
    return tasks


def alone(tasks, how, verdicts, pricing, sizes):
    demand = Demand(n_trajectories=len(tasks), concurrency=1)
    return simulate_tasks(
        tasks, how, verdicts, pricing, sizes, demand=demand, replicas={Role.WEAK: 1, Role.STRONG: 1}, seed=3
    )


@pytest.mark.parametrize("which", SITES)
@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_alone_it_is_the_walk(name, which):
    """Every ledger cell and the wall time of every trajectory agree to 1e-9."""
    pricing, sizes = Pricing(SITES[which]), ProtocolSizes(60, 12, "continue" if "link" in which else "fresh")
    how, verdicts = strategy(name, 3, SETTINGS), drawn_verdicts(AcceptanceLaw(), 1.0, 5, match=0.6)
    tasks = make_tasks(11)
    run = alone(tasks, how, verdicts, pricing, sizes)
    ledgers = np.zeros((N, len(PHASES), len(COLUMNS)))
    at = (run.phases["trajectory"].to_numpy(), run.phases["phase"].map(PHASES.index).to_numpy())
    np.add.at(ledgers, at, run.phases[list(COLUMNS)].to_numpy())
    by_id = {task.id: task for task in tasks}
    for row, ledger in zip(run.trajectories.itertuples(), ledgers, strict=True):
        task = by_id[row.task]
        path = walk(task, how, verdicts(row.trajectory, task), pricing, sizes)
        scale = np.maximum(np.abs(path.ledger), np.abs(path.ledger).max(axis=0) * 1e-3) + 1e-300
        assert np.max(np.abs(ledger - path.ledger) / scale) < 1e-9
        assert row.time_s == pytest.approx(path.wall_s, rel=1e-9)
        assert (row.n_rounds, row.n_steps) == (len(path.rounds), len(task.steps))
        tokens = (row.strong_output_tokens, row.weak_output_tokens)
        assert tokens == tuple(path.counts[-2:])
        assert row.wasted_tool_calls == path.counts[-3]


def with_instant_tools(task):
    return replace(task, steps=tuple(replace(step, tool_s=0.0) for step in task.steps))


def test_a_cancelled_request_still_holds_its_engine():
    """With instant tools the next guess comes while the cut one's prefill pass is running, so it gets less far."""
    pricing, sizes = Pricing(SITES["slow weak model"]), ProtocolSizes(60, 12)
    how, verdicts = strategy("step_speculation"), drawn_verdicts(AcceptanceLaw(), 1.0, 5, match=0.6)
    tasks = [with_instant_tools(task) for task in make_tasks(11)]
    run = alone(tasks, how, verdicts, pricing, sizes)
    for row in run.trajectories.itertuples():
        task = next(task for task in tasks if task.id == row.task)
        path = walk(task, how, verdicts(row.trajectory, task), pricing, sizes)
        assert row.time_s == pytest.approx(path.wall_s, rel=1e-9)
        assert row.weight_bytes == pytest.approx(path.column("weight_bytes"), rel=1e-9)


def test_what_is_compared_does_overlap_and_cancel():
    """The cases above would prove little if nothing were cut short or hidden."""
    pricing, sizes = Pricing(SITES["slow weak model"]), ProtocolSizes(60, 12)
    verdicts = drawn_verdicts(AcceptanceLaw(), 1.0, 5, match=0.6)
    for name in ("step_speculation", "spec_agent_pipelined"):
        tasks = enumerate(make_tasks(11))
        rounds = [r for i, t in tasks for r in walk(t, strategy(name, 3), verdicts(i, t), pricing, sizes).rounds]
        assert any(any(r.cut) for r in rounds)
        assert any(not all(r.on_path) for r in rounds)
        assert any(r.carry.n_steps for r in rounds) == (name == "spec_agent_pipelined")
