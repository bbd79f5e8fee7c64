"""The guard of the protocol's rules, asked directly: what a driver of real models relies on."""

from __future__ import annotations

import pytest

from costmodel.guard import HoldViolation, RoundGuard
from costmodel.trajectory import Effect


def drafted(*effects, run=True):
    guard = RoundGuard("test")
    for offset, effect in enumerate(effects):
        guard.before_draft(offset)
        guard.after_draft(offset, effect)
        if run and effect in (Effect.READ, Effect.PURE):
            guard.before_call(offset)
            guard.after_call(offset)
    return guard


def test_a_held_step_runs_at_the_commit():
    guard = drafted(Effect.READ, Effect.WRITE)
    guard.before_review(2)
    guard.after_review(2)
    assert guard.before_commit([0, 1]) == (2, [1])


def test_a_repaired_step_runs_again_at_the_commit():
    guard = drafted(Effect.READ, Effect.READ)
    guard.before_review(2)
    guard.after_review(1)
    guard.before_repair(1)
    # the refused read at offset 1 has run, but what was written in its place has not
    assert guard.before_commit([0, 1]) == (1, [1])


@pytest.mark.parametrize("effect", [Effect.WRITE, Effect.REPLY, Effect.UNKNOWN])
def test_held_effects_do_not_run_while_drafting(effect):
    with pytest.raises(HoldViolation, match="held until a verdict"):
        drafted(effect).before_call(0)


def test_a_step_drafted_anew_has_not_run_and_is_not_accepted():
    guard = drafted(Effect.READ)
    guard.before_review(1)
    guard.after_review(1)
    guard.after_draft(0, Effect.WRITE)
    with pytest.raises(ValueError, match="0 steps are accepted"):
        guard.before_commit([0])
    with pytest.raises(HoldViolation):
        guard.before_draft(1)


@pytest.mark.parametrize("accepted", [-1, 3])
def test_a_verdict_lies_within_the_segment(accepted):
    guard = drafted(Effect.READ, Effect.READ)
    guard.before_review(2)
    with pytest.raises(ValueError, match="between 0 and 2"):
        guard.after_review(accepted)


@pytest.mark.parametrize("offset", [-1, 2])
def test_a_repair_stands_behind_accepted_steps(offset):
    guard = drafted(Effect.READ, Effect.READ)
    guard.before_review(2)
    guard.after_review(1)
    with pytest.raises(ValueError, match="needs a verdict"):
        guard.before_repair(offset)


def test_one_written_step_a_round():
    guard = RoundGuard("test")
    guard.before_write()
    with pytest.raises(ValueError, match="at most one step"):
        guard.before_write()
    assert guard.before_commit([0]) == (0, [0])
