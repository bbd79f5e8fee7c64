"""Counts and means of trajectories, taken one at a time."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

from costmodel.trajectory import RUNS_FREELY, Effect, Step, Trajectory, Workload

_EFFECTS = (Effect.READ, Effect.PURE, Effect.WRITE, Effect.REPLY, Effect.UNKNOWN)
_NUMBERS = ("steps_per_trajectory", "first_prompt_tokens", "prompt_tokens_per_step", "output_tokens_per_step",
            "observation_tokens_per_step", "step_s", "tool_s", "user_gap_s", "reads_before_a_write",
            "reads_before_a_reply", "calls_per_tool_step")  # fmt: skip


class Tally:
    """Totals of the trajectories added so far, with `spreads` also means and quantiles; keeps only numbers."""

    def __init__(self, *, spreads: bool = True) -> None:
        self._spreads = spreads
        self._n = 0
        self._steps = 0
        self._effects: Counter[Effect] = Counter()
        self._tools: Counter[tuple[str, str]] = Counter()
        self._errors = [0, 0]
        self._tokens: dict[str, int | None] = {"prompt_tokens": None, "output_tokens": None}
        self._cached = [0, 0]
        self._outcomes = array("d")
        self._numbers = {name: array("d") for name in _NUMBERS}

    def add(self, trajectory: Trajectory) -> None:
        """Take one more trajectory."""
        steps = trajectory.steps
        self._n += 1
        self._steps += len(steps)
        if trajectory.outcome is not None:
            self._outcomes.append(trajectory.outcome)
        self._put("steps_per_trajectory", [len(steps)])
        self._put("first_prompt_tokens", [s.prompt_tokens for s in steps[:1]])
        self._put("observation_tokens_per_step", [s.observation_tokens for s in steps[:-1]])
        self._put("reads_before_a_write", _runs(steps, Effect.WRITE))
        self._put("reads_before_a_reply", _runs(steps, Effect.REPLY))
        for step in steps:
            self._step(step)

    def _step(self, step: Step) -> None:
        self._effects[step.effect] += 1
        self._put("prompt_tokens_per_step", [step.prompt_tokens])
        self._put("output_tokens_per_step", [step.output_tokens])
        if step.end_s is not None and step.start_s is not None:
            self._put("step_s", [step.end_s - step.start_s])
        if step.tools:
            self._put("tool_s", [step.tool_s])
            self._put("calls_per_tool_step", [len(step.tools)])
        if step.user_gap_s:
            self._put("user_gap_s", [step.user_gap_s])
        for name in self._tokens:
            value = getattr(step, name)
            if value is not None:
                self._tokens[name] = (self._tokens[name] or 0) + value
        if step.cached_prompt_tokens is not None and step.prompt_tokens is not None:
            self._cached[0] += step.cached_prompt_tokens
            self._cached[1] += step.prompt_tokens
        for call in step.tools:
            self._tools[call.name, call.effect.value] += 1
            if call.error is not None:
                self._errors[0] += call.error
                self._errors[1] += 1

    def _put(self, name: str, values: Iterable[float | None]) -> None:
        if self._spreads:
            self._numbers[name].extend(float(v) for v in values if v is not None)

    def summary(self) -> dict[str, object]:
        """Totals: trajectories, steps by effect, tool calls, tokens (None where no step records any)."""
        return {
            "trajectories": self._n,
            "steps": self._steps,
            "effects": {e.value: self._effects[e] for e in _EFFECTS},
            "tool_calls": self._tools.total(),
            **self._tokens,
        }

    def statistics(self) -> dict[str, object]:
        """Means and quantiles of steps, tokens and times, the runs between held steps, and the tools."""
        spread = {name: _spread(values) for name, values in self._numbers.items()}
        if self._tools and all(effect == Effect.UNKNOWN for _, effect in self._tools):
            spread["reads_before_a_reply"] = None
        ranked = sorted(self._tools.items(), key=lambda kv: (-kv[1], kv[0]))
        return {
            **{name: spread[name] for name in _NUMBERS[:5]},
            "cached_share": self._cached[0] / self._cached[1] if self._cached[1] else None,
            **{name: spread[name] for name in _NUMBERS[5:]},
            "failed_calls_share": self._errors[0] / self._errors[1] if self._errors[1] else None,
            "mean_outcome": math.fsum(self._outcomes) / len(self._outcomes) if self._outcomes else None,
            "tools": [{"name": name, "effect": effect, "calls": n} for (name, effect), n in ranked],
        }


def summary(workload: Workload) -> dict[str, object]:
    """The totals of a workload (see `Tally.summary`)."""
    return _tallied(workload).summary()


def statistics(workload: Workload) -> dict[str, object]:
    """Means and quantiles of a workload (see `Tally.statistics`)."""
    return _tallied(workload).statistics()


def _tallied(workload: Workload) -> Tally:
    tally = Tally()
    for trajectory in workload.trajectories:
        tally.add(trajectory)
    return tally


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    """Mean, median, 90th percentile and number of the values (nearest rank)."""
    if not values:
        return None
    known = sorted(values)
    n = len(known)
    p50, p90 = (known[math.ceil(q * n) - 1] for q in (0.5, 0.9))
    return {"mean": math.fsum(known) / n, "p50": _plain(p50), "p90": _plain(p90), "n": n}


def _plain(value: float) -> float:
    return int(value) if value.is_integer() else value


def _runs(path: Sequence[Step], effect: Effect) -> list[int]:
    """Lengths of the runs of freely running steps right before each step of an effect."""
    found = []
    free = 0
    for step in path:
        if step.effect in RUNS_FREELY:
            free += 1
            continue
        if step.effect is effect:
            found.append(free)
        free = 0
    return found
