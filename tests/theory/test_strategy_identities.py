"""Closed forms that any right implementation of the protocol must reproduce."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.acceptance import AcceptanceLaw, logit
from costmodel.cost import COLUMNS, PHASES, QUANTITIES
from costmodel.deployment import deploy
from costmodel.expect import compile_tape, expect
from costmodel.pricing import Pricing, Site
from costmodel.protocol import Role
from costmodel.session import ProtocolSizes
from costmodel.strategies import strategy
from costmodel.task import Task, TaskStep
from costmodel.trajectory import Effect
from costmodel.walk import forced, walk

FLAT = AcceptanceLaw()
# pages of one token: no flooring, so that every token can be counted by hand
PAGE_OF_ONE = replace(deploy("Qwen/Qwen3-0.6B", "h200").engine, page_tokens=1)
WEAK_DEP = replace(deploy("Qwen/Qwen3-0.6B", "h200"), engine=PAGE_OF_ONE)
STRONG_DEP = replace(deploy("Qwen/Qwen3-8B", "h200"), engine=PAGE_OF_ONE)
PRICING = Pricing({Role.WEAK: Site(server=WEAK_DEP), Role.STRONG: Site(server=STRONG_DEP)})
VISIBLE, OBSERVED, STRONG_OUT, WEAK_OUT, PROMPT, TOOL_S = 30, 50, 80, 45, 400, 0.5
HELD = {Effect.WRITE, Effect.REPLY, Effect.UNKNOWN}


def make_task(effects, strong=STRONG_OUT, weak=WEAK_OUT):
    steps = tuple(TaskStep(i, e, VISIBLE, weak, strong, OBSERVED, TOOL_S) for i, e in enumerate(effects))
    return Task("t", ((Role.WEAK, PROMPT), (Role.STRONG, PROMPT)), 0, steps)


SIZES = ProtocolSizes(60, 10)


def expected(effects, window, s, sizes=SIZES):
    name = "step_verification" if window == 1 else "spec_agent"
    tape = compile_tape(strategy(name, window), [make_task(effects)], FLAT, PRICING, sizes)
    return expect(tape, np.array([logit(s)]), PRICING)


def rounds_by_recursion(n, window, s):
    """R(n) = 1 + sum_a P(a) R(n - a - [a < k]), k = min(window, n): no holds."""
    r = [0.0]
    for left in range(1, n + 1):
        k = min(window, left)
        r.append(1 + s**k * r[left - k] + sum(s**a * (1 - s) * r[left - a - 1] for a in range(k)))
    return r


@pytest.mark.parametrize("window", [1, 2, 4, 7])
@pytest.mark.parametrize("s", [0.3, 0.9])
def test_a_round_without_holds_commits_a_geometric_number_of_steps(window, s):
    # E = sum_{a<K} s^a (1 - s)(a + 1) + K s^K = (1 - s^K) / (1 - s); far from the end a further step costs 1/E rounds
    far, farther = (expected([Effect.READ] * n, window, s).count("rounds")[0] for n in (160, 190))
    assert 30 / (farther - far) == pytest.approx((1 - s**window) / (1 - s), rel=1e-6)


@pytest.mark.parametrize("window", [1, 3, 4])
@pytest.mark.parametrize("n", [1, 4, 14])
def test_rounds_of_a_finite_task_follow_the_recursion(n, window):
    assert expected([Effect.READ] * n, window, 0.9).count("rounds")[0] == pytest.approx(
        rounds_by_recursion(n, window, 0.9)[n]
    )


def test_dividing_by_steps_per_round_underestimates_a_finite_task():
    # N = 14, K = 4, s = .9: 14 / ((1 - .9^4) / .1) = 4.07, about a tenth too few
    naive = 14 / ((1 - 0.9**4) / 0.1)
    true = expected([Effect.READ] * 14, 4, 0.9).count("rounds")[0]
    assert naive == pytest.approx(4.071, abs=1e-3)
    assert 1.07 < true / naive < 1.13


@given(st.lists(st.sampled_from(list(Effect)), min_size=1, max_size=12), st.integers(1, 6), st.floats(0.01, 0.99))
def test_repairs_per_committed_step_are_the_refusals_whatever_the_window(effects, window, s):
    # each index is judged exactly once on the path that commits it: accepted with s, else repaired
    found = expected(effects, window, s)
    assert found.count("steps")[0] == pytest.approx(len(effects))
    assert found.count("repairs")[0] == pytest.approx((1 - s) * len(effects))
    assert found.count("reviews")[0] == found.count("rounds")[0]


@given(
    st.lists(st.sampled_from(list(Effect)), min_size=1, max_size=12),
    st.integers(1, 6),
    st.floats(0.01, 0.99),
    st.integers(1, 40),
)
def test_strong_output_relative_to_strong_only(effects, window, s, verdict):
    # (1 - s) + (verdict tokens / strong tokens per step) x rounds per step
    n = len(effects)
    found = expected(effects, window, s, ProtocolSizes(60, verdict))
    ratio = found.count("strong_output_tokens")[0] / (STRONG_OUT * n)
    assert ratio == pytest.approx((1 - s) + verdict / STRONG_OUT * found.count("rounds")[0] / n)


@pytest.mark.parametrize("window", [1, 3, 8])
def test_without_refusals_drafts_are_written_once_and_nothing_is_wasted(window):
    effects = [Effect.READ, Effect.WRITE, Effect.READ, Effect.READ, Effect.READ, Effect.REPLY]
    found = expected(effects, window, 1.0)
    assert found.count("drafted_steps")[0] == 6
    assert found.count("weak_output_tokens")[0] == 6 * WEAK_OUT
    assert found.count("repairs")[0] == found.count("wasted_steps")[0] == 0
    wasted = [PHASES.index("wasted_draft"), PHASES.index("wasted_tool")]
    assert not found.ledger[0, wasted].any()
    # segments end at the write, at the reply, and after a window
    assert found.count("rounds")[0] == {1: 6, 3: 3, 8: 2}[window]


# -- reduction to strong-only: acceptance 0, window 1 -----------------------------------------------------------------


@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize("effects", [[Effect.READ] * 4, [Effect.READ, Effect.WRITE, Effect.UNKNOWN, Effect.REPLY]])
def test_with_every_draft_refused_the_difference_is_exactly_what_was_added(effects, thinks):
    strong = STRONG_OUT if thinks else VISIBLE
    task, sizes = make_task(effects, strong), ProtocolSizes(60, 10)
    spec = walk(task, strategy("step_verification"), forced([False] * 4), PRICING, sizes)
    only = walk(task, strategy("strong_only"), forced([]), PRICING, sizes)
    phase = {p: i for i, p in enumerate(PHASES)}

    # the strong model writes the same steps on the same contexts, and the task's tools run as before
    np.testing.assert_allclose(spec.ledger[phase["repair_decode"]], only.ledger[phase["decode"]], rtol=1e-12)
    np.testing.assert_allclose(spec.ledger[phase["tool"]], only.ledger[phase["tool"]], rtol=1e-12)
    assert not only.ledger[phase["wasted_draft"]].any()

    # the strong model's prefill, pass by pass: X_j is the context before step j
    weak, big = PRICING.models[Role.WEAK], PRICING.models[Role.STRONG]
    prefill = np.zeros((3, len(QUANTITIES)))  # strong-only, reviews, repairs
    verdict, weak_work = np.zeros(len(QUANTITIES)), np.zeros(len(QUANTITIES))
    held_wall = cached = weak_cached = 0.0
    for j, effect in enumerate(effects):
        x = PROMPT + j * (VISIBLE + OBSERVED)
        # all but the last token of what the model wrote itself is cached, if it did not think before it
        prefill[0] += big.prefill(x - cached, cached, 1.0)
        segment = VISIBLE + (0 if effect in HELD else OBSERVED)
        prefill[1] += big.prefill(x - cached + segment + 60, cached, 1.0)
        prefill[2] += big.prefill(1.0, x - 1.0, 1.0)  # the repair finds its context and recomputes one token
        verdict += big.decode_run(x + segment + 60.0, 9.0)  # ten tokens, the first from the review's prefill
        cached = x + (0.0 if thinks else VISIBLE - 1.0)
        # the weak model's refused step is void, so it knows the context up to its own last prompt
        weak_work += weak.prefill(x - weak_cached, weak_cached, 1.0) + weak.decode_run(float(x), WEAK_OUT - 1.0)
        weak_cached = float(x)
        held_wall += 0.0 if effect in HELD else TOOL_S
    strong_phases = ("prompt_prefill", "observation_prefill", "verify_prefill", "repair_prefill", "reprefill")
    n = len(QUANTITIES)

    def total(path):
        return path.ledger[[phase[p] for p in strong_phases]].sum(axis=0)[:n]

    np.testing.assert_allclose(total(only), prefill[0], rtol=1e-9)
    np.testing.assert_allclose(total(spec), prefill[1] + prefill[2], rtol=1e-9)
    np.testing.assert_allclose(spec.ledger[phase["verdict_decode"], :n], verdict, rtol=1e-9)
    np.testing.assert_allclose(spec.ledger[phase["wasted_draft"], :n], weak_work, rtol=1e-9)
    wall = COLUMNS.index("wall_s")
    assert spec.ledger[phase["wasted_tool"], wall] == pytest.approx(held_wall)
    # term by term that is all there is: nothing else differs but the host time of the added requests
    rest = spec.ledger[:, :n].sum(axis=0) - only.ledger[:, :n].sum(axis=0)
    np.testing.assert_allclose(rest, weak_work + verdict + prefill[1] + prefill[2] - prefill[0], rtol=1e-9)


def test_weak_only_is_the_weak_model_alone():
    task = make_task([Effect.READ, Effect.WRITE, Effect.REPLY])
    path = walk(task, strategy("weak_only"), forced([]), PRICING, ProtocolSizes())
    weak, expected_cost, cached = PRICING.models[Role.WEAK], np.zeros(len(QUANTITIES)), 0.0
    for j in range(3):
        x = float(PROMPT + j * (VISIBLE + OBSERVED))
        expected_cost += weak.prefill(x - cached, cached, 1.0) + weak.decode_run(x, WEAK_OUT - 1.0)
        cached = x
    np.testing.assert_allclose(path.ledger[:, : len(QUANTITIES)].sum(axis=0), expected_cost, rtol=1e-9)


def test_more_acceptance_means_fewer_rounds_and_less_waste():
    effects = [Effect.READ, Effect.READ, Effect.WRITE, Effect.READ, Effect.REPLY] * 2
    found = [expected(effects, 4, s) for s in (0.1, 0.5, 0.9, 0.99)]
    for name in ("rounds", "repairs", "wasted_steps", "drafted_steps", "strong_output_tokens"):
        values = [f.count(name)[0] for f in found]
        assert values == sorted(values, reverse=True), name
    walls = [f.column("wall_s")[0] for f in found]
    assert walls == sorted(walls, reverse=True)
