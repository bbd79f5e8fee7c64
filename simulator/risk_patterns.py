"""Effects of a task of any length: the workload's law says which share writes and replies."""

from __future__ import annotations

from statistics import fmean

import numpy as np

from costmodel.chain import StepRisk
from costmodel.trajectory import Effect
from simulator.case import Case
from simulator.law import WorkloadLaw, law
from simulator.law_fit import fit_law
from simulator.law_steps import effects_of
from simulator.success_chain import Steps, step_risks

_MOST_TOOLS = 4


def pattern(case: Case, n_steps: int) -> Steps:
    """A task of so many steps: reads, writes at the ends of equal stretches, replies in between, a last reply.

    Its writes call as many tools in turn as a writing task of the workload does in the mean (1 to 4).
    """
    u = np.random.default_rng([case.scenario.run.seed, n_steps]).random(n_steps + 2)
    u[-2:] = 0.5  # shares of writes and replies rounded, not drawn
    n_tools = _tools(step_risks(case))
    steps: list[StepRisk] = []
    writes = 0
    for effect in effects_of(_law(case), n_steps, u.tolist()):
        steps.append(StepRisk(effect, f"write{writes % n_tools}"))
        writes += effect is Effect.WRITE
    return tuple(steps)


def _law(case: Case) -> WorkloadLaw:
    w = case.scenario.workload
    if w.law is None:
        return fit_law(case.workload)
    shares = {k: getattr(w, k) for k in ("write_share", "reply_share") if getattr(w, k) is not None}
    return law(w.law).with_(**shares)


def _tools(tasks: tuple[Steps, ...]) -> int:
    used = [len({s.tool for s in task if s.effect is Effect.WRITE}) for task in tasks]
    writing = [n for n in used if n]
    return min(_MOST_TOOLS, max(1, round(fmean(writing)))) if writing else 1
