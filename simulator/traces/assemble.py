"""From what a source recorded to neutral steps: effects, tokens that enter the context, tool time, times from zero."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from costmodel.trajectory import Effect, Step, ToolCall, Trajectory, strictest
from simulator.effects import EffectMap
from simulator.traces.raw import RawCall, RawStep, RawTrajectory, Warnings, argument_key
from simulator.traces.values import count, optional

_MAX_ID = 1000
PAUSE_S = 120.0
"""A step longer than this is named in a warning: rate-limit pauses of minutes occur in recorded traces."""


def assemble(raw: RawTrajectory, *, source_format: str, effects: EffectMap, warnings: Warnings) -> Trajectory:
    """The neutral trajectory of a recorded one."""
    missing = set(raw.missing) | ({"outcome"} if raw.outcome is None else set())
    zero = next((s.start_s for s in raw.steps if s.start_s is not None), None)
    steps = []
    for index, step in enumerate(raw.steps):
        after = raw.steps[index + 1] if index + 1 < len(raw.steps) else None
        steps.append(_step(index, step, after, zero, raw.declared, effects, warnings, missing))
    return Trajectory(
        id=raw.id,
        source_format=source_format,
        domain=raw.domain,
        task=raw.task,
        trial=raw.trial,
        outcome=raw.outcome,
        missing=tuple(sorted(missing)),
        steps=tuple(steps),
    )


def _step(
    index: int,
    raw: RawStep,
    after: RawStep | None,
    zero: float | None,
    declared: str | None,
    effects: EffectMap,
    warnings: Warnings,
    missing: set[str],
) -> Step:
    for name, total in (("prompt", raw.prompt_tokens), ("output", raw.output_tokens)):
        optional(count, total, f"{raw.where}: {name} tokens with all their parts")
    if raw.prompt_tokens == 0 and not raw.output_tokens:
        warnings.add("zero tokens in and out are no count: taken as unknown", raw.where)
        raw.prompt_tokens = raw.output_tokens = raw.cached_tokens = raw.thinking_tokens = None
    if raw.prompt_tokens is None or raw.output_tokens is None:
        missing.add("usage")
    if raw.cached_tokens is None:
        missing.add("cache")
    cached = raw.cached_tokens
    if cached is not None and raw.prompt_tokens is not None and cached > raw.prompt_tokens:
        warnings.add("cached tokens exceed the prompt; taken as unknown", raw.where)
        missing.add("cache")
        cached = None
    if raw.thinking_tokens is None:
        missing.add("thinking")
    if not raw.told:
        missing.add("content")
    tools = tuple(_call(call, declared, effects) for call in raw.calls)
    visible, observation = _context(raw, after, warnings)
    start, end = _times(raw, zero, warnings, missing)
    return Step(
        index=index,
        effect=_effect(raw, tools),
        prompt_tokens=raw.prompt_tokens,
        cached_prompt_tokens=cached,
        output_tokens=raw.output_tokens,
        visible_tokens=visible,
        observation_tokens=observation,
        tools=tools,
        tool_s=_tool_time(raw.calls, missing) if raw.told or raw.calls or raw.spoke else None,
        start_s=start,
        end_s=end,
        user_gap_s=raw.user_gap_s,
        model=raw.model,
    )


def _call(raw: RawCall, declared: str | None, effects: EffectMap) -> ToolCall:
    effect, _ = effects.classify(raw.name, raw.arguments, declared=declared)
    latency = raw.latency_s
    if latency is None and raw.start_s is not None and raw.end_s is not None and raw.end_s >= raw.start_s:
        latency = raw.end_s - raw.start_s
    key = argument_key(raw.arguments)
    return ToolCall(name=raw.name, effect=effect, latency_s=latency, error=raw.error, arguments=key)


def _effect(raw: RawStep, tools: Sequence[ToolCall]) -> Effect:
    """A step's effect: the strictest of its calls and of the text that the user sees."""
    found = [t.effect for t in tools]
    if raw.spoke:
        found.append(Effect.REPLY)
    if not found:
        return Effect.PURE if raw.told else Effect.UNKNOWN
    return strictest(found)


def _context(raw: RawStep, after: RawStep | None, warnings: Warnings) -> tuple[int | None, int | None]:
    """Visible tokens c_j and observation o_j = P_{j+1} - P_j - c_j of a step; None where the source has no tokens."""
    if raw.output_tokens is None:
        return None, None
    thinking = raw.thinking_tokens or 0
    if thinking > raw.output_tokens:
        warnings.add("thinking tokens exceed the output; visible output taken as 0", raw.where)
    visible = max(0, raw.output_tokens - thinking)
    if after is None:
        return visible, 0
    if raw.prompt_tokens is None or after.prompt_tokens is None:
        return visible, None
    growth = after.prompt_tokens - raw.prompt_tokens
    if growth < 0:
        warnings.add("the next prompt is shorter (compaction or another agent): observation taken as 0", raw.where)
        return visible, 0
    if growth < visible:
        warnings.add(
            "the next prompt grew by less than the visible output: visible output cut to the growth", raw.where
        )
        return growth, 0
    return visible, growth - visible


def _times(
    raw: RawStep, zero: float | None, warnings: Warnings, missing: set[str]
) -> tuple[float | None, float | None]:
    if raw.start_s is None or raw.end_s is None or zero is None:
        missing.add("times")
        return None, None
    if raw.end_s < raw.start_s:
        warnings.add("a step ends before it starts; its times are left out", raw.where)
        missing.add("times")
        return None, None
    if raw.end_s - raw.start_s > PAUSE_S:
        warnings.add(f"a step took over {PAUSE_S:g} s, perhaps a rate-limit pause; kept as recorded", raw.where)
    if raw.start_s < zero:
        warnings.add("a step starts before the first one; its times are left out", raw.where)
        missing.add("times")
        return None, None
    return raw.start_s - zero, raw.end_s - zero


def _tool_time(calls: Sequence[RawCall], missing: set[str]) -> float | None:
    """Length of the union of the calls' spans, or of their sequence where only durations are known; 0 without calls."""
    spans = sorted((c.start_s, c.end_s) for c in calls if c.start_s is not None and c.end_s is not None)
    known = [c for c in calls if c.latency_s is not None or (c.start_s is not None and c.end_s is not None)]
    if len(known) < len(calls):
        missing.add("tool_times")
        if not known:
            return None
    if len(spans) < len(known):
        return sum(c.latency_s or 0.0 for c in known)
    total, reached = 0.0, float("-inf")
    for begin, end in spans:
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


class Distinct:
    """Numbers trajectories that share an id, so that each is its own."""

    def __init__(self, warnings: Warnings) -> None:
        self._warnings = warnings
        self._shared: Counter[str] = Counter()
        self._taken: set[str] = set()

    def name(self, raw: RawTrajectory) -> None:
        """Give the trajectory an id that none before it has."""
        if raw.numbered:
            return
        if len(raw.id) > _MAX_ID:
            digits = hashlib.sha256(raw.id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
            raw.id = f"{raw.id[:_MAX_ID]}~{digits}"
        base = raw.id
        if base in self._taken:
            self._warnings.add("several trajectories share an id; numbered", base)
            self._shared[base] += 1
            n = self._shared[base] + 1
            while f"{base}~{n}" in self._taken:
                n += 1
            raw.id = f"{base}~{n}"
        self._taken.add(raw.id)
