"""The neutral trace: what an agent did, step by step, in whatever format it was recorded.

A *step* is one LLM call of the agent. Token counts that a format does not carry are None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Effect(StrEnum):
    """What a step does to the world."""

    READ = "read"
    """Safe to run while drafting."""
    PURE = "pure"
    """Touches no environment (a calculation, a thought, a harness tool)."""
    WRITE = "write"
    """Changes something: held until a verdict."""
    REPLY = "reply"
    """Seen by the user, so it cannot be taken back: held. The final answer is one."""
    UNKNOWN = "unknown"
    """Not known: held."""


RUNS_FREELY = frozenset({Effect.READ, Effect.PURE})

_STRICTNESS = (Effect.PURE, Effect.READ, Effect.REPLY, Effect.WRITE, Effect.UNKNOWN)


def strictest(effects: list[Effect]) -> Effect:
    """The effect of a step that holds several calls: pure < read < reply < write < unknown."""
    return max(effects, key=_STRICTNESS.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool call of a step; `arguments` is a canonical key for comparing calls, None if not kept."""

    name: str
    effect: Effect
    latency_s: float | None = None
    error: bool | None = None
    arguments: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One LLM call of the agent.

    Parameters
    ----------
    prompt_tokens : int or None
        Whole input, cached part included.
    cached_prompt_tokens : int or None
        The part of it read from a prefix cache; None if unknown, never 0 for unknown.
    output_tokens : int or None
        Tokens decoded, thinking included.
    visible_tokens : int or None
        Tokens that enter the context afterwards (output without thinking).
    observation_tokens : int or None
        Tokens appended after the step and before the next one: tool results and, after a reply, the user's message.
    start_s, end_s : float or None
        Times from the start of the trajectory.
    user_gap_s : float or None
        Time spent waiting for the user before this step; never counted as agent time.
    valid : bool or None
        None unless somebody judged the step.
    """

    index: int
    effect: Effect
    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    output_tokens: int | None = None
    visible_tokens: int | None = None
    observation_tokens: int | None = None
    tools: tuple[ToolCall, ...] = ()
    tool_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    user_gap_s: float | None = None
    model: str | None = None
    valid: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One task as an agent lived it; `missing` names what the source could not tell (usage, times, tools, ...)."""

    id: str
    source_format: str
    domain: str | None = None
    task: str | None = None
    trial: int | None = None
    outcome: float | None = None
    missing: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Trajectories to be planned for, and where they come from.

    `kind` is "trace" for recorded trajectories and "law" for drawn ones.
    """

    name: str
    trajectories: tuple[Trajectory, ...]
    kind: str = "trace"
    source: str = ""
    notes: tuple[str, ...] = field(default=())
