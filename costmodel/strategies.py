"""The strategies, each written once in the request language of `costmodel.protocol`; `strategy` finds one by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

from costmodel.adaptive import Adaptive, Rule
from costmodel.overlapping import Pipelined, StepSpeculation
from costmodel.protocol import Commit, Role, Round, Strategy, Toss, View, Write
from costmodel.segment import draft, repair, review
from costmodel.trajectory import Effect
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
class TaskRouter:
    """One model per task, chosen before its first step and kept.

    The weak model gets a task by a coin with probability `share`, whatever the task; or, with `most_steps`, every task
    whose record has at most so many steps: a router that knows the length, which bounds what a real one can do.
    """

    name: str
    share: float
    most_steps: int | None = None

    def round(self, view: View) -> Round:
        """Choose once, then write one step at a time."""
        role = view.memory
        if role is None and self.most_steps is None:
            role = Role.WEAK if (yield Toss(self.share)) else Role.STRONG
        elif role is None:
            if view.length is None:
                raise InputError("router_most_steps needs a recorded task: nobody knows how long a real one will be")
            role = Role.WEAK if view.length <= cast(int, self.most_steps) else Role.STRONG
        step = yield Write(cast(Role, role))
        return Commit((cast(Any, step),), memory=role)


@dataclass(frozen=True, slots=True)
class StepRouter:
    """One model per step: the weak one with a probability that depends on what the step follows.

    `shares` maps the effect of the last committed step ("start" before the first) to the weak model's share. That is
    all this router looks at: it asks no model and does not foresee the step it routes.
    """

    name: str
    shares: Mapping[str, float]

    def round(self, view: View) -> Round:
        """Choose and write one step."""
        share = self.shares["start" if view.last_effect is None else view.last_effect.value]
        step = yield Write(Role.WEAK if (yield Toss(share)) else Role.STRONG)
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
        segment = yield from draft(view, (), self.window)
        accepted = yield from review(segment)
        if accepted == len(segment):
            return Commit(segment)
        return (yield from repair(segment, accepted))


STRATEGY_NAMES: tuple[str, ...] = (
    "strong_only",
    "weak_only",
    "task_router",
    "step_router",
    "step_speculation",
    "step_verification",
    "spec_agent",
    "spec_agent_pipelined",
    "spec_agent_adaptive",
)
"""All strategies, in the order of tables."""

OVERLAPPING: tuple[str, ...] = ("step_speculation", "spec_agent_pipelined")
"""Those in which both models work at the same time."""

FOLLOWS: tuple[str, ...] = ("start", *(effect.value for effect in Effect))
"""What a routed step can follow: nothing, or a committed step of one of the effects."""

AFTER_READS: Mapping[str, float] = MappingProxyType(
    {f: float(f in (Effect.READ.value, Effect.PURE.value)) for f in FOLLOWS}
)
"""The weak model goes on after a read, the strong one opens, follows up on writes and talks to the user; assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Parameters of the strategies beside the window.

    Parameters
    ----------
    router_share, router_most_steps : float, int or None
        See `TaskRouter`.
    router_shares : mapping
        See `StepRouter`; what it does not name is the strong model's.
    adaptive_rule, adaptive_least_window : str, int
        See `Adaptive`; its largest window is the window of `spec_agent`.

    Raises
    ------
    InputError
        A share outside 0 .. 1, an unknown effect, or a least window above the largest.
    """

    router_share: float = 0.5
    router_most_steps: int | None = None
    router_shares: Mapping[str, float] = field(default_factory=lambda: AFTER_READS)
    adaptive_rule: Rule = "rate"
    adaptive_least_window: int = 0

    def __post_init__(self) -> None:
        for name, share in [("router_share", self.router_share), *self.router_shares.items()]:
            if name != "router_share" and name not in FOLLOWS:
                raise unknown_name("what a routed step follows", name, FOLLOWS)
            if not 0.0 <= share <= 1.0:
                raise InputError(f"{name}: a share must be 0 to 1, got {share:g}")


def strategy(name: str, window: int = 4, settings: Settings | None = None) -> Strategy:
    """The strategy of that name; `window` is for the `spec_agent` family, the largest one where it adapts."""
    if window < 1:
        raise InputError(f"window must be >= 1, got {window}")
    s = settings or Settings()
    if not 0 <= s.adaptive_least_window <= window:
        raise InputError(f"adaptive_least_window must be 0 to the window, {window}, got {s.adaptive_least_window}")
    shares = MappingProxyType(dict.fromkeys(FOLLOWS, 0.0) | dict(s.router_shares))
    known: dict[str, Strategy] = {
        "strong_only": OneModel(name, Role.STRONG),
        "token_speculation": OneModel(name, Role.STRONG),
        "weak_only": OneModel(name, Role.WEAK),
        "task_router": TaskRouter(name, s.router_share, s.router_most_steps),
        "step_router": StepRouter(name, shares),
        "step_speculation": StepSpeculation(name),
        "step_verification": SpecAgent(name, 1),
        "spec_agent": SpecAgent(name, window),
        "spec_agent_pipelined": Pipelined(name, window),
        "spec_agent_adaptive": Adaptive(name, s.adaptive_least_window, window, s.adaptive_rule),
    }
    if name not in known:
        raise unknown_name("strategy", name, STRATEGY_NAMES)
    return known[name]
