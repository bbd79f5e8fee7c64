"""Success and damage of the chain: closed forms, limits, Monte Carlo, and risk that grows with the window."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.chain import Fate, StepRisk, authored, reviewed, reviewed_mean
from costmodel.hazards import Hazards, at_difficulty, difficulties
from costmodel.quality import step_hazard, success
from costmodel.trajectory import RUNS_FREELY, Effect
from hwprofiles.errors import InputError

READ, WRITE, OTHER, REPLY = (
    StepRisk(Effect.READ),
    StepRisk(Effect.WRITE, "a"),
    StepRisk(Effect.WRITE, "b"),
    StepRisk(Effect.REPLY),
)
TASK = (READ, READ, WRITE, READ, READ, READ, OTHER, READ, READ, REPLY)
PLAIN = Hazards(weak=0.1, strong=0.03, detection=0.55, false_reject=0.04, recovery_weak=0.25, recovery_strong=0.25)
RISKY = Hazards(
    weak=0.1,
    strong=0.05,
    detection=0.55,
    false_reject=0.1,
    recovery_weak=0.2,
    recovery_strong=0.3,
    irreversible=0.3,
    hold_failure=0.3,
)

tasks = st.lists(st.sampled_from([READ, READ, WRITE, OTHER, REPLY]), min_size=1, max_size=9)
shares = st.floats(0.0, 1.0)
hazards = st.builds(
    Hazards,
    weak=shares,
    strong=shares,
    detection=shares,
    false_reject=shares,
    recovery_weak=shares,
    recovery_strong=shares,
    irreversible=shares,
    hold_failure=shares,
    sticky=st.booleans(),
)


@pytest.mark.parametrize("window", [1, 2, 4, 32])
def test_any_window_gives_the_closed_form(window: int) -> None:
    """S_N = g/(g+q) + q/(g+q) (1-q-g)^N with q_spec, when nothing depends on the position."""
    q = step_hazard("spec_agent", 0.1, 0.03, 0.55, 0.04)
    assert reviewed(TASK, window, PLAIN).success == pytest.approx(success(q, 0.25, len(TASK)), rel=1e-12)


def test_one_author_gives_the_closed_form() -> None:
    for hazard in (0.03, 0.1):
        fate = authored(TASK, [1.0] * len(TASK), replace(PLAIN, weak=hazard))
        assert fate.success == pytest.approx(success(hazard, 0.25, len(TASK)), rel=1e-12)
        assert fate.damage == pytest.approx(1 - (1 - hazard) ** 2, rel=1e-12)  # two writes
        assert fate.events == pytest.approx(2 * hazard, rel=1e-12)


def test_a_write_at_an_offset_harms_with_the_stated_probability() -> None:
    """P = 1 - (1-w)(1-f) prod a_l for one write that the hold misses, m reads before it in its segment."""
    h = replace(PLAIN, hold_failure=1.0, strong=0.0)
    a = 0.9 * 0.96 + 0.1 * 0.45
    for m in range(5):
        steps = (*(READ,) * m, WRITE)
        harm = 1 - 0.9 * 0.96 * a**m
        assert reviewed(steps, m + 1, h).damage == pytest.approx(harm, rel=1e-12)


def _drawn(steps: Sequence[StepRisk], window: int, h: Hazards, n: int, seed: int) -> tuple[float, float, float]:
    """The same by drawing every bit: success, any harm, mean harms."""
    rng = random.Random(seed)
    totals = [0, 0, 0]
    for _ in range(n):
        fails = {t: rng.random() < h.hold_failure for t in ("a", "b")}
        clean, dead, harms, i = True, False, 0, 0
        while i < len(steps):
            segment = []
            for step in steps[i : i + window]:
                slips = fails.get(step.tool, False) if h.sticky else rng.random() < h.hold_failure
                early = step.effect is Effect.WRITE and slips
                segment.append((step, early, rng.random() < h.weak))
                if step.effect not in RUNS_FREELY and not early:
                    break
            kept = 0
            for _step, _early, wrong in segment:
                if (rng.random() < h.detection) if wrong else (rng.random() < h.false_reject):
                    break
                kept += 1
            acts = [(step, wrong, h.recovery_weak) for step, _, wrong in segment[:kept]]
            thrown = sum(early for _, early, _ in segment[kept:])
            for step, wrong, mends in acts:
                bad = step.effect is Effect.WRITE and wrong
                harms += bad
                dead |= bad and rng.random() < h.irreversible
                clean = not wrong if clean else rng.random() < mends
            for _ in range(thrown):
                harms, clean = harms + 1, False
                dead |= rng.random() < h.irreversible
            i += kept
            if kept < len(segment):
                wrong = rng.random() < h.strong
                bad = segment[kept][0].effect is Effect.WRITE and wrong
                harms += bad
                dead |= bad and rng.random() < h.irreversible
                clean = not wrong if clean else rng.random() < h.recovery_strong
                i += 1
        totals = [totals[0] + (clean and not dead), totals[1] + (harms > 0), totals[2] + harms]
    return totals[0] / n, totals[1] / n, totals[2] / n


@pytest.mark.parametrize("sticky", [True, False])
@pytest.mark.parametrize("window", [1, 3, 6])
def test_drawing_every_bit_agrees(window: int, sticky: bool) -> None:
    n = 20_000
    h = replace(RISKY, sticky=sticky)
    exact, drawn = reviewed(TASK, window, h), _drawn(TASK, window, h, n, seed=window)
    for value, estimate in zip((exact.success, exact.damage), drawn[:2], strict=True):
        assert estimate == pytest.approx(value, abs=4 * np.sqrt(value * (1 - value) / n))
    assert drawn[2] == pytest.approx(exact.events, rel=0.06)


@settings(max_examples=60, deadline=None)
@given(tasks, st.integers(1, 6), hazards)
def test_fates_are_probabilities(steps: list[StepRisk], window: int, h: Hazards) -> None:
    fate = reviewed(steps, window, h)
    assert -1e-9 <= fate.success <= 1 + 1e-9
    assert -1e-9 <= fate.damage <= min(1.0, fate.events) + 1e-9


@settings(max_examples=60, deadline=None)
@given(tasks, hazards)
def test_risk_does_not_fall_as_the_window_doubles(steps: list[StepRisk], h: Hazards) -> None:
    """Rounds of window 2 K begin at a subset of those of window K, so no early write has fewer steps before it.

    Not so from 2 to 3: a write may come to stand first in a segment. Excess over strong-only is damage less a constant.
    """
    by_window = [reviewed(steps, k, h).damage for k in (1, 2, 4, 8)]
    assert all(b >= a - 1e-9 for a, b in pairwise(by_window))


@settings(max_examples=60, deadline=None)
@given(tasks, st.sampled_from([1, 2, 4, 20]), hazards)
def test_risk_does_not_fall_with_hold_failure(steps: list[StepRisk], window: int, h: Hazards) -> None:
    by_failure = [reviewed(steps, window, replace(h, hold_failure=x)).damage for x in (0.0, 0.2, 0.6, 1.0)]
    assert all(b >= a - 1e-9 for a, b in pairwise(by_failure))


@settings(max_examples=30, deadline=None)
@given(tasks, st.integers(1, 6), shares, shares)
def test_no_damage_when_nothing_can_slip(steps: list[StepRisk], window: int, weak: float, recovery: float) -> None:
    """Hold failure 0, detection 1, strong hazard 0: not one harm, exactly."""
    h = replace(PLAIN, weak=weak, strong=0.0, detection=1.0, recovery_weak=recovery)
    fate = reviewed(steps, window, h)
    assert fate.damage == 0
    assert fate.events == 0


def test_more_detection_never_hurts_where_the_strong_model_is_better() -> None:
    found = [reviewed(TASK, 4, replace(PLAIN, detection=d)).success for d in np.linspace(0, 1, 11)]
    assert np.all(np.diff(found) > 0)


def test_position_dependent_detection_is_used() -> None:
    """A reviewer that sees nothing behind the first step of a segment is worse at window 4 than at window 1."""
    curve = np.zeros((4, 4))
    curve[0] = 0.9
    h = replace(PLAIN, detection=curve)
    assert reviewed((READ,) * 8, 4, h).success < reviewed((READ,) * 8, 1, h).success
    flat = replace(PLAIN, detection=np.full((4, 4), 0.55))
    assert reviewed(TASK, 4, flat).success == pytest.approx(reviewed(TASK, 4, PLAIN).success, rel=1e-12)


@pytest.mark.parametrize("rho", [0.05, 0.3, 0.8])
def test_difficulties_are_exact_for_the_chain(rho: float) -> None:
    """Twice the nodes change nothing: the chain is a polynomial of degree 3 N in the difficulty."""
    z, weight = difficulties(rho, len(TASK))
    more_z, more_weight = difficulties(rho, 2 * len(TASK))
    assert weight @ z == pytest.approx(0.5)
    assert weight @ (z - 0.5) ** 2 == pytest.approx(rho / 4)

    def mean(z: np.ndarray, weight: np.ndarray) -> Fate:
        return reviewed(TASK, 4, at_difficulty(RISKY, z, 0.5)).mean(weight)

    once, twice = mean(z, weight), mean(more_z, more_weight)
    assert (once.success, once.damage) == pytest.approx((twice.success, twice.damage), rel=1e-10)


def test_a_perfect_reviewer_can_recover_more_than_the_gap() -> None:
    """Independent errors: the weak model's right steps stand where the strong one would err; it is not clipped."""
    h = replace(PLAIN, detection=1.0, false_reject=0.0)
    spec, weak, strong = (
        f.success for f in (reviewed(TASK, 4, h), authored(TASK, [1.0] * 10, h), authored(TASK, [0.0] * 10, h))
    )
    assert (spec - weak) / (strong - weak) > 1


@pytest.mark.parametrize(
    ("change", "says"), [({"weak": 1.2}, "weak"), ({"hold_failure": -0.1}, "hold_failure"), ({"detection": 2}, "detec")]
)
def test_bad_probabilities_are_named(change: dict[str, float], says: str) -> None:
    with pytest.raises(InputError, match=says):
        replace(PLAIN, **change)


def test_too_many_sticky_tools_are_refused() -> None:
    steps = [StepRisk(Effect.WRITE, f"tool{i}") for i in range(11)]
    with pytest.raises(InputError, match="11 write tools"):
        reviewed(steps, 2, RISKY)
    assert reviewed(steps, 2, replace(RISKY, sticky=False)).damage > 0


def test_points_and_rates_of_hold_failure_go_through_together() -> None:
    """Arrays of hazards, of curves and of hold failures give what one at a time gives."""
    rates, hazard = np.array([0.0, 0.2, 1.0]), np.array([0.05, 0.3])
    curve = np.linspace(0.9, 0.2, 16).reshape(4, 4)
    for sticky in (True, False):
        h = replace(RISKY, weak=hazard, detection=np.stack([curve, 1 - curve]), sticky=sticky)
        all_at_once = reviewed(TASK, 6, replace(h, hold_failure=rates[:, None]))
        for i, rate in enumerate(rates):
            for k in range(2):
                one = replace(h, weak=hazard[k], detection=[curve, 1 - curve][k], hold_failure=rate)
                single = reviewed(TASK, 6, one)
                for name in ("success", "damage", "events"):
                    assert getattr(all_at_once, name)[i, k] == pytest.approx(getattr(single, name), rel=1e-12)


def test_the_mean_over_tasks_is_that_of_each() -> None:
    others = [TASK, TASK[:6], TASK[3:], TASK]
    found = reviewed_mean(others, 4, RISKY)
    assert found.damage == pytest.approx(np.mean([reviewed(t, 4, RISKY).damage for t in others]))


@pytest.mark.parametrize("window", [1, 4])
def test_immediate_recovery_is_its_closed_form(window: int) -> None:
    """S_N = (1 - q_spec (1 - g))^N."""
    h = replace(PLAIN, immediate=True)
    q = step_hazard("spec_agent", 0.1, 0.03, 0.55, 0.04)
    assert reviewed(TASK, window, h).success == pytest.approx((1 - q * 0.75) ** 10, rel=1e-12)
    assert authored(TASK, [0.0] * 10, h).success == pytest.approx((1 - 0.03 * 0.75) ** 10, rel=1e-12)


def test_a_router_is_the_mean_over_its_draws() -> None:
    steps, shares = TASK[:4], [0.3, 0.0, 0.5, 1.0]
    h = replace(PLAIN, recovery_strong=0.6, irreversible=0.2)
    total = 0.0
    for authors in product((0.0, 1.0), repeat=4):
        chance = np.prod([s if a else 1 - s for s, a in zip(shares, authors, strict=True)])
        total += chance * authored(steps, authors, h).success
    assert authored(steps, shares, h).success == pytest.approx(total, rel=1e-12)


def test_long_tasks_need_no_more_difficulties() -> None:
    """The most nodes that are used stand for all that would be exact at 200 steps."""
    from scipy.special import roots_jacobi

    steps = tuple(([READ] * 6 + [WRITE]) * 29)[:200]
    z, weight = difficulties(0.3, 200)
    x, full = roots_jacobi(301, 7 / 6 - 1, 7 / 6 - 1)
    h = replace(RISKY, irreversible=0.02, weak=0.4)
    few = reviewed(steps, 8, at_difficulty(h, z, 0.5)).mean(weight)
    many = reviewed(steps, 8, at_difficulty(h, (1 + x) / 2, 0.5)).mean(full / full.sum())
    assert (few.success, few.damage) == pytest.approx((many.success, many.damage), abs=1e-9)
