"""Time of `spec_agent` relative to strong-only by window, over a few of the workload's tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.prediction import Prediction
from costmodel.task import Task
from costmodel.trajectory import RUNS_FREELY
from hwprofiles.errors import InputError
from simulator.case import Case, spread_over_length
from simulator.outcome import Evaluator
from simulator.verdict import ratio

Array = np.ndarray[Any, np.dtype[np.float64]]

_TASKS = 8


def time_ratios(case: Case, windows: tuple[int, ...], samples: Mapping[str, Array]) -> dict[int, Prediction]:
    """Expected time ratio on idle engines with its 90 % interval, by window.

    Raises
    ------
    InputError
        The time of strong-only is zero.
    """
    few = _fewer(case)
    ev = Evaluator(few, samples)
    base = ev.outcome("strong_only", few.scenario.protocol.window)
    longest = max(_longest_segment(task) for task in few.tasks)
    found: dict[int, Prediction] = {}
    for window in sorted({min(w, longest) for w in windows}):
        outcome = ev.outcome("step_verification" if window == 1 else "spec_agent", window)
        r = ratio(few, ev, outcome, base, "time")
        if r is None:
            raise InputError("strong_only takes no time, so there is no ratio to it")
        found[window] = r
    return {w: found[min(w, longest)] for w in windows}


def _longest_segment(task: Task) -> int:
    """Most steps that any window lets the weak model draft."""
    longest = run = 0
    for step in task.steps:
        run += 1
        longest = max(longest, run)
        if step.effect not in RUNS_FREELY:
            run = 0
    return longest


def _fewer(case: Case) -> Case:
    """The case with some of its tasks, evenly spread over their length."""
    if len(case.tasks) <= _TASKS:
        return case
    chosen = spread_over_length(case.tasks, _TASKS)
    work = replace(case.workload, trajectories=tuple(case.workload.trajectories[i] for i in chosen))
    return replace(case, tasks=tuple(case.tasks[i] for i in chosen), workload=work)
