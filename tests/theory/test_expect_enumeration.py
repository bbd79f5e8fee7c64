"""`expect` against every possible path: all 2^N forced walks, weighted by their probability, in every ledger cell."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.acceptance import AcceptanceLaw
from costmodel.api import api
from costmodel.deployment import deploy
from costmodel.expect import compile_tape, expect
from costmodel.pricing import NetworkLink, Pricing, Site
from costmodel.protocol import Role
from costmodel.round_result import COUNTS
from costmodel.session import ProtocolSizes
from costmodel.strategies import strategy
from costmodel.task import Task, TaskStep
from costmodel.trajectory import Effect
from costmodel.walk import walk

PLAIN = Site(server=deploy("Qwen/Qwen3-0.6B", "l4", chunk_tokens=512))
HYBRID = Site(server=deploy("Qwen/Qwen3.5-4B", "h200", chunk_tokens=600))
SLIDING = Site(server=deploy("openai/gpt-oss-20b", "h200"), link=NetworkLink(rtt_s=0.08, bytes_per_s=2e5))
SPLIT = Site(server=deploy("Qwen/Qwen3.5-397B-A17B", "h200", n_devices=8, weight_dtype="fp8"))
CLOUD = Site(server=api("anthropic/claude-sonnet-4-6"), link=NetworkLink(rtt_s=0.1, bytes_per_s=1e6))
SITES = {
    "plain+sliding": Pricing({Role.WEAK: PLAIN, Role.STRONG: SLIDING}),
    "hybrid+split": Pricing({Role.WEAK: HYBRID, Role.STRONG: SPLIT}),
    "plain+api": Pricing({Role.WEAK: PLAIN, Role.STRONG: CLOUD}),
    "hybrid+plain": Pricing({Role.WEAK: HYBRID, Role.STRONG: PLAIN}),
}
WHICH = [
    ("strong_only", 1),
    ("weak_only", 1),
    ("step_verification", 1),
    ("spec_agent", 2),
    ("spec_agent", 3),
    ("spec_agent", 8),
]

task_steps = st.tuples(
    st.sampled_from(list(Effect)),
    st.integers(1, 300),
    st.sampled_from([0, 0, 150]),
    st.sampled_from([0, 700]),
    st.integers(0, 900),
    st.floats(0.0, 5.0),
)


def make_task(drawn, weak_prompt=800, strong_prompt=1900, shared=0):
    steps = tuple(
        TaskStep(i, effect, visible, visible + weak, visible + strong, seen, tool_s)
        for i, (effect, visible, weak, strong, seen, tool_s) in enumerate(drawn)
    )
    return Task("t", ((Role.WEAK, weak_prompt), (Role.STRONG, strong_prompt)), shared, steps)


class Enumeration:
    """All walks of a task, each with its probability: bits that no review reads count one half each way."""

    def __init__(self, task, which, law, shift, pricing, sizes):
        self.ledger, self.counts, self.probability = 0.0, np.zeros(len(COUNTS)), 0.0
        for bits in product((False, True), repeat=len(task.steps)):
            weight, unread = [1.0], set(range(len(task.steps)))

            def verdict(start, n, bits=bits, weight=weight, unread=unread):
                for m in range(n):
                    unread.discard(start + m)
                    x = shift + law.position_logits[min(m, len(law.position_logits) - 1)]
                    x += law.effect_logits.get(task.steps[start + m].effect, 0.0)
                    p = 1.0 / (1.0 + math.exp(-x))
                    weight[0] *= p if bits[start + m] else 1.0 - p
                    if not bits[start + m]:
                        return m
                return n

            path = walk(task, strategy(*which), verdict, pricing, sizes)
            probability = weight[0] * 0.5 ** len(unread)
            self.probability += probability
            self.ledger = self.ledger + probability * path.ledger
            drafted = sum(r.drafted for r in path.rounds)
            accepted = sum(r.accepted for r in path.rounds)
            self.counts[:6] += probability * np.array(
                [
                    len(path.rounds),
                    sum(len(r.committed) for r in path.rounds),
                    drafted,
                    sum(r.verified for r in path.rounds),
                    sum(r.repaired for r in path.rounds),
                    drafted - accepted,
                ]
            )


def check(task, which, law, shift, pricing, sizes):
    all_paths = Enumeration(task, which, law, shift, pricing, sizes)
    assert all_paths.probability == pytest.approx(1.0, rel=1e-12)
    tape = compile_tape(strategy(*which), [task], law, pricing, sizes)
    found = expect(tape, shift, pricing)
    np.testing.assert_allclose(found.ledger[0], all_paths.ledger, rtol=1e-9, atol=0)
    np.testing.assert_allclose(found.counts[0, :6], all_paths.counts[:6], rtol=1e-9)


laws = st.builds(
    lambda positions, write, reply: AcceptanceLaw(
        position_logits=tuple(positions), effect_logits={Effect.WRITE: write, Effect.REPLY: reply}
    ),
    st.lists(st.floats(-1.5, 1.5), min_size=1, max_size=4),
    st.floats(-2, 2),
    st.floats(-2, 2),
)


@settings(max_examples=60)
@given(
    st.lists(task_steps, min_size=1, max_size=5),
    st.sampled_from(WHICH),
    laws,
    st.floats(-2, 4),
    st.sampled_from(sorted(SITES)),
    st.sampled_from(["fresh", "continue"]),
    st.integers(1, 30),
    st.sampled_from([0, 528, 700]),
)
def test_expectation_is_the_weighted_sum_over_all_paths(drawn, which, law, shift, sites, mode, verdict_tokens, shared):
    sizes = ProtocolSizes(60, verdict_tokens, mode)
    check(make_task(drawn, shared=shared), which, law, shift, SITES[sites], sizes)


LONG = [
    (Effect.READ, 120, 0, 0, 400, 1.0),
    (Effect.PURE, 60, 150, 700, 0, 0.0),
    (Effect.READ, 30, 0, 0, 900, 0.3),
    (Effect.WRITE, 90, 0, 0, 50, 2.0),
    (Effect.READ, 200, 0, 700, 528, 0.1),
    (Effect.UNKNOWN, 45, 0, 0, 33, 0.7),
    (Effect.REPLY, 150, 150, 0, 80, 0.0),
    (Effect.READ, 77, 0, 0, 611, 1.4),
    (Effect.READ, 300, 0, 0, 5, 0.6),
    (Effect.REPLY, 222, 0, 700, 0, 0.0),
]
UNEVEN = AcceptanceLaw(position_logits=(-0.35, 0.15, 0.6), effect_logits={Effect.WRITE: -0.8, Effect.UNKNOWN: 0.5})


@pytest.mark.parametrize("sites", ["hybrid+split", "plain+api"])
@pytest.mark.parametrize("which", [("step_verification", 1), ("spec_agent", 4)])
def test_ten_steps_have_1024_paths(which, sites):
    check(make_task(LONG), which, UNEVEN, 1.7, SITES[sites], ProtocolSizes())


def test_the_mean_over_tasks_is_the_mean_of_their_expectations():
    pricing, sizes = SITES["hybrid+split"], ProtocolSizes()
    tasks = [make_task(LONG), make_task(LONG[3:6]), make_task(LONG[:1])]
    which = strategy("spec_agent", 3)
    each = [expect(compile_tape(which, [t], UNEVEN, pricing, sizes), 0.8, pricing) for t in tasks]
    both = expect(compile_tape(which, tasks, UNEVEN, pricing, sizes), 0.8, pricing)
    np.testing.assert_allclose(both.ledger, np.mean([e.ledger for e in each], axis=0), rtol=1e-12)
    np.testing.assert_allclose(both.counts, np.mean([e.counts for e in each], axis=0), rtol=1e-12)


def test_one_task_twice_is_that_task():
    pricing, sizes = SITES["plain+api"], ProtocolSizes()
    once, twice = (
        expect(compile_tape(strategy("spec_agent", 4), [make_task(LONG)] * n, UNEVEN, pricing, sizes), 1.0, pricing)
        for n in (1, 2)
    )
    np.testing.assert_allclose(once.ledger, twice.ledger, rtol=1e-12)


def test_many_shifts_at_once_equal_one_at_a_time():
    pricing, sizes = SITES["hybrid+plain"], ProtocolSizes()
    tape = compile_tape(strategy("spec_agent", 4), [make_task(LONG)], UNEVEN, pricing, sizes)
    shifts = np.array([-np.inf, -1.0, 0.0, 2.0, np.inf])
    many = expect(tape, shifts, pricing)
    for i, shift in enumerate(shifts):
        one = expect(tape, shift, pricing)
        np.testing.assert_allclose(many.ledger[i], one.ledger[0], rtol=1e-12)
        np.testing.assert_allclose(many.counts[i], one.counts[0], rtol=1e-12)


def test_engine_seconds_by_role_sum_to_the_busy_column():
    pricing, sizes = SITES["hybrid+split"], ProtocolSizes()
    found = expect(
        compile_tape(strategy("spec_agent", 4), [make_task(LONG)], UNEVEN, pricing, sizes),
        np.array([0.3, 2.0]),
        pricing,
    )
    assert (found.busy_s[Role.WEAK] > 0).all()
    np.testing.assert_allclose(found.busy_s[Role.WEAK] + found.busy_s[Role.STRONG], found.column("busy_s"), rtol=1e-12)
