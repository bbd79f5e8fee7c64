"""Hardware: an agent’s passes under the roofs of its devices, and from which acceptance drafting pays on others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash
import pandas as pd
from dash import html

from dashboards import figures, parts, query
from dashboards.desk import Desk
from dashboards.knobs import SIDES, changed
from dashboards.names import OBJECTIVE_LABELS, STRATEGY_LABELS, label
from dashboards.operating import operating_points
from dashboards.pages import showing
from dashboards.pages.running import Ask, controls
from dashboards.pages.running import register as register_ask
from dashboards.pages.showing import Shown
from dashboards.pages.sides import side
from dashboards.units import digits, rate_unit, with_unit
from hwprofiles.errors import InputError
from hwprofiles.load import hardware_names
from simulator.scenario import Scenario
from simulator.scenario_file import to_document

PATH, TITLE, PAGE = "/hardware", "Hardware", "hardware"
_STRATEGIES = ("spec_agent", "step_verification", "weak_only")
_OBJECTIVES = ("time", "traffic", "flops", "energy")
_DEVICES = "a100,h100,h200,b200,mi300x,l40s"
_MOST_DEVICES = 12
_ENDS = ("value", "low", "high")


def layout(desk: Desk, asked: Mapping[str, str]) -> Any:
    """The page, its knobs where the URL says, else where the scenario has them."""
    name = query.choice(asked, "scenario", [k for k, _ in desk.shelf.labels()], desk.shelf.first)
    try:
        scenario = desk.shelf.scenario(name)
    except InputError as error:
        return parts.page(TITLE, "", [], [parts.fault(error)])
    known = hardware_names()
    chosen = [d for d in query.text(asked, "devices", _DEVICES).split(",") if d in known][:_MOST_DEVICES]
    knobs = [
        parts.select(PAGE, "scenario", "Scenario", desk.shelf.labels(), name),
        *(k for role in SIDES for k in side(PAGE, role, scenario, asked)),
        parts.select(PAGE, "devices", "Devices of the frontier", [(n, n) for n in known], ",".join(chosen), multi=True),
        parts.select(
            PAGE,
            "objective",
            "Objective of the frontier",
            [(o, label(o, OBJECTIVE_LABELS)) for o in _OBJECTIVES],
            query.choice(asked, "objective", _OBJECTIVES, "time"),
        ),
        parts.select(
            PAGE,
            "strategy",
            "Strategy of the frontier",
            [(s, label(s, STRATEGY_LABELS)) for s in _STRATEGIES],
            query.choice(asked, "strategy", _STRATEGIES, "spec_agent"),
        ),
        controls(PAGE, "Draw the frontier"),
    ]
    lead = (
        "The roofline at once, from four tasks that stand for the workload; on request, the acceptance from which "
        "drafting pays on one device after another, over their balance of compute and memory."
    )
    results = [showing.place(PAGE), html.Div(id="hardware-answer", className="results")]
    return parts.page(TITLE, lead, knobs, results)


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""

    def scenario_of(values: Mapping[str, Any]) -> Scenario:
        return changed(desk.shelf.scenario(str(values.get("scenario"))), values, {})

    def question(values: Mapping[str, Any]) -> Mapping[str, Any]:
        devices = [str(d) for d in values.get("devices") or ()]
        if not devices or len(devices) > _MOST_DEVICES or not set(devices) <= set(hardware_names()):
            raise InputError(f"choose between one and {_MOST_DEVICES} devices")
        return {
            "scenario": to_document(scenario_of(values)),
            "hardware": devices,
            "objective": query.choice(values, "objective", _OBJECTIVES, "time"),
            "strategy": query.choice(values, "strategy", _STRATEGIES, "spec_agent"),
        }

    showing.register(app, PAGE, lambda values: _roofline(scenario_of(values)))
    register_ask(
        app,
        desk,
        Ask(
            page=PAGE,
            kind="balance",
            question=question,
            figures=lambda d: [("Frontier over hardware balance", figures.balance_figure(d))],
            words=lambda d: [
                html.P(
                    f"{label(d['strategy'], STRATEGY_LABELS)}, {label(d['objective'], OBJECTIVE_LABELS).lower()}: it "
                    "pays above its mark. Both models run on the same device, each replica on the fewest that hold it."
                ),
                parts.table(_edges(d), "Acceptance from which drafting pays"),
            ],
            data=_frontier,
        ),
    )


def _roofline(scenario: Scenario) -> Shown:
    found = operating_points(scenario)
    devices, points = pd.DataFrame(found["devices"]), pd.DataFrame(found["points"])
    if devices.empty or points.empty:
        raise InputError("both sides are priced APIs; a roofline is of devices")
    rows: list[dict[str, object]] = [
        {
            "pass": p["label"],
            "intensity": f"{digits(p['intensity_flops_per_byte'])} FLOP/B",
            "speed per device": with_unit(p["achieved_flops_per_s"], rate_unit("FLOP/s", [p["achieved_flops_per_s"]])),
            "of its roof": f"{p['share_of_roof']:.0%}",
            "bound by": p["bound"],
        }
        for p in found["points"]
    ]
    return Shown(
        figures=[("Under the roofline", figures.roofline(devices, points))],
        data=points.merge(devices.rename(columns={"name": "hardware"}), on="role"),
        document={"scenario": to_document(scenario)},
        below=[parts.table(rows, "Operating points")],
    )


def _edges(document: Mapping[str, Any]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for d in document["devices"]:
        row: dict[str, object] = {"device": d["hardware"], "ridge (FLOP/B)": "–", "devices": "–", "pays from": "–"}
        edge = d.get("critical_acceptance") or {}
        if "reason" not in d:
            row["ridge (FLOP/B)"] = digits(d["ridge_flops_per_byte"])
            row["devices"] = " + ".join(f"{n} {role}" for role, n in d["n_devices"].items())
            row["pays from"] = "nowhere" if edge["value"] is None else digits(edge["value"])
        ends = [digits(edge[k]) if edge.get(k) is not None else "none" for k in ("low", "high")]
        row["90 % band, or why not"] = d.get("reason") or " – ".join(ends)
        rows.append(row)
    return rows


def _frontier(document: Mapping[str, Any]) -> pd.DataFrame:
    """One row per device, then one per point of the scaled curve."""
    rows = [*document["devices"], *({"hardware": "first device, compute scaled", **c} for c in document["curve"])]
    return pd.DataFrame(
        [
            {
                "hardware": r["hardware"],
                "ridge_flops_per_byte": r.get("ridge_flops_per_byte"),
                **{f"critical_acceptance_{k}": (r.get("critical_acceptance") or {}).get(k) for k in _ENDS},
                **{f"ratio_{k}": (r.get("ratio") or {}).get(k) for k in _ENDS},
                "reason": r.get("reason", ""),
            }
            for r in rows
        ]
    )
