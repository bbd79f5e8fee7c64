"""What is put at risk: damage over steps, windows and hold failures, in all and in excess of strong-only.

A task is damaged when a write harms: it was wrong when it ran, or it ran before its review and was discarded. Steps
beyond the workload's own come in the pattern of a law; `costmodel.chain` gives every probability exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.chain import Fate, reviewed_mean
from costmodel.prediction import Prediction, predict
from hwprofiles.errors import InputError
from simulator.case import Case, prepare
from simulator.gap import Trials, gap_recovered, trials_for
from simulator.risk_patterns import pattern
from simulator.risk_time import time_ratios
from simulator.sampling import draw_samples, inputs
from simulator.scenario import Scenario
from simulator.scenario_file import load_scenario, to_document
from simulator.scenario_goals import HAZARDS
from simulator.success_chain import Odds, Steps, fate_of, odds, step_risks

Array = np.ndarray[Any, np.dtype[np.float64]]

STEPS: tuple[int, ...] = (10, 20, 50, 100, 200)
WINDOWS: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
HOLD_FAILURES: tuple[float, ...] = (0.0, 0.01, 0.05, 0.2)
"""Assumed: nobody has published how often a tool that writes is declared to read."""
DAMAGE_BUDGET = 0.05
MOST_STEPS, MOST_WINDOW = 2000, 64
_SAMPLES = 32
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One point: `excess` is damage above strong-only's, `harms` the expected number of harmful writes."""

    steps: float
    window: int
    hold_failure: float
    damage: Prediction
    excess: Prediction
    harms: Prediction
    success: Prediction

    def to_dict(self) -> dict[str, Any]:
        """Plain values in the layout of the command line's JSON, with intervals beside the numbers."""
        found: dict[str, Any] = {"steps": self.steps, "window": self.window, "hold_failure": self.hold_failure}
        for name, p in (
            ("damage_probability", self.damage),
            ("excess_over_strong_only", self.excess),
            ("expected_harms", self.harms),
            ("success", self.success),
        ):
            found |= {name: p.value, f"{name}_low": p.low, f"{name}_high": p.high}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """The answer of `risk`.

    Parameters
    ----------
    cells : patterns of given lengths x windows x hold failures; `own` the same of the workload's own tasks
    strong_only : rows of the baseline, by steps ("own" last)
    safe : largest safe window per steps and hold failure
    frontier : time against risk per window and hold failure, over the workload's own tasks
    """

    case: Case
    budget: float
    cells: tuple[Cell, ...]
    own: tuple[Cell, ...]
    strong_only: tuple[Mapping[str, Any], ...]
    safe: tuple[Mapping[str, Any], ...]
    frontier: tuple[Mapping[str, Any], ...]
    gap: Prediction | None
    trials: Trials
    notes: tuple[str, ...]
    checks: tuple[Mapping[str, Any], ...] = field(default=())

    def document(self) -> dict[str, Any]:
        """Everything as plain values, in the layout of the command line's JSON."""
        return {
            "cells": [c.to_dict() for c in self.cells],
            "own_tasks": [c.to_dict() for c in self.own],
            "strong_only": [dict(r) for r in self.strong_only],
            "damage_budget": self.budget,
            "largest_safe_window": [dict(s) for s in self.safe],
            "frontier": [dict(f) for f in self.frontier],
            "gap_recovered": self.gap.to_dict() if self.gap else None,
            "trials": self.trials.to_dict(),
            "checks": [dict(c) for c in self.checks],
            "notes": list(self.notes),
            "scenario": to_document(self.case.scenario),
        }


def risk(
    scenario: Scenario | str | Path,
    *,
    steps: Sequence[int] = STEPS,
    windows: Sequence[int] = WINDOWS,
    hold_failures: Sequence[float] = HOLD_FAILURES,
    damage_budget: float = DAMAGE_BUDGET,
    check: int = 0,
) -> Risk:
    """Damage and success of `spec_agent` over task length, window and hold failure, exact, with 90 % intervals.

    P(harm at offset m) = 1 - (1 - w) (1 - f) prod_{l < m} a_l of a write that a failed hold let run while drafting

    Parameters
    ----------
    steps : lengths of tasks in the pattern of the workload's law
    windows : longest drafted segments
    hold_failures : probabilities that a write is taken for a read; [quality].hold_failure_sticky says per what
    damage_budget : damage (and damage in excess of strong-only) that a safe window stays within
    check : trajectories per drawn check (0: none), see `simulator.risk_drawn`

    Raises
    ------
    InputError
        A value out of range, or a scenario that is wrong.

    Limits
    ------
    Of one law's pattern per length. Damage does not fall as the window doubles or hold failure rises; from one window
    to another that is no multiple of it, it may: a write may come to stand first in a segment.
    """
    case = prepare(scenario if isinstance(scenario, Scenario) else load_scenario(scenario))
    _check(steps, windows, hold_failures, damage_budget, check)
    grid = _Grid(case, tuple(windows), tuple(hold_failures))
    cells: list[Cell] = []
    base: list[dict[str, Any]] = []
    for n in steps:
        found, row = grid.cells([pattern(case, n)], n)
        cells += found
        base.append(row)
    tasks = step_risks(case)
    own, row = grid.cells(tasks, float(np.mean([len(t) for t in tasks])))
    base.append({**row, "own": True})
    samples = draw_samples(inputs(case), case.scenario.run.samples, case.scenario.run.seed)
    checks: list[Mapping[str, Any]] = []
    if check:
        from simulator.risk_drawn import checked

        checks = [checked(case, c, check) for c in cells if c.steps == max(steps) and c.hold_failure > 0]
    return Risk(
        case=case,
        budget=damage_budget,
        cells=tuple(cells),
        own=tuple(own),
        strong_only=tuple(base),
        safe=tuple(_safe([*cells, *own], damage_budget)),
        frontier=tuple(_frontier(own, time_ratios(case, tuple(windows), samples))),
        gap=gap_recovered(case, "spec_agent", samples),
        trials=trials_for(case, "spec_agent"),
        notes=_notes(case),
        checks=tuple(checks),
    )


class _Grid:
    """Cells of tasks over windows and hold failures, central and over samples of the hazards."""

    def __init__(self, case: Case, windows: tuple[int, ...], hold_failures: tuple[float, ...]) -> None:
        self.case, self.windows, self.hold_failures = case, windows, hold_failures
        names = (*HAZARDS, "recovery_weak", "recovery_strong", "acceptance")
        known = tuple(i for i in inputs(case) if i.name in names)
        self.samples = draw_samples(known, _SAMPLES, case.scenario.run.seed)

    def cells(self, tasks: Sequence[Steps], steps: float) -> tuple[list[Cell], dict[str, Any]]:
        """Cells of all windows and hold failures, and the row of strong-only."""
        central, spread = (self._fates(tasks, s) for s in (None, self.samples))
        strong, strong_spread = central[0], spread[0]
        found = []
        for at, window in enumerate(self.windows, start=1):
            mid, all_ = central[at], spread[at]
            for i, failure in enumerate(self.hold_failures):
                found.append(
                    Cell(
                        steps=steps,
                        window=window,
                        hold_failure=failure,
                        damage=predict(mid.damage[i, 0], all_.damage[i]),
                        excess=predict(
                            mid.damage[i, 0] - strong.damage[0, 0], all_.damage[i] - strong_spread.damage[0]
                        ),
                        harms=predict(mid.events[i, 0], all_.events[i]),
                        success=predict(mid.success[i, 0], all_.success[i]),
                    )
                )
        row: dict[str, Any] = {"steps": steps}
        for name, attr in (("damage_probability", "damage"), ("expected_harms", "events"), ("success", "success")):
            p = predict(getattr(strong, attr)[0, 0], getattr(strong_spread, attr)[0])
            row |= {name: p.value, f"{name}_low": p.low, f"{name}_high": p.high}
        return found, row

    def _fates(self, tasks: Sequence[Steps], samples: Mapping[str, Array] | None) -> list[Fate]:
        """Strong-only and every window: arrays (n_hold_failures, n_samples)."""
        rates = np.array(self.hold_failures)[:, None]
        o = odds(self.case, samples, max(self.windows), n_steps=max(map(len, tasks)), hold_failure=rates)
        known: dict[Any, Any] = {}
        found = [fate_of(self.case, "strong_only", tasks, o.hazards, 1)]
        found += [reviewed_mean(tasks, k, o.hazards, known) for k in self.windows]
        return [self._over(o, f, len(rates)) for f in found]

    @staticmethod
    def _over(o: Odds, fate: Fate, n: int) -> Fate:
        values = (fate.success, fate.damage, fate.events)
        return Fate(*(o.mean(np.broadcast_to(x, (n, len(o.difficulty)))) for x in values))


def _safe(cells: Sequence[Cell], budget: float) -> list[dict[str, Any]]:
    """Largest window up to which every one tried stays within the budget, by steps and hold failure; None: none."""
    rows = []
    for steps, failure in dict.fromkeys((c.steps, c.hold_failure) for c in cells):
        mine = sorted((c for c in cells if (c.steps, c.hold_failure) == (steps, failure)), key=lambda c: c.window)
        row: dict[str, Any] = {"steps": steps, "hold_failure": failure}
        for name, of in (("window", "damage"), ("window_in_excess", "excess")):
            safe = None
            for c in mine:
                if getattr(c, of).value > budget:
                    break
                safe = c.window
            row[name] = safe
        rows.append(row)
    return rows


def _frontier(own: Sequence[Cell], ratios: Mapping[int, Prediction]) -> list[dict[str, Any]]:
    """Time ratio beside risk; `efficient` where no other window is as fast and as safe, and better in one."""
    rows = []
    for c in own:
        t = ratios[c.window]
        others = [o for o in own if o.hold_failure == c.hold_failure and o is not c]
        beaten = any(
            ratios[o.window].value <= t.value + _EQUAL
            and o.damage.value <= c.damage.value + _EQUAL
            and (ratios[o.window].value < t.value - _EQUAL or o.damage.value < c.damage.value - _EQUAL)
            for o in others
        )
        rows.append(
            {
                **c.to_dict(),
                "time_ratio": t.value,
                "time_ratio_low": t.low,
                "time_ratio_high": t.high,
                "efficient": not beaten,
            }
        )
    return rows


def _notes(case: Case) -> tuple[str, ...]:
    q = case.scenario.quality
    found = [
        "hold failure is per " + ("tool and task (sticky)" if q.hold_failure_sticky else "call"),
        "the time ratio is of idle engines, over a sample of the workload's tasks",
    ]
    if q.judgements is None and q.detection_depth_steps is None:
        found.append("reviews are as good at any depth; set quality.detection_depth_steps or quality.judgements")
    return tuple(found)


def _check(steps: Sequence[int], windows: Sequence[int], failures: Sequence[float], budget: float, check: int) -> None:
    def refuse(name: str, bad: list[Any], allowed: str) -> None:
        raise InputError(f"{name}: {', '.join(f'{b:g}' for b in bad) or 'nothing given'}; allowed: {allowed}")

    lists: tuple[tuple[str, Sequence[float], float, float], ...] = (
        ("steps", steps, 1, MOST_STEPS),
        ("windows", windows, 1, MOST_WINDOW),
        ("hold_failures", failures, 0, 1),
    )
    for name, values, low, high in lists:
        bad = [v for v in values if not low <= v <= high]
        if bad or not values:
            refuse(name, bad, f"{low:g} to {high:g}")
        if len(set(values)) != len(values):
            raise InputError(f"{name}: each value once, got {', '.join(f'{v:g}' for v in values)}")
    if not 0 <= budget <= 1:
        refuse("damage_budget", [budget], "0 to 1")
    if not 0 <= check <= 1_000_000:
        refuse("check", [check], "0 (none) to 1000000 trajectories")
