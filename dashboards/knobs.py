"""The knobs of Explore: where a scenario has them, and the scenario with some of them turned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.models import model_names
from dashboards import query
from hwprofiles.load import hardware_names
from simulator.case import Case, prepare
from simulator.scenario import Scenario
from simulator.uncertain import Uncertain

SIDES = ("weak", "strong")
SLIDERS: dict[str, tuple[str, str, tuple[float, float, float], str]] = {
    "acceptance": ("protocol.acceptance", "Acceptance of a drafted step", (0.3, 0.99, 0.01), ""),
    "window": ("protocol.window", "Window", (1, 16, 1), "steps"),
    "verbosity": ("workload.verbosity", "Weak tokens per strong token", (0.25, 4, 0.05), ""),
    "verdict_tokens": ("protocol.verdict_tokens", "Verdict", (1, 200, 1), "tokens"),
    "rtt_ms": ("link.rtt_s", "Round trip between the sites", (0, 500, 5), "ms"),
    "concurrency": ("load.concurrency", "Agents at once", (1, 128, 1), ""),
}
"""Scenario key, words, bounds (low, high, step) and unit of each slider."""


def own_values(scenario: Scenario) -> dict[str, float]:
    """Where a scenario itself has the sliders; those without effect on it are left out."""
    case = prepare(scenario)
    p, work = scenario.protocol, scenario.workload
    ratio = work.verbosity.value if isinstance(work.verbosity, Uncertain) else _verbosity(case)
    found = {
        "acceptance": case.acceptance.value,
        "window": float(p.window),
        "verbosity": ratio,
        "verdict_tokens": p.verdict_tokens.value,
    }
    found["rtt_ms"] = 1e3 * scenario.link.rtt_s.value if scenario.link else 0.0
    if scenario.load.arrival_rate_per_s is None and scenario.load.arrivals is None:
        found["concurrency"] = float(scenario.load.concurrency or 1)
    return {k: _onto(v, SLIDERS[k][2]) for k, v in found.items()}


def changed(scenario: Scenario, values: Mapping[str, Any], own: Mapping[str, float]) -> Scenario:
    """The scenario with those knobs turned that stand elsewhere than `own`; nothing else can be changed.

    Raises
    ------
    InputError
        The scenario cannot be so.
    """
    changes: dict[str, Any] = {}
    for knob, at in own.items():
        key, _, (low, high, step), _ = SLIDERS[knob]
        value = query.clamped(values.get(knob), low, high, at)
        if abs(value - at) > step / 2:
            whole = knob in ("window", "concurrency")
            changes[key] = int(value) if whole else value / 1e3 if knob == "rtt_ms" else value
    if "protocol.acceptance" in changes and scenario.protocol.acceptance_by_position is not None:
        changes["protocol.acceptance_by_position"] = None
    for role in SIDES:
        if getattr(scenario, role).api is not None:
            continue
        for key, known in (("model", model_names()), ("hardware", tuple(hardware_names()))):
            chosen = values.get(f"{role}_{key}")
            if chosen in known:
                changes[f"{role}.{key}"] = chosen
        n = int(query.clamped(values.get(f"{role}_n"), 1, 64, getattr(scenario, role).n_devices))
        if n != getattr(scenario, role).n_devices:
            changes[f"{role}.n_devices"] = n
    return scenario.with_(**changes) if changes else scenario


def _verbosity(case: Case) -> float:
    """Weak over strong decoded tokens of the workload."""
    steps = [s for t in case.tasks for s in t.steps]
    strong = sum(s.strong_decoded for s in steps)
    return sum(s.weak_decoded for s in steps) / strong if strong else 1.0


def _onto(value: float, bounds: tuple[float, float, float]) -> float:
    """The place of a slider that is closest to a value."""
    low, high, step = bounds
    return round(min(max(low + round((value - low) / step) * step, low), high), 6)
