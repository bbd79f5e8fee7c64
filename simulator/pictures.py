"""Data behind a plan's figures: operating points on the roofline, and one trajectory's timeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.cost import COLUMNS
from costmodel.deployment import Deployment
from costmodel.protocol import Role
from costmodel.walk import forced, walk
from simulator.case import Case
from simulator.outcome import Evaluator, Outcome
from simulator.playing import playing

Wanted = tuple[tuple[str, Role, str, str], ...]
"""Label, role, strategy and phase of operating points."""

POINTS: Wanted = (
    ("draft decode", Role.WEAK, "spec_agent", "draft_decode"),
    ("strong decode", Role.STRONG, "strong_only", "decode"),
    ("verify prefill", Role.STRONG, "spec_agent", "verify_prefill"),
)


def roofline(case: Case, ev: Evaluator, outcomes: Mapping[str, Outcome], wanted: Wanted = POINTS) -> dict[str, Any]:
    """Per-device roofs, and where the passes of `wanted` sit on average."""
    devices, points = [], []
    for role, site in case.sites.items():
        if isinstance(site.server, Deployment):
            devices.append(_device(role, site.server))
    for label, role, name, phase in wanted:
        server = case.sites[role].server
        if isinstance(server, Deployment) and name in outcomes:
            point = _point(ev, outcomes[name], server, role, phase)
            if point:
                points.append({"label": label, "role": str(role), **point})
    return {"devices": devices, "points": points}


def _device(role: Role, dep: Deployment) -> dict[str, Any]:
    assert dep.hardware.bandwidth_bytes_per_s is not None
    return {
        "name": dep.hardware.name,
        "role": str(role),
        "dtype": dep.compute_dtype,
        "peak_flops_per_s": dep.hardware.peak_flops_per_s[dep.compute_dtype].value,
        "bandwidth_bytes_per_s": dep.hardware.bandwidth_bytes_per_s.value,
        "n_devices": dep.n_devices,
    }


def _point(ev: Evaluator, o: Outcome, dep: Deployment, role: Role, phase: str) -> dict[str, Any] | None:
    from costmodel.cost import PHASES

    cell = dict(zip(COLUMNS, o.central.ledger[0, PHASES.index(phase)], strict=True))
    if cell["busy_s"] <= 0:
        return None
    moved = cell["weight_bytes"] + cell["kv_bytes"] + cell["state_bytes"] + cell["activation_bytes"]
    device = _device(role, dep)
    intensity = cell["flops"] / moved
    achieved = cell["flops"] / cell["busy_s"] / dep.n_devices
    ridge = device["peak_flops_per_s"] / device["bandwidth_bytes_per_s"]
    roof = min(device["peak_flops_per_s"], intensity * device["bandwidth_bytes_per_s"])
    bound = "overhead" if achieved < 0.5 * roof else "compute" if intensity > ridge else "memory"
    return {
        "intensity_flops_per_byte": intensity,
        "achieved_flops_per_s": achieved,
        "bound": bound,
    }


def timelines(case: Case, ev: Evaluator, outcomes: Mapping[str, Outcome]) -> list[dict[str, Any]]:
    """One trajectory of median length under strong-only and spec_agent; verdicts drawn with the scenario's seed."""
    order = sorted(range(len(case.tasks)), key=lambda i: (len(case.tasks[i].steps), i))
    task = case.tasks[order[len(order) // 2]]
    rng = np.random.default_rng(case.scenario.run.seed)
    bits = list(rng.random(len(task.steps)) < case.acceptance.value)
    rows: list[dict[str, Any]] = []
    for name in ("strong_only", "spec_agent"):
        if name not in outcomes:
            continue
        path = walk(task, playing(case.scenario, name, outcomes[name].window), forced(bits), ev.pricing, case.sizes)
        rows += [
            {
                "strategy": name,
                "start_s": e.start_s,
                "end_s": e.end_s,
                "lane": e.lane,
                "phase": e.phase,
                "step": e.step,
                "label": f"step {e.step + 1}, {task.steps[e.step].effect}",
            }
            for e in path.events
        ]
    return rows
