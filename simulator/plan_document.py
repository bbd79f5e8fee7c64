"""A plan as plain values: the JSON document that the command prints, reports show and tests check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from costmodel.cost import PHASES
from hwprofiles.errors import unknown_name
from simulator.baseline import baseline_of
from simulator.outcome import objective_terms, why_unknown
from simulator.provenance import rows as provenance
from simulator.scenario_file import to_document
from simulator.surroundings import load_document
from simulator.verdict import Verdict

if TYPE_CHECKING:
    from simulator.plan import Plan

_NOTE = (
    "Intervals are 90 % bands over the inputs' tiers (quasi-Monte-Carlo); they do not cover how a different set of "
    "tasks would differ."
)


def plan_document(plan: Plan) -> dict[str, Any]:
    """Everything a plan says."""
    return {
        "scenario": to_document(plan.case.scenario),
        "title": plan.case.scenario.title,
        "load": load_document(plan.case.scenario.load, plan.case.arrival_rate_per_s),
        "acceptance_rung": plan.case.rung,
        "strategies": [_strategy(plan, name) for name in plan.outcomes],
        "baseline": baseline_of(tuple(plan.outcomes)),
        "ratios_to_strong_only": {
            n: {k: p.to_dict() if p else None for k, p in row.items()} for n, row in plan.ratios.items()
        },
        "verdicts": {k: _verdict(v) for k, v in plan.verdicts.items()},
        "recommended": dict(plan.recommended),
        "settle": list(plan.settle),
        "windows": [dict(w) for w in plan.windows],
        "phases": phase_rows(plan),
        **plan.pictures,
        "provenance": provenance(plan.case),
        "warnings": list(plan.warnings),
        "interval_note": _NOTE,
    }


def _strategy(plan: Plan, name: str) -> dict[str, Any]:
    """One row of the table; a cell that cannot be known is null, and `reason` (by column: `reasons`) says why."""
    o, row, reasons = plan.outcomes[name], plan.predictions[name], dict(plan.reasons[name])
    return {
        "name": name,
        "window": o.window if name.startswith("spec_agent") else None,
        "method": "simulated" if o.simulated or o.tape is None else "expected",
        "time_bound_s": o.bound_s,
        **{k: p.to_dict() if p else None for k, p in row.items()},
        "reason": "; ".join(dict.fromkeys(reasons.values())) or None,
        "reasons": reasons,
        "tiers": list(next(p.tiers for p in row.values() if p)),
    }


def _verdict(v: Verdict) -> dict[str, Any]:
    r = v.ratio
    return {
        "strategy": v.strategy,
        "verdict": v.verdict,
        "ratio": r.value if r else None,
        "low": r.low if r else None,
        "high": r.high if r else None,
        "because": list(v.because),
        "critical": dict(v.critical),
    }


def phase_rows(plan: Plan) -> list[dict[str, Any]]:
    """Seconds, bytes and FLOPs per task of every phase, a row per strategy and phase; None: cannot be known."""
    rows = []
    for name, o in plan.outcomes.items():
        terms = {k: objective_terms(plan.case, o, k, central=True, samples={}) for k in ("time", "traffic", "flops")}
        for phase in PHASES:
            found = {k: float(np.ravel(t.get(phase, 0.0))[0]) for k, t in terms.items()}
            if any(found.values()):
                rows.append(
                    {
                        "strategy": name,
                        "phase": phase,
                        "time_s": found["time"],
                        "traffic_bytes": None if why_unknown(plan.case, name, "traffic") else found["traffic"],
                        "flops": None if why_unknown(plan.case, name, "flops") else found["flops"],
                    }
                )
    return rows


def phase_table(plan: Plan, quantity: str) -> Any:
    """A quantity per task as a DataFrame: a row per phase and their total, a column per strategy; NaN: not known.

    Seconds have 3 decimals, the rest 3 significant digits; phases of which nothing is left are left out.

    Raises
    ------
    InputError
        An unknown quantity.
    """
    import pandas as pd

    known = ("time_s", "traffic_bytes", "flops")
    if quantity not in known:
        raise unknown_name("quantity", quantity, known)
    names = sorted(plan.outcomes, key=lambda n: n != "strong_only")
    rows = phase_rows(plan)
    cells = {(r["phase"], r["strategy"]): r[quantity] for r in rows}
    unknown = {r["strategy"] for r in rows if r[quantity] is None}
    phases = [p for p in PHASES if any(cells.get((p, n)) for n in names)]
    found = {n: [float("nan") if n in unknown else cells.get((p, n), 0.0) for p in phases] for n in names}
    table = pd.DataFrame(found, index=pd.Index(phases, name=quantity), dtype=float)
    table.loc["total"] = table.sum(skipna=False)
    table = table.round(3) if quantity == "time_s" else table.map(lambda x: float(f"{x:.3g}"))
    return table[(table != 0).any(axis=1)]
