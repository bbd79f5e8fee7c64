"""What a validation came to, as plain values in the layout of the command line's JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from simulator.case import Case
from simulator.scenario_file import to_document
from validate.compare import METRICS, Comparison, errors_of
from validate.report import Validation


def document(case: Case, found: Mapping[str, Validation]) -> dict[str, Any]:
    """Every strategy's run."""
    compared = {n: v.comparison for n, v in found.items() if v.comparison is not None}
    held = [v.proof for v in found.values()]
    pairs = {m: [p for c in compared.values() for p in c.pairs[m]] for m in METRICS} if compared else {}
    n = sum(c.n for c in compared.values())
    return {
        "scenario": to_document(case.scenario),
        "measured": {n: dict(c.measured) for n, c in compared.items()},
        "predicted": {n: {m: p.to_dict() for m, p in c.predicted.items()} for n, c in compared.items()},
        "errors": {m: errors_of(p) for m, p in pairs.items()},
        "in_band": {m: sum(c.in_band[m] * c.n for c in compared.values()) / n for m in pairs},
        "held": {
            "held": sum(p.held for p in held),
            "accepted": sum(p.accepted for p in held),
            "executed_before_verdict": sum(p.executed_before_verdict for p in held),
            "lost": sum(p.lost for p in held),
            "run_twice": sum(p.run_twice for p in held) + sum(v.changed_twice for v in found.values()),
            "unresolved": sum(p.unresolved for p in held),
            "stopped": sum(p.stopped for p in held),
        },
        "phases": {name: v.phases for name, v in found.items()},
        "verdicts": {name: v.verdicts for name, v in found.items() if v.verdicts},
        "shadow": next((v.shadow for v in found.values() if v.shadow), None),
        "strategies": {name: _one(v) for name, v in found.items()},
    }


def _one(v: Validation) -> dict[str, Any]:
    """One strategy's part of the document."""
    status = Counter(p.status for p in v.played)
    return {
        "errors": None if v.comparison is None else {m: dict(e) for m, e in v.comparison.errors.items()},
        "in_band": None if v.comparison is None else dict(v.comparison.in_band),
        "pairs": {"time_s": [] if v.comparison is None else _pairs(v.comparison)},
        "tasks": {
            "played": len(v.played),
            "finished": status["finished"],
            "solved": sum(bool(p.solved) for p in v.played),
            "resumed": sum(p.resumed for p in v.played),
            "status": dict(sorted(status.items())),
        },
        "proof": asdict(v.proof),
    }


def _pairs(c: Comparison) -> list[list[float]]:
    """Measured and predicted time of each task, and its band."""
    return [[*p, *band] for p, band in zip(c.pairs["time_s"], c.bands, strict=True)]
