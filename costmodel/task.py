"""A trajectory made ready for the evaluators: token counts for both authors, effects, tool times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from costmodel.protocol import Role
from costmodel.trajectory import Effect, Trajectory
from hwprofiles.errors import InputError


@dataclass(frozen=True, slots=True)
class TaskStep:
    """One canonical step.

    `visible` tokens enter the context whoever wrote it; `weak_decoded` and `strong_decoded` are what each model would
    decode for it, thinking included; `observation` tokens follow it.
    """

    index: int
    effect: Effect
    visible: int
    weak_decoded: int
    strong_decoded: int
    observation: int
    tool_s: float

    def decoded(self, role: Role) -> int:
        """Tokens `role` decodes to write this step."""
        return self.weak_decoded if role is Role.WEAK else self.strong_decoded


@dataclass(frozen=True)
class Task:
    """A trajectory's steps, and the context each role starts from (`prompt`), of which `shared` tokens are cached."""

    id: str
    prompts: tuple[tuple[Role, int], ...]
    shared_tokens: int
    steps: tuple[TaskStep, ...]

    @cached_property
    def contexts(self) -> Mapping[Role, tuple[int, ...]]:
        """Prompt length of each role before each step and after the last: prompt + sum (visible + observation)."""
        grown = [s.visible + s.observation for s in self.steps]
        return {role: tuple(accumulate(grown, initial=prompt)) for role, prompt in self.prompts}


@dataclass(frozen=True, slots=True, kw_only=True)
class Authoring:
    """How the two models would write a trace's steps.

    Parameters
    ----------
    thinking_tokens : float or None
        Thinking per step when a model thinks; None takes each step's own from the trace.
    weak_thinks, strong_thinks : bool
        Whether each model thinks before a step. Thinking leaves the context when the step ends.
    verbosity : float or None
        Weak decoded tokens / strong decoded tokens, never below the visible tokens; None: the weak model decodes the
        same visible tokens plus its own thinking.
    weak_prompt_tokens, strong_prompt_tokens : int or None
        First prompt of each role; None takes the trace's.
    shared_prefix_tokens : int
        Leading tokens (system prompt, tool list) that every task finds in the cache.
    """

    thinking_tokens: float | None = None
    weak_thinks: bool = True
    strong_thinks: bool = True
    verbosity: float | None = None
    weak_prompt_tokens: int | None = None
    strong_prompt_tokens: int | None = None
    shared_prefix_tokens: int = 0


def make_task(trajectory: Trajectory, how: Authoring) -> Task:
    """Turn a neutral trajectory into a task.

    An observation that the trace does not state is the growth of the next prompt beyond the step's visible tokens.

    Raises
    ------
    InputError
        Token usage is missing, or the shared prefix is longer than a first prompt.
    """
    steps: list[TaskStep] = []
    for s, after in zip(trajectory.steps, (*trajectory.steps[1:], None), strict=False):
        if s.output_tokens is None or s.prompt_tokens is None:
            raise InputError(
                f"trajectory {trajectory.id!r} step {s.index}: no token usage, so it cannot be priced; "
                "import a trace with usage"
            )
        visible = max(1, s.output_tokens if s.visible_tokens is None else s.visible_tokens)
        own = max(0, s.output_tokens - visible)
        thinking = own if how.thinking_tokens is None else round(how.thinking_tokens)
        strong = visible + (thinking if how.strong_thinks else 0)
        weak = visible + (thinking if how.weak_thinks else 0)
        if how.verbosity is not None:
            weak = max(visible, round(how.verbosity * strong))
        tool_s = s.tool_s if s.tool_s is not None else 0.0
        seen = s.observation_tokens
        if seen is None:
            seen = max(0, after.prompt_tokens - s.prompt_tokens - visible) if after and after.prompt_tokens else 0
        steps.append(TaskStep(len(steps), s.effect, visible, weak, strong, seen, tool_s))
    if not steps:
        raise InputError(f"trajectory {trajectory.id!r} has no steps")
    first = max(1, trajectory.steps[0].prompt_tokens or 1)
    prompts = ((Role.WEAK, how.weak_prompt_tokens or first), (Role.STRONG, how.strong_prompt_tokens or first))
    for role, prompt in prompts:
        if how.shared_prefix_tokens > prompt:
            raise InputError(
                f"shared_prefix_tokens = {how.shared_prefix_tokens} is longer than the first {role} prompt of "
                f"trajectory {trajectory.id!r}, {prompt} tokens; allowed: 0 to {prompt}"
            )
    return Task(trajectory.id, prompts, how.shared_prefix_tokens, tuple(steps))


def make_tasks(trajectories: Sequence[Trajectory], how: Authoring) -> tuple[Task, ...]:
    """Tasks of all trajectories, in order."""
    return tuple(make_task(t, how) for t in trajectories)
