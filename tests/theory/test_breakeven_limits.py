"""Limits of break-even that follow from the model: free drafts, the expert sweep as a threshold, holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from costmodel.acceptance import AcceptanceLaw
from costmodel.cost import COLUMNS, PHASES
from costmodel.deployment import deploy
from costmodel.expect import compile_tape, expect
from costmodel.pricing import Pricing, Site
from costmodel.protocol import Role
from costmodel.roof import touched_experts
from costmodel.session import ProtocolSizes
from costmodel.strategies import strategy
from costmodel.task import Task, TaskStep
from costmodel.trajectory import Effect
from simulator.breakeven import breakeven
from simulator.scenario_file import load_scenario

KEPT = 50.0
"""A shift at which every draft is kept."""

MOE = deploy("MiniMaxAI/MiniMax-M2.5", "h200", n_devices=4, weight_dtype="fp8")
DENSE = deploy("meta-llama/Llama-3.1-70B", "h200", n_devices=4, weight_dtype="bf16")
WEAK = deploy("meta-llama/Llama-3.2-3B", "h200", weight_dtype="bf16")
SIZES = ProtocolSizes(instruction_tokens=0, verdict_tokens=1)


def task(n_steps: int, tokens: int) -> Task:
    prompts = ((Role.WEAK, 1000), (Role.STRONG, 1000))
    return Task(
        "t", prompts, 0, tuple(TaskStep(i, Effect.READ, tokens, tokens, tokens, 0, 0.0) for i in range(n_steps))
    )


def ledger(strong: Any, weak: Any, name: str, window: int, tokens: int) -> tuple[Any, Any]:
    """Ledger (phases, columns) and busy seconds by role of a task of sixteen steps, every draft kept."""
    pricing = Pricing({Role.WEAK: Site(server=weak), Role.STRONG: Site(server=strong)})
    tape = compile_tape(strategy(name, window), [task(16, tokens)], AcceptanceLaw(), pricing, SIZES)
    found = expect(tape, KEPT, pricing)
    return found.ledger[0], {role: float(found.busy_s[role][0]) for role in Role}


def column(cells: Any, name: str) -> float:
    return float(cells[:, COLUMNS.index(name)].sum())


def no_seconds(factors: Any) -> dict[str, Any]:
    return {k: replace(f, value=0.0, low=0.0, high=0.0) if k.endswith("_s") else f for k, f in factors.items()}


def unhosted(dep: Any) -> Any:
    """The deployment with an engine whose host takes no time."""
    return replace(dep, engine=replace(dep.engine, name="unhosted", factors=no_seconds(dep.engine.factors)))


def free(dep: Any) -> Any:
    """The same on a device a billion times as fast, without launches or a power limit."""
    h, e = dep.hardware, dep.efficiency
    faster = replace(
        h,
        name="free",
        tdp_w=None,
        peak_flops_per_s={k: replace(f, value=f.value * 1e9) for k, f in h.peak_flops_per_s.items()},
        bandwidth_bytes_per_s=replace(h.bandwidth_bytes_per_s, value=h.bandwidth_bytes_per_s.value * 1e9),
    )
    return replace(unhosted(dep), hardware=faster, efficiency=replace(e, factors=no_seconds(e.factors)))


@pytest.mark.parametrize("window", [1, 4, 16])
def test_free_drafts_that_are_all_kept_leave_the_reviews_alone(window: int) -> None:
    """Acceptance 1, a verdict of one token, a weak model that takes no time: time is that of ceil(n / window) reviews
    and the tail of what strong-only spends outside of decoding."""
    usual, busy = ledger(DENSE, unhosted(WEAK), "spec_agent", window, 200)
    bound, nothing = ledger(DENSE, free(WEAK), "spec_agent", window, 200)
    alone, _ = ledger(DENSE, WEAK, "strong_only", 1, 200)
    assert nothing[Role.WEAK] < 1e-6 * busy[Role.WEAK]
    assert column(bound, "wall_s") == pytest.approx(column(usual, "wall_s") - busy[Role.WEAK], rel=1e-6)
    wall = dict(zip(PHASES, bound[:, COLUMNS.index("wall_s")], strict=True))
    assert wall["decode"] == wall["repair_decode"] == 0
    # a review is one pass over 200 * window tokens: a sweep of the weights, or the products of its tokens
    sweep_s = column(alone, "wall_s") / (16 * 200)
    peak = 4 * DENSE.hardware.peak_flops_per_s["bf16"].value * DENSE.efficiency.factors["gemm_compute"].value
    product_s = 2 * 70.55e9 * 200 * window / peak
    spent = (wall["verify_prefill"] + wall["verdict_decode"]) / (16 // window)
    assert 0.8 * max(sweep_s, product_s) < spent < 2 * (sweep_s + product_s)


def test_the_bound_is_reached_from_above_as_verdicts_shrink_and_the_weak_model_speeds_up() -> None:
    times = [column(ledger(DENSE, w, "spec_agent", 4, 200)[0], "wall_s") for w in (WEAK, free(WEAK))]
    alone = column(ledger(DENSE, WEAK, "strong_only", 1, 200)[0], "wall_s")
    assert times[1] < times[0] < alone
    assert times[1] / alone < 0.02


def swept(tokens: int) -> float:
    """Strong weight bytes of one review of a drafted step."""
    cells, _ = ledger(MOE, WEAK, "step_verification", 1, tokens)
    weak, _ = ledger(MOE, WEAK, "weak_only", 1, tokens)
    return (column(cells, "weight_bytes") - column(weak, "weight_bytes")) / 16


def test_the_expert_sweep_is_a_threshold_in_step_length() -> None:
    """A review of t tokens reads N(t) experts of each layer: bytes rise with step length until it touches all, and
    from there the ratio to strong-only, whose bytes go with the tokens, falls as one over step length."""
    lengths = 16 * np.unique(np.geomspace(1, 256, 24).astype(int))  # whole cache blocks: nothing is computed twice
    bytes_ = np.array([swept(int(n)) for n in lengths])
    alone = np.array([column(ledger(MOE, WEAK, "strong_only", 1, int(n))[0], "weight_bytes") / 16 for n in lengths])
    assert np.all(np.diff(bytes_) >= -1e-9 * bytes_[:-1])
    ratio = bytes_ / alone
    assert np.all(np.diff(ratio) < 0)
    kappa = MOE.efficiency.factors["expert_correlation"].value
    n_experts, top_k = 256, 8
    share = np.asarray(touched_experts(n_experts, top_k, lengths + 1.0, kappa)) / n_experts
    touched = (bytes_ - bytes_[0]) / (bytes_[-1] - bytes_[0])
    expected = (share - share[0]) / (share[-1] - share[0])
    assert touched == pytest.approx(expected, abs=0.05)
    slope = np.gradient(np.log(ratio), np.log(lengths))
    reached = lengths[share > 0.95][0]
    assert slope[lengths > 4 * reached][:-1] == pytest.approx(-1.0, abs=0.1)
    assert slope[1] > -0.75


def test_a_dense_review_has_no_threshold() -> None:
    """All weights are read whatever the step length: the ratio falls as one over it from the start."""
    lengths = np.array([8, 16, 32, 64, 128])
    strong = []
    for n in lengths:
        cells, _ = ledger(DENSE, WEAK, "step_verification", 1, int(n))
        weak, _ = ledger(DENSE, WEAK, "weak_only", 1, int(n))
        alone, _ = ledger(DENSE, WEAK, "strong_only", 1, int(n))
        strong.append((column(cells, "weight_bytes") - column(weak, "weight_bytes")) / column(alone, "weight_bytes"))
    assert np.diff(np.log(strong)) / np.diff(np.log(lengths)) == pytest.approx(-1.0, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["time", "traffic"])
def test_holds_make_windows_from_two_on_alike_at_the_retail_desk(objective: str) -> None:
    base = load_scenario("retail-h200").with_(**{"run.samples": 16})
    row = breakeven(base, "window=2,3,4,8", "acceptance=0.8,0.9", objective=objective).ratio
    assert np.all(np.ptp(row, axis=1) < 0.03 * row.min(axis=1))


def test_window_one_is_step_verification() -> None:
    base = load_scenario("retail-h200").with_(**{"run.samples": 16, "workload.n": 6, "window": 1})
    axes = ("acceptance=0.6,0.9", "verdict_tokens=5,60")
    maps = [breakeven(base, *axes, strategy=name) for name in ("spec_agent", "step_verification")]
    assert maps[0].ratio == pytest.approx(maps[1].ratio, rel=1e-12)
