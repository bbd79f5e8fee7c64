"""A law fitted to recorded trajectories, so that their number of steps and share of writes and replies may be varied.

The form: the step count is 2 + a negative binomial with the mean and variance of the record; effects come in the
recorded shares; tokens are lognormal with the recorded mean of each effect and one spread for all; contexts grow from
the mean first prompt by what the steps add. What is lost: the order of effects, how a trajectory's quantities hang
together, and tails that are no lognormal's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, pstdev
from typing import Any

from costmodel.protocol import Role
from costmodel.task import Authoring, Task, TaskStep, make_tasks
from costmodel.trajectory import Effect, Workload
from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.law import WorkloadLaw
from simulator.memory import keep_law
from simulator.scenario import Scenario
from simulator.scenario_file import from_document, to_document
from simulator.sweep_design import apply

_HELD = (Effect.WRITE, Effect.UNKNOWN)
_FEW = 5
"""A mean of fewer steps than this says nothing of an effect; the mean over all stands for it."""

_TRACE_ONLY = ("trace", "format", "output_tokens", "observation_tokens", "context_tokens")


def fit_law(workload: Workload) -> WorkloadLaw:
    """The law of a workload, by moments.

    mean steps = 2 + m, their variance = m + steps_spread m^2;   sigma^2 = variance of log tokens within an effect

    Steps of unknown effect count as writes (both are held) and pure ones as reads (both run freely).

    Raises
    ------
    InputError
        No trajectory, no token usage, or quantities beyond what a law can hold.
    """
    tasks = make_tasks(workload.trajectories, Authoring())
    steps = [s for t in tasks for s in t.steps]
    inner = [s for t in tasks for s in t.steps[:-1]]
    counts = [len(t.steps) for t in tasks]
    recorded = [s for t in workload.trajectories for s in t.steps]
    tool_s = [s.tool_s for s in steps if s.effect is not Effect.REPLY]
    gaps = [s.user_gap_s for s in recorded if s.user_gap_s]
    calls = [len(s.tools) for s in recorded if s.tools]
    mean = fmean(counts)
    return WorkloadLaw(
        name=f"law of {workload.name}",
        source=f"fitted to {len(tasks)} trajectories of {workload.name}",
        trajectories=len(tasks),
        seed=0,
        steps=mean,
        steps_spread=_spread(mean, pstdev(counts) ** 2),
        output_tokens=_mean(steps, _visible),
        output_sigma=_sigma(steps, _visible),
        write_output=_relative(steps, _visible, _HELD),
        reply_output=_relative(steps, _visible, (Effect.REPLY,)),
        thinking_tokens=_mean(steps, lambda s: s.strong_decoded - s.visible),
        observation_tokens=_mean(inner, _observation),
        observation_sigma=_sigma(inner, _observation),
        write_observation=_relative(inner, _observation, _HELD),
        reply_observation=_relative(inner, _observation, (Effect.REPLY,)),
        context_tokens=fmean(c for t in tasks for c in t.contexts[Role.STRONG][:-1]),
        first_prompt_tokens=_first_prompt(tasks),
        write_share=fmean(s.effect in _HELD for s in steps),
        reply_share=fmean(s.effect is Effect.REPLY for s in steps),
        calls_per_step=fmean(calls) if calls else 1.0,
        tool_latency_s=fmean(tool_s) if tool_s else 0.0,
        tool_latency_sigma=_log_spread([x for x in tool_s if x > 0]),
        user_gap_s=fmean(gaps) if gaps else 0.0,
    )


def as_law(scenario: Scenario) -> tuple[Scenario, tuple[str, ...]]:
    """The scenario with a law fitted to its trace in the trace's place, and what to know about it in words.

    Raises
    ------
    InputError
        The workload is a law already, or cannot be fitted.
    """
    if scenario.workload.law is not None:
        raise InputError("--as-law has no effect: the workload is a law already")
    work = prepare(scenario).workload
    law = fit_law(work)
    changes: dict[str, Any] = {f"workload.{key}": None for key in _TRACE_ONLY}
    changes |= {"tools.latency_s": None, "workload.law": keep_law(law), "workload.n": law.trajectories}
    notes = [
        f"{law.source}: {law.steps:.3g} steps, write share {law.write_share:.2f}, reply share {law.reply_share:.2f}"
    ]
    unknown = sum(s.effect is Effect.UNKNOWN for t in work.trajectories for s in t.steps)
    if unknown:
        notes.append(f"{unknown} steps of unknown effect count as writes")
    document = {k: v for k, v in to_document(scenario).items() if k != "effects"}  # a law has its own
    return from_document(apply(document, changes), "scenario"), tuple(notes)


def _visible(step: TaskStep) -> float:
    return float(step.visible)


def _observation(step: TaskStep) -> float:
    return float(step.observation)


def _spread(mean: float, variance: float) -> float:
    """Spread of the step count beyond Poisson: `(variance - m) / m^2`, m = mean - 2."""
    m = mean - 2
    return max(0.0, (variance - m) / m**2) if m > 0 else 0.0


def _first_prompt(tasks: Sequence[Task]) -> float:
    return fmean(t.contexts[Role.STRONG][0] for t in tasks)


def _mean(steps: Sequence[TaskStep], of: Callable[[TaskStep], float]) -> float:
    return fmean(map(of, steps)) if steps else 0.0


def _relative(steps: Sequence[TaskStep], of: Callable[[TaskStep], float], effects: tuple[Effect, ...]) -> float:
    """Mean over steps of these effects relative to that over steps that read."""
    mine = [s for s in steps if s.effect in effects]
    reads = [s for s in steps if s.effect in (Effect.READ, Effect.PURE)]
    if len(mine) < _FEW or len(reads) < _FEW or _mean(reads, of) == 0:
        return 1.0
    return _mean(mine, of) / _mean(reads, of)


def _sigma(steps: Sequence[TaskStep], of: Callable[[TaskStep], float]) -> float:
    """Lognormal spread with the mean squared over its square mean, within effects: `sigma^2 = log(E x^2 / (E x)^2)`."""
    groups = [
        [of(s) for s in steps if s.effect in effects]
        for effects in ((Effect.READ, Effect.PURE), _HELD, (Effect.REPLY,))
    ]
    found = [(len(g), math.log(fmean(x * x for x in g) / fmean(g) ** 2)) for g in groups if g and any(g)]
    total = sum(n for n, _ in found)
    return math.sqrt(sum(n * v for n, v in found) / total) if total else 0.0


def _log_spread(values: Sequence[float]) -> float:
    return min(5.0, pstdev(map(math.log, values))) if len(values) > 1 else 0.0
