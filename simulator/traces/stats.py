"""Counts and means of a workload."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from costmodel.trajectory import RUNS_FREELY, Effect, Step, Workload


def summary(workload: Workload) -> dict[str, object]:
    """Totals: trajectories, steps by effect, tool calls, tokens (None where no step records any)."""
    steps = [s for t in workload.trajectories for s in t.steps]
    effects = Counter(s.effect for s in steps)
    return {
        "trajectories": len(workload.trajectories),
        "steps": len(steps),
        "effects": {
            e.value: effects[e] for e in (Effect.READ, Effect.PURE, Effect.WRITE, Effect.REPLY, Effect.UNKNOWN)
        },
        "tool_calls": sum(len(s.tools) for s in steps),
        "prompt_tokens": _total(s.prompt_tokens for s in steps),
        "output_tokens": _total(s.output_tokens for s in steps),
    }


def statistics(workload: Workload) -> dict[str, object]:
    """Means and quantiles of steps, tokens and times, the runs between held steps, and the tools."""
    paths = [t.steps for t in workload.trajectories]
    steps = [s for p in paths for s in p]
    outcomes = [t.outcome for t in workload.trajectories if t.outcome is not None]
    calls = [c for s in steps for c in s.tools]
    errors = [c.error for c in calls if c.error is not None]
    return {
        "steps_per_trajectory": _spread([len(p) for p in paths]),
        "first_prompt_tokens": _spread([p[0].prompt_tokens for p in paths if p]),
        "prompt_tokens_per_step": _spread([s.prompt_tokens for s in steps]),
        "output_tokens_per_step": _spread([s.output_tokens for s in steps]),
        "observation_tokens_per_step": _spread([s.observation_tokens for p in paths for s in p[:-1]]),
        "cached_share": _share(steps),
        "step_s": _spread([s.end_s - s.start_s for s in steps if s.end_s is not None and s.start_s is not None]),
        "tool_s": _spread([s.tool_s for s in steps if s.tools]),
        "user_gap_s": _spread([s.user_gap_s for s in steps if s.user_gap_s]),
        "reads_before_a_write": _spread(_runs(paths, Effect.WRITE)),
        "reads_before_a_reply": _spread(_runs(paths, Effect.REPLY)) if _reads_known(steps) else None,
        "calls_per_tool_step": _spread([len(s.tools) for s in steps if s.tools]),
        "failed_calls_share": sum(errors) / len(errors) if errors else None,
        "mean_outcome": math.fsum(outcomes) / len(outcomes) if outcomes else None,
        "tools": _tools(steps),
    }


def _total(values: Iterable[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _spread(values: Sequence[float | None]) -> dict[str, float] | None:
    """Mean, median, 90th percentile and number of the known values (nearest rank)."""
    known = sorted(v for v in values if v is not None)
    if not known:
        return None
    n = len(known)
    return {
        "mean": math.fsum(known) / n,
        "p50": known[math.ceil(0.5 * n) - 1],
        "p90": known[math.ceil(0.9 * n) - 1],
        "n": n,
    }


def _share(steps: Sequence[Step]) -> float | None:
    """Cached part of the prompt tokens, over the steps that tell."""
    pairs = [
        (s.cached_prompt_tokens, s.prompt_tokens)
        for s in steps
        if s.cached_prompt_tokens is not None and s.prompt_tokens is not None
    ]
    whole = sum(p for _, p in pairs)
    return sum(c for c, _ in pairs) / whole if whole else None


def _runs(paths: Sequence[Sequence[Step]], effect: Effect) -> list[int]:
    """Lengths of the runs of freely running steps right before each step of an effect."""
    found = []
    for path in paths:
        free = 0
        for step in path:
            if step.effect in RUNS_FREELY:
                free += 1
                continue
            if step.effect is effect:
                found.append(free)
            free = 0
    return found


def _reads_known(steps: Sequence[Step]) -> bool:
    """Whether the effect of any tool is known, where there are tools: else no read can be told."""
    effects = {c.effect for s in steps for c in s.tools}
    return not effects or effects != {Effect.UNKNOWN}


def _tools(steps: Sequence[Step]) -> list[dict[str, object]]:
    counts = Counter((c.name, c.effect.value) for s in steps for c in s.tools)
    ranked = sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))
    return [{"name": name, "effect": effect, "calls": n} for (name, effect), n in ranked]
