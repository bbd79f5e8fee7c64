"""The strategies, each written once in the request language of `costmodel.protocol`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from costmodel.protocol import CallTool, Commit, Draft, Repair, Role, Round, Strategy, Verify, View, Write
from costmodel.trajectory import RUNS_FREELY
from hwprofiles.errors import InputError, unknown_name


@dataclass(frozen=True, slots=True)
class OneModel:
    """One model writes every step: `strong_only` and `weak_only`."""

    name: str
    role: Role

    def round(self, view: View) -> Round:
        """Write one step and commit it."""
        step = yield Write(self.role)
        return Commit((cast(Any, step),))


@dataclass(frozen=True, slots=True)
class SpecAgent:
    """The weak model drafts up to `window` steps, reads running for real; the strong one reviews them in one request.

    The first step that does not run freely is held and ends the segment. The longest valid prefix commits; on a
    rejection the strong model writes the first rejected step and the rest is discarded. `window` 1 is
    `step_verification`.
    """

    name: str
    window: int

    def round(self, view: View) -> Round:
        """Draft, review, commit; repair where the review stops."""
        segment: tuple[Any, ...] = ()
        while len(segment) < self.window and not view.ended(segment):
            step = cast(Any, (yield Draft(Role.WEAK, segment)))
            segment = (*segment, step)
            if step.effect not in RUNS_FREELY:
                break
            yield CallTool(step)
        verdict = cast(Any, (yield Verify(Role.STRONG, segment)))
        if verdict.accepted == len(segment):
            return Commit(segment)
        repaired = yield Repair(Role.STRONG, segment, verdict.accepted)
        return Commit((*segment[: verdict.accepted], cast(Any, repaired)))


STRATEGY_NAMES: tuple[str, ...] = ("strong_only", "weak_only", "step_verification", "spec_agent")


def strategy(name: str, window: int = 4) -> Strategy:
    """The strategy of that name; `window` is for `spec_agent` alone."""
    if window < 1:
        raise InputError(f"window must be >= 1, got {window}")
    match name:
        case "strong_only":
            return OneModel(name, Role.STRONG)
        case "weak_only":
            return OneModel(name, Role.WEAK)
        case "step_verification":
            return SpecAgent(name, 1)
        case "spec_agent":
            return SpecAgent(name, window)
    raise unknown_name("strategy", name, STRATEGY_NAMES)
