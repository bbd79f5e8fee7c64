"""All nine strategies: expectation against enumeration and drawn paths, closed forms, and what each reduces to."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.acceptance import AcceptanceLaw, logit
from costmodel.api import api
from costmodel.cost import COLUMNS, PHASES
from costmodel.deployment import deploy
from costmodel.draws import Draws
from costmodel.expect import compile_tape, expect
from costmodel.oracle import Oracle
from costmodel.pricing import NetworkLink, Pricing, Site
from costmodel.protocol import Role
from costmodel.session import ProtocolSizes
from costmodel.strategies import FOLLOWS, STRATEGY_NAMES, Settings, strategy
from costmodel.task import Task, TaskStep
from costmodel.trajectory import Effect
from costmodel.walk import forced, walk
from hwprofiles.errors import InputError

WALL = COLUMNS.index("wall_s")
SMALL = Site(server=deploy("Qwen/Qwen3-0.6B", "l4", chunk_tokens=512))
HYBRID = Site(server=deploy("Qwen/Qwen3.5-4B", "h200", chunk_tokens=600))
QUICK = Site(server=deploy("Qwen/Qwen3-0.6B", "h200"))
CLOUD = Site(server=api("anthropic/claude-sonnet-4-6"), link=NetworkLink(rtt_s=0.1, bytes_per_s=1e6))
SITES = {
    "plain+hybrid": Pricing({Role.WEAK: SMALL, Role.STRONG: HYBRID}),
    "hybrid+quick": Pricing({Role.WEAK: HYBRID, Role.STRONG: QUICK}),
    "hybrid+api": Pricing({Role.WEAK: HYBRID, Role.STRONG: CLOUD}),
}
FLAT, SIZES = AcceptanceLaw(), ProtocolSizes(60, 12)
SETTINGS = Settings(router_share=0.3, router_shares={"start": 0.2, "read": 0.6, "write": 0.5}, adaptive_rule="counts")


def make_task(steps):
    return Task(
        "t",
        ((Role.WEAK, 800), (Role.STRONG, 1900)),
        0,
        tuple(TaskStep(i, *step) for i, step in enumerate(steps)),
    )


def reads(n, tool_s=0.3):
    return make_task([(Effect.READ, 60, 90, 140, 120, tool_s)] * n)


def coins(bits, p, match, weight, unread):
    """Draws decided by one bit per step; `weight` gathers their probability."""

    def choose(index, chance):
        unread.discard(index)
        weight[0] *= chance if bits[index] else 1.0 - chance
        return bits[index]

    def verdict(start, n):
        return next((m for m in range(n) if not choose(start + m, p)), n)

    def toss(index, share):
        return bool(share) if share in (0.0, 1.0) else choose(index, share)

    return Draws(verdict, lambda index: choose(index, match), toss)


task_steps = st.tuples(
    st.sampled_from([Effect.READ, Effect.READ, Effect.READ, Effect.WRITE, Effect.REPLY]),
    st.integers(1, 300),
    st.integers(300, 500),
    st.integers(300, 900),
    st.integers(0, 900),
    st.sampled_from([0.0, 0.05, 0.7, 4.0]),
)


@settings(max_examples=25)
@given(
    st.lists(task_steps, min_size=1, max_size=4),
    st.sampled_from(STRATEGY_NAMES),
    st.sampled_from(sorted(SITES)),
    st.floats(0.05, 0.95),
    st.floats(0.05, 0.95),
    st.integers(1, 4),
)
def test_all_walks_by_probability_are_the_expectation(steps, name, which, p, match, window):
    """A2 for all nine: every ledger cell and count to 1e-9 (the adaptive one under its rule of counts)."""
    task, pricing, how = make_task(steps), SITES[which], strategy(name, window, SETTINGS)
    total, ledger, counts = 0.0, 0.0, 0.0
    for bits in product((False, True), repeat=len(steps)):
        weight, unread = [1.0], set(range(len(steps)))
        path = walk(task, how, coins(bits, p, match, weight, unread), pricing, SIZES)
        chance = weight[0] * 0.5 ** len(unread)
        total, ledger, counts = total + chance, ledger + chance * path.ledger, counts + chance * path.counts
    assert total == pytest.approx(1.0, rel=1e-12)
    found = expect(compile_tape(how, [task], FLAT, pricing, SIZES), logit(p), pricing, match)
    np.testing.assert_allclose(found.ledger[0], ledger, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(found.counts[0], counts, rtol=1e-9)
    busy = sum(found.busy_s.values())
    np.testing.assert_allclose(busy, found.column("busy_s"), rtol=1e-9)


@pytest.mark.parametrize("name", ["step_speculation", "spec_agent_pipelined"])
def test_samples_part_at_races_as_if_priced_one_by_one(name):
    """Many factors at once are each its own expectation, though who is first differs between them."""
    pricing = SITES["plain+hybrid"]
    tasks = [reads(7), make_task([(Effect.READ, 40, 90, 200, 300, 0.05)] * 3 + [(Effect.WRITE, 9, 50, 90, 0, 0.0)])]
    key = next(k for k in pricing.factors if k.endswith("h200.c_op") or k.startswith("h200."))
    values = pricing.factors[key] * np.array([0.2, 0.6, 1.0, 3.0, 20.0])
    shifts = np.array([0.0, 1.0, 2.0, 3.0, -1.0])
    tape = compile_tape(strategy(name, 3), tasks, FLAT, pricing, SIZES)
    many = expect(tape, shifts, Pricing(pricing.sites, {key: values[:, None]}), 0.7)
    for i in range(5):
        one = expect(tape, shifts[i], Pricing(pricing.sites, {key: float(values[i])}), 0.7)
        np.testing.assert_allclose(many.ledger[i], one.ledger[0], rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose(many.counts[i], one.counts[0], rtol=1e-9)


@pytest.mark.parametrize("name", ["task_router", "step_router", "step_speculation", "spec_agent_pipelined"])
def test_means_of_drawn_paths_are_within_four_standard_errors(name):
    """A3 on 40 steps with heavy-tailed tool times."""
    rng = np.random.default_rng(7)
    steps = [
        (Effect(rng.choice(["read", "read", "read", "write"])), 50, 90, 260, int(rng.integers(0, 400)), float(t))
        for t in rng.lognormal(-1, 1, 40)
    ]
    task, pricing, how = make_task(steps), SITES["plain+hybrid"], strategy(name, 4, SETTINGS)
    found = expect(compile_tape(how, [task], FLAT, pricing, SIZES), logit(0.85), pricing, 0.7)
    walls, traffic = [], []
    for _ in range(40):
        u = rng.random(40)
        draws = Draws(
            lambda start, n, u=u: next((m for m in range(n) if u[start + m] >= 0.85), n),
            lambda index, u=u: bool(u[index] < 0.7),
            lambda index, share, u=u: bool(u[index] < share),
        )
        path = walk(task, how, draws, pricing, SIZES)
        walls.append(path.wall_s)
        traffic.append(path.column("weight_bytes"))
    for drawn, name_ in ((walls, "wall_s"), (traffic, "weight_bytes")):
        error = np.std(drawn, ddof=1) / math.sqrt(len(drawn))
        assert abs(np.mean(drawn) - found.column(name_)[0]) < 4 * error + 1e-9 * np.mean(drawn)


# -- reductions -------------------------------------------------------------------------------------------------------


def same(one, other, **swapped):
    """Equal ledgers, with phases renamed."""
    moved = one.ledger.copy()
    for old, new in swapped.items():
        moved[PHASES.index(new)] += moved[PHASES.index(old)]
        moved[PHASES.index(old)] = 0.0
    np.testing.assert_allclose(moved, other.ledger, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("router", ["task_router", "step_router"])
@pytest.mark.parametrize(("share", "name"), [(0.0, "strong_only"), (1.0, "weak_only")])
def test_a_router_that_always_says_the_same_is_one_model(router, share, name):
    how = strategy(
        router,
        settings=Settings(
            router_share=share,
            router_shares=dict.fromkeys(FOLLOWS, share),
        ),
    )
    for pricing in SITES.values():
        same(
            walk(reads(6), how, forced([True] * 6), pricing, SIZES),
            walk(reads(6), strategy(name), forced([True] * 6), pricing, SIZES),
        )


def test_a_router_by_length_is_one_model_per_task():
    how = strategy("task_router", settings=Settings(router_most_steps=3))
    tasks = [reads(3), reads(4)]
    pricing = SITES["plain+hybrid"]
    found = expect(compile_tape(how, tasks, FLAT, pricing, SIZES), 0.0, pricing)
    alone = [
        walk(task, strategy(n), forced([True] * 4), pricing, SIZES)
        for task, n in zip(tasks, ("weak_only", "strong_only"), strict=True)
    ]
    np.testing.assert_allclose(found.ledger[0], (alone[0].ledger + alone[1].ledger) / 2, rtol=1e-12)


@settings(max_examples=15)
@given(st.lists(st.booleans(), min_size=8, max_size=8), st.integers(1, 4))
def test_adaptive_with_a_forced_window_is_spec_agent(bits, window):
    pricing, task = SITES["hybrid+quick"], reads(8)
    plain = walk(task, strategy("spec_agent", window), forced(bits), pricing, SIZES)
    for rule in ("rate", "counts"):
        how = strategy("spec_agent_adaptive", window, Settings(adaptive_rule=rule, adaptive_least_window=window))
        same(walk(task, how, forced(bits), pricing, SIZES), plain)


def test_a_rule_that_looks_at_the_clock_has_no_expectation():
    with pytest.raises(InputError, match="not available"):
        compile_tape(strategy("spec_agent_adaptive"), [reads(4)], FLAT, SITES["hybrid+quick"], SIZES)


def test_adaptive_stops_drafting_where_it_does_not_pay():
    """Nothing is accepted: after one round of the largest window the strong model writes by itself."""
    path = walk(reads(12), strategy("spec_agent_adaptive", 3), forced([False] * 12), SITES["hybrid+quick"], SIZES)
    assert [r.drafted for r in path.rounds[-6:]] == [0] * 6
    kept = walk(reads(12, 0.0), strategy("spec_agent_adaptive", 3), forced([True] * 12), SITES["plain+hybrid"], SIZES)
    assert all(r.drafted for r in kept.rounds)


@settings(max_examples=10)
@given(st.lists(st.booleans(), min_size=9, max_size=9), st.sampled_from(sorted(SITES)))
def test_the_oracle_bounds_every_choice_of_windows(bits, which):
    pricing = SITES[which]
    task = make_task([(Effect.READ if i % 4 else Effect.WRITE, 40, 80, 150, 90, 0.2) for i in range(9)])
    best = Oracle(task, 4, pricing, SIZES).wall_s(forced(bits))
    for name in ("strong_only", "spec_agent", "spec_agent_adaptive"):
        for window in (1, 2, 4):
            path = walk(task, strategy(name, window), forced(bits), pricing, SIZES)
            assert best <= path.wall_s * (1 + 1e-12)


@pytest.mark.parametrize("tool_s", [0.0, 2.0])
@pytest.mark.parametrize("which", ["plain+hybrid", "hybrid+quick"])
def test_pipelined_hides_reviews_behind_drafting(which, tool_s):
    """Acceptance 1, N = mK reads: T = D_1 + sum_r max(V_r, D_{r+1}) + V_m, D and V as spec_agent takes them."""
    window, n_rounds, pricing = 3, 4, SITES[which]
    task = reads(window * n_rounds, tool_s)
    plain = walk(task, strategy("spec_agent", window), forced([True] * 12), pricing, SIZES)
    ahead = walk(task, strategy("spec_agent_pipelined", window), forced([True] * 12), pricing, SIZES)
    times = [[e for e in plain.events if e.round == r] for r in range(n_rounds)]
    drafts = [sum(e.end_s - e.start_s for e in t if _is_drafting(t, e)) for t in times]
    reviews = [sum(e.end_s - e.start_s for e in t if not _is_drafting(t, e)) for t in times]
    expected = drafts[0] + sum(max(v, d) for v, d in zip(reviews, drafts[1:], strict=False)) + reviews[-1]
    assert ahead.wall_s == pytest.approx(expected, rel=1e-9)
    # the work is the same, hidden or not
    resources = [c for c in range(len(COLUMNS)) if c != WALL]
    np.testing.assert_allclose(ahead.ledger[:, resources], plain.ledger[:, resources], rtol=1e-12)


def _is_drafting(events, event):
    """Before the round's review: the strong model's first event."""
    review_s = next(e.start_s for e in events if e.lane == "strong")
    return event.start_s < review_s


def test_pipelined_without_anything_to_draft_ahead_is_spec_agent():
    """Every segment ends at a held step, so there is nothing to go on from."""
    task = make_task([(Effect.WRITE, 40, 80, 150, 90, 0.2)] * 6)
    bits = [True, False, True, True, False, True]
    for pricing in SITES.values():
        one, other = (
            walk(task, strategy(name, 3), forced(bits), pricing, SIZES)
            for name in ("spec_agent_pipelined", "spec_agent")
        )
        same(one, other)


def test_pipelined_with_instant_reviews_takes_spec_agent_s_time():
    """A review that takes no time leaves nothing to hide: only what was begun beside it differs."""
    quick = Pricing(
        {Role.WEAK: HYBRID, Role.STRONG: Site(server=CLOUD.server)},
        {"strong.request_s": 0.0, "strong.output_token_s": 0.0},
    )
    for bits in product((False, True), repeat=6):
        one, other = (
            walk(reads(6), strategy(name, 2), forced(bits), quick, SIZES)
            for name in ("spec_agent_pipelined", "spec_agent")
        )
        assert one.wall_s == pytest.approx(other.wall_s, rel=1e-9)


@pytest.mark.parametrize("which", sorted(SITES))
def test_step_speculation_that_guesses_nothing_or_needs_no_tool_takes_strong_only_s_time(which):
    pricing, never = SITES[which], Draws(lambda _s, _n: 0, lambda _i: False, lambda _i, _s: False)
    always = Draws(lambda _s, n: n, lambda _i: True, lambda _i, _s: True)
    for task, draws in ((reads(6, 1.0), never), (reads(6, 0.0), always)):
        strong = walk(task, strategy("strong_only"), forced([]), pricing, SIZES)
        guessed = walk(task, strategy("step_speculation"), draws, pricing, SIZES)
        assert guessed.wall_s == pytest.approx(strong.wall_s, rel=1e-9)
        phases = [PHASES.index(p) for p in ("decode", "prompt_prefill")]
        np.testing.assert_allclose(guessed.ledger[phases[0]], strong.ledger[phases[0]], rtol=1e-12)


def test_step_speculation_with_right_guesses_waits_for_the_longer_of_two():
    """T = sum_j max(s_j, w_j + t_j): the strong model's step beside the guess and its read, where guesses are first."""
    pricing, tool_s = SITES["plain+hybrid"], 3.0
    task = make_task([(Effect.READ, 20, 21, 300, 40, tool_s)] * 5)
    guessed = walk(task, strategy("step_speculation"), forced([True] * 5), pricing, SIZES)
    expected = 0.0
    for r in range(5):
        mine = [e for e in guessed.events if e.round == r]
        took = {
            lane: max(e.end_s for e in mine if e.lane == lane) - min(e.start_s for e in mine)
            for lane in ("strong", "tools")
        }
        expected += max(took.values())
    assert guessed.wall_s == pytest.approx(expected, rel=1e-9)
    strong = walk(task, strategy("strong_only"), forced([]), pricing, SIZES)
    assert guessed.wall_s < strong.wall_s - 5 * 0.5


@pytest.mark.parametrize("window", [1, 2, 3, 5])
@pytest.mark.parametrize("a", [0.4, 0.8])
def test_spec_agent_counts_as_token_speculation_one_shorter(window, a):
    """SpecAgent(K) with repair and verdict free commits as token speculation with g = K - 1 and its bonus token.

    A round commits (1 - a^K) / (1 - a) steps; a pass with g drafts commits (1 - a^(g + 1)) / (1 - a) tokens.
    """
    pricing = SITES["plain+hybrid"]
    few, many = (
        expect(compile_tape(strategy("spec_agent", window), [reads(n)], FLAT, pricing, SIZES), logit(a), pricing)
        for n in (90, 120)
    )
    per_round = 30 / (many.count("rounds")[0] - few.count("rounds")[0])
    g = window - 1
    assert per_round == pytest.approx(sum(a**i for i in range(g + 1)), rel=1e-6)
