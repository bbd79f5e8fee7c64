"""Draft, review, repair: the round that `spec_agent` and what is built on it have in common."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

from costmodel.protocol import CallTool, Commit, Draft, Repair, Request, Role, StepLike, Verify, View
from costmodel.trajectory import RUNS_FREELY

Segment = tuple[StepLike, ...]


def goes_on(view: View, segment: Segment, window: int) -> bool:
    """Whether another step may be drafted: below the window, behind a step that ran, before the task's end."""
    ran = not segment or segment[-1].effect in RUNS_FREELY
    return len(segment) < window and ran and not view.ended(segment)


def draft(view: View, segment: Segment, window: int) -> Generator[Request, object, Segment]:
    """Draft on behind `segment` up to `window` steps, reads running for real; the first held step ends it."""
    while goes_on(view, segment, window):
        step = cast(Any, (yield Draft(Role.WEAK, segment)))
        segment = (*segment, step)
        if step.effect in RUNS_FREELY:
            yield CallTool(step)
    return segment


def repair(segment: Segment, accepted: int) -> Generator[Request, object, Commit]:
    """The strong model writes the first rejected step; the rest is discarded."""
    step = cast(Any, (yield Repair(Role.STRONG, segment, accepted)))
    return Commit((*segment[:accepted], step))


def review(segment: Segment) -> Generator[Request, object, int]:
    """How many steps of the segment the strong model accepts."""
    verdict = cast(Any, (yield Verify(Role.STRONG, segment)))
    return int(verdict.accepted)
