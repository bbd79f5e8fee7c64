"""Workloads by name or path, and rescaling them to other means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from costmodel.trajectory import Step, Trajectory, Workload
from hwprofiles.errors import InputError, nearest
from simulator.law import draw, law, law_names
from simulator.memory import PREFIX, kept, kept_names

_BUNDLED = {
    "retail": "retail-gpt-4.1-mini",
    "retail-gpt-4.1-mini": "retail-gpt-4.1-mini",
    "retail-gemini-3-flash": "retail-gemini-3-flash",
    "airline": "airline",
}


def workload_names() -> tuple[str, ...]:
    """Names that need no file: bundled recordings, bundled laws, then what this process holds in memory."""
    return (*_BUNDLED, *law_names(), *kept_names())


def workload(name_or_path: str | Path) -> Workload:
    """A bundled workload by name, or the trace in a file or folder (its format is told from the content).

    Raises
    ------
    InputError
        If it is neither, or the trace cannot be read.
    """
    name = str(name_or_path)
    if name in _BUNDLED:
        return _bundled(_BUNDLED[name])
    if name in law_names():
        return draw(law(name))
    if name.startswith(PREFIX):
        return kept(name)
    from simulator.traces import read_trace

    path = Path(name_or_path)
    if not path.exists():
        hint = nearest(name, workload_names())
        tail = f"did you mean {hint!r}?" if hint else f"bundled are {', '.join(workload_names())}"
        raise InputError(f"workload {name!r} is neither a bundled name nor a file; {tail}")
    return read_trace([path]).workload


@cache
def _bundled(name: str) -> Workload:
    from simulator.traces import read_trace

    with as_file(files("simulator").joinpath(f"data/workloads/{name}.json")) as path:
        return read_trace([path]).workload


def rescale(
    workload: Workload,
    *,
    output_tokens: float | None = None,
    observation_tokens: float | None = None,
    context_tokens: float | None = None,
    tool_latency_s: float | None = None,
) -> Workload:
    """The workload with every step changed by one factor, so that a mean becomes the given value.

    Parameters
    ----------
    output_tokens : float, optional
        Mean tokens decoded per step, thinking included; the visible part keeps its share.
    observation_tokens : float, optional
        Mean tokens that follow a step, over the steps that are not the last of their trajectory.
    context_tokens : float, optional
        Mean prompt tokens per step, reached by scaling the first prompts.
    tool_latency_s : float, optional
        Mean tool time of the steps that have tools (a constant where no time is known or all are 0).

    Raises
    ------
    InputError
        If a value is out of range, the workload has no such quantity, or the context cannot be that small.

    Notes
    -----
    Counts stay whole: rounding errors are carried along, so a mean is met to half a token over the number of steps.
    Prompts follow P_{j+1} = P_j + visible_j + observation_j. Recorded times no longer hold and are dropped.
    """
    paths = [list(t.steps) for t in workload.trajectories]
    if output_tokens is not None:
        _scale_output(paths, _checked("output_tokens", output_tokens, least=1))
    if observation_tokens is not None:
        _scale_observation(paths, _checked("observation_tokens", observation_tokens, least=0))
    if tool_latency_s is not None:
        _scale_tools(paths, _checked("tool_latency_s", tool_latency_s, least=0))
    if output_tokens is not None or observation_tokens is not None or context_tokens is not None:
        context = None if context_tokens is None else _checked("context_tokens", context_tokens, least=1)
        _rebuild_prompts(paths, workload.trajectories, context)
    elif tool_latency_s is None:
        return workload
    done = (_with_steps(t, steps) for t, steps in zip(workload.trajectories, paths, strict=True))
    return replace(workload, trajectories=tuple(done))


def _with_steps(trajectory: Trajectory, steps: list[Step]) -> Trajectory:
    timeless = tuple(replace(s, start_s=None, end_s=None) for s in steps)
    return replace(trajectory, steps=timeless, missing=tuple(sorted({*trajectory.missing, "times"})))


def _checked(name: str, value: float, *, least: float) -> float:
    if not math.isfinite(value) or not least <= value <= 1e8:
        raise InputError(f"{name} = {value!r} is outside {least:g} to 1e8")
    return value


def _whole(values: Sequence[int], factor: float) -> list[int]:
    """`values` times `factor` as whole numbers whose running sums are rounded, not each of them."""
    scaled, total, before = [], 0.0, 0
    for value in values:
        total += value * factor
        now = math.floor(total + 0.5)
        scaled.append(now - before)
        before = now
    return scaled


def _factor(name: str, values: Sequence[float], mean: float) -> float:
    total = math.fsum(values)
    if not values or total <= 0:
        raise InputError(f"{name} cannot be set: the workload records none")
    return mean * len(values) / total


def _scale_output(paths: list[list[Step]], mean: float) -> None:
    at = [(i, j, s.output_tokens) for i, p in enumerate(paths) for j, s in enumerate(p) if s.output_tokens is not None]
    values = [v for _, _, v in at]
    for (i, j, old), new in zip(at, _whole(values, _factor("output_tokens", values, mean)), strict=True):
        step = paths[i][j]
        visible = step.visible_tokens
        if visible is not None:
            visible = min(new, round(new * visible / old)) if old else new
        paths[i][j] = replace(step, output_tokens=new, visible_tokens=visible)


def _scale_observation(paths: list[list[Step]], mean: float) -> None:
    at = [
        (i, j, s.observation_tokens)
        for i, p in enumerate(paths)
        for j, s in enumerate(p[:-1])
        if s.observation_tokens is not None
    ]
    values = [v for _, _, v in at]
    for (i, j, _), new in zip(at, _whole(values, _factor("observation_tokens", values, mean)), strict=True):
        paths[i][j] = replace(paths[i][j], observation_tokens=new)


def _scale_tools(paths: list[list[Step]], mean: float) -> None:
    used = [(i, j, s) for i, p in enumerate(paths) for j, s in enumerate(p) if s.tools]
    if not used:
        raise InputError("tool_latency_s cannot be set: no step of the workload calls a tool")
    known = [s.tool_s for _, _, s in used if s.tool_s is not None]
    factor = mean * len(known) / math.fsum(known) if math.fsum(known) > 0 else None
    for i, j, step in used:
        if factor is None or step.tool_s is None:
            tools = tuple(replace(t, latency_s=mean / len(step.tools)) for t in step.tools)
            paths[i][j] = replace(step, tool_s=mean, tools=tools)
        else:
            tools = tuple(
                replace(t, latency_s=None if t.latency_s is None else t.latency_s * factor) for t in step.tools
            )
            paths[i][j] = replace(step, tool_s=step.tool_s * factor, tools=tools)


def _rebuild_prompts(paths: list[list[Step]], before: Sequence[Trajectory], context: float | None) -> None:
    """Prompts from the first ones on; a recorded fall (compaction) keeps its ratio."""
    firsts = [t.steps[0].prompt_tokens if t.steps else None for t in before]
    if any(first is None for first in firsts):
        raise InputError("the workload has steps without token counts, so its prompts cannot be rescaled")
    starts = [first or 0 for first in firsts]
    if context is not None:
        starts = _scaled_starts(paths, before, starts, context)
    for path, old, start in zip(paths, before, starts, strict=True):
        for j, prompt in enumerate(_prompts(path, old.steps, start)):
            step = path[j]
            was = old.steps[j].prompt_tokens
            cached = step.cached_prompt_tokens
            if cached is not None and was:
                cached = min(prompt, cached * prompt // was)
            path[j] = replace(step, prompt_tokens=prompt, cached_prompt_tokens=cached)


def _prompts(path: Sequence[Step], old: Sequence[Step], start: float) -> list[int]:
    found: list[int] = []
    at = start
    for j, step in enumerate(path):
        found.append(round(at))
        at += (step.visible_tokens or 0) + (step.observation_tokens or 0)
        if j + 1 < len(old):
            whole = (old[j].prompt_tokens or 0) + (old[j].visible_tokens or 0) + (old[j].observation_tokens or 0)
            next_prompt = old[j + 1].prompt_tokens or 0
            if next_prompt < whole:
                at *= next_prompt / whole
    return found


def _scaled_starts(
    paths: list[list[Step]], before: Sequence[Trajectory], starts: list[int], context: float
) -> list[int]:
    """First prompts scaled by the one factor that gives the mean prompt; prompts are affine in that factor."""
    total = sum(len(p) for p in paths)

    def mean(factor: float) -> float:
        prompts = (_prompts(p, t.steps, s * factor) for p, t, s in zip(paths, before, starts, strict=True))
        return math.fsum(math.fsum(row) for row in prompts) / total

    at_zero, at_one = mean(0.0), mean(1.0)
    if context <= at_zero or at_one <= at_zero:
        raise InputError(f"context_tokens = {context:g} is less than what the steps add; it must be over {at_zero:.0f}")
    return [max(1, n) for n in _whole(starts, (context - at_zero) / (at_one - at_zero))]
