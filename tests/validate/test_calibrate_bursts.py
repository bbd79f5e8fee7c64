"""Steps read off answers whose tokens were held up on their way, and points held out of the fit."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.deployment import deploy, factor_values
from validate.calibrate_probe import Timed, between_lengths, between_tokens
from validate.calibrate_run import calibrate_target
from validate.calibrate_targets import VirtualTarget
from validate.design import Limits, fits
from validate.held_out import checked, random_points
from validate.serve_fake import FakeService

STEP_S, FIRST_S = 0.01, 0.2


def answer(n: int, *, sent_s: float = 0.0, held_s: float = 0.0, step_s: float = STEP_S) -> Timed:
    """`n` tokens, one a step; none comes before `held_s`."""
    pieces = tuple(max(held_s, sent_s + FIRST_S + i * step_s) for i in range(n))
    return Timed(sent_s=sent_s, piece_s=pieces, prompt_tokens=100, cached_tokens=96, output_tokens=n)


def test_an_even_answer_gives_its_step():
    step_s, context = between_tokens([answer(24), answer(24)])
    assert step_s == pytest.approx(STEP_S)
    assert context == pytest.approx(100 + 12 - 1, abs=1)


@pytest.mark.parametrize("share", [0.75, 0.9, 1.0])
def test_a_burst_says_nothing_of_steps(share):
    assert between_tokens([answer(24, held_s=FIRST_S + share * 23 * STEP_S)]) is None


@given(held=st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6), batch=st.integers(1, 8))
def test_longer_answers_give_the_step_whenever_tokens_arrive(held, batch):
    """The end is when the engine is done; what came in bursts before does not matter."""
    groups = []
    for n, shares in ((24, held[:3]), (96, held[3:])):
        end_s = FIRST_S + (n - 1) * STEP_S
        groups.append([[answer(n, held_s=share * end_s) for _ in range(batch)] for share in shares])
    assert between_lengths(*groups) == pytest.approx([STEP_S] * 3)


def test_answers_that_took_turns_are_no_group():
    """A server that runs two at once takes twice as long for four: no step of four."""
    short = [[answer(24), answer(24, sent_s=0.0, step_s=2 * STEP_S)]]
    late = replace(answer(96), piece_s=tuple(t + 1.0 for t in answer(96).piece_s))
    assert between_lengths(short, [[answer(96), late]]) == []


def test_answers_without_tokens_or_growth_give_no_step():
    none = replace(answer(24), piece_s=())
    assert between_lengths([[none]], [[answer(96)]]) == []
    assert between_lengths([[answer(24)]], [[answer(24)]]) == []
    slow = answer(24, step_s=1.0)
    assert between_lengths([[slow]], [[answer(96)]]) == []


@given(n=st.integers(1, 40), seed=st.integers(0, 10**6), longest=st.integers(64, 20_000))
def test_random_points_fit_the_server_and_are_reproducible(n, seed, longest):
    room = Limits(max_model_tokens=longest, kv_tokens=40_000, max_seqs=8)
    points = random_points(room, n, seed)
    assert points == random_points(room, n, seed)
    assert len(points) <= n
    assert all(fits(p, room) for p in points)


def test_a_fit_predicts_points_it_has_not_seen():
    """A fake server without noise: the cost model is the truth, so what is left is the fit's own error."""
    dep = deploy("Qwen/Qwen3-8B", "h200")
    target = VirtualTarget(FakeService(dep, {**factor_values(dep), "host_step_s": 0.002}))
    found = asyncio.run(calibrate_target(dep, target, 300.0, check=9))
    assert found.check is not None
    assert found.check["n"] == 9
    assert found.check["median_error"] < 0.02
    assert found.check["in_band"] >= 8 / 9
    fitted = {r["point"] for r in found.fitted.residuals()}
    assert not fitted & {p["point"] for p in found.check["points"]}


def test_nothing_measured_is_no_error_of_zero():
    dep = deploy("Qwen/Qwen3-8B", "h200")
    found = asyncio.run(calibrate_target(dep, VirtualTarget(FakeService(dep, factor_values(dep))), 60.0))
    empty = checked(dep, found.fitted, [])
    assert empty == {"n": 0, "median_error": None, "in_band": None, "points": []}
