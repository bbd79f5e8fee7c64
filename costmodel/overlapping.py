"""Strategies in which the two models work at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from costmodel.protocol import (
    CallTool,
    Cancel,
    Commit,
    Done,
    Draft,
    Reuse,
    Role,
    Round,
    Start,
    Ticket,
    Verify,
    View,
    Wait,
    Write,
)
from costmodel.segment import Segment, draft, goes_on, repair
from costmodel.trajectory import RUNS_FREELY


@dataclass(frozen=True, slots=True)
class StepSpeculation:
    """The weak model guesses the step that the strong one is writing, and a guessed read runs meanwhile.

    When the strong model's step makes the same call, its observation is there already. The strong model writes every
    step, so success is that of `strong_only`.
    """

    name: str = "step_speculation"

    def round(self, view: View) -> Round:
        """Write and guess at once; commit what was written."""
        writing = cast(Ticket, (yield Start(Write(Role.STRONG))))
        guessing = cast(Ticket, (yield Start(Draft(Role.WEAK, ()))))
        done = cast(Done, (yield Wait((writing, guessing))))
        if done.ticket == writing:
            yield Cancel(guessing)
            return Commit((cast(Any, done.answer),))
        guess = cast(Any, done.answer)
        if guess.effect not in RUNS_FREELY:
            return Commit((cast(Any, (yield Wait((writing,)))).answer,))
        reading = cast(Ticket, (yield Start(CallTool(guess))))
        step = cast(Any, (yield Wait((writing,)))).answer
        if (yield Reuse(step, guess)):
            yield Wait((reading,))
        else:
            yield Cancel(reading)
        return Commit((step,))


@dataclass(frozen=True, slots=True)
class Pipelined:
    """`spec_agent` that drafts on, reads only, while its segment is under review.

    What is drafted ahead of an accepted segment begins the next one; on a rejection it is thrown away. A draft under
    way when an accepting verdict comes is finished: the next round would ask for just that.
    """

    name: str
    window: int

    def round(self, view: View) -> Round:
        """Complete the segment, have it reviewed while drafting ahead, commit; repair where the review stops."""
        segment = yield from draft(view, view.carried, self.window)
        reviewing = cast(Ticket, (yield Start(Verify(Role.STRONG, segment))))
        ahead: Segment = ()
        work: Ticket | None = None
        drafting = False
        while True:
            if work is None and self._goes_on(view, segment, ahead):
                work, drafting = cast(Ticket, (yield Start(Draft(Role.WEAK, (*segment, *ahead))))), True
            done = cast(Done, (yield Wait((reviewing,) if work is None else (reviewing, work))))
            if done.ticket == reviewing:
                break
            work = None
            if drafting:
                step = cast(Any, done.answer)
                ahead, drafting = (*ahead, step), False
                if step.effect in RUNS_FREELY:
                    work = cast(Ticket, (yield Start(CallTool(step))))
        accepted = cast(Any, done.answer).accepted
        if accepted < len(segment):
            if work is not None:
                yield Cancel(work)
            return (yield from repair(segment, accepted))
        if work is not None:
            done = cast(Done, (yield Wait((work,))))
            if drafting:
                step = cast(Any, done.answer)
                ahead = (*ahead, step)
                if step.effect in RUNS_FREELY:
                    yield CallTool(step)
        return Commit(segment, carried=ahead)

    def _goes_on(self, view: View, segment: Segment, ahead: Segment) -> bool:
        """Whether to draft further ahead: not behind a held step, nor beyond a second window."""
        if segment[-1].effect not in RUNS_FREELY:
            return False
        return goes_on(view, (*segment, *ahead), len(segment) + self.window)
