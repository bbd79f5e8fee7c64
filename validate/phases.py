"""Where the time went, measured and predicted, by families of phases that a client can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel.cost import COLUMNS, PHASES
from costmodel.pricing import Pricing
from simulator.results import RunResult
from validate.compare import Path, walk_of

WAITS = ("host", "network", "queue")
DECODES = ("decode", "draft_decode", "verdict_decode", "repair_decode")
FAMILIES = ("first_token", *DECODES, "tool", "wasted")
"""`first_token`: from sending a request to its first token, whatever the server does meanwhile."""

_WALL = COLUMNS.index("wall_s")


def family_of(phase: str) -> str:
    """The family of a phase of the ledger."""
    if phase in DECODES or phase == "tool":
        return phase
    return "wasted" if phase.startswith("wasted") else "first_token"


def measured_phases(run: RunResult) -> dict[str, float]:
    """Seconds of each family per finished trajectory that counts; requests beside each other count both."""
    trajectories = run.trajectories
    chosen = trajectories[trajectories["counted"] & (trajectories["status"] == "finished")]["trajectory"]
    phases = run.frames["phases"]
    mine = phases[phases["trajectory"].isin(set(chosen))]
    found = dict.fromkeys(FAMILIES, 0.0)
    for phase, seconds in mine.groupby("phase")["wall_s"].sum().items():
        found[family_of(str(phase))] += float(seconds) / max(1, len(chosen))
    return found


def predicted_phases(found: Sequence[Path], how: Any, pricing: Pricing) -> dict[str, float]:
    """The same of measured paths walked through the cost model."""
    total = np.mean([walk_of(p, how, pricing).ledger[:, _WALL] for p in found], axis=0)
    out = dict.fromkeys(FAMILIES, 0.0)
    for phase, seconds in zip(PHASES, total, strict=True):
        out[family_of(phase)] += float(seconds)
    return out


def beside(measured: dict[str, float], predicted: dict[str, float]) -> dict[str, dict[str, float]]:
    """Both by family, where either has any time."""
    return {
        name: {"measured_s": measured[name], "predicted_s": predicted[name]}
        for name in FAMILIES
        if measured[name] > 0 or predicted[name] > 0
    }
