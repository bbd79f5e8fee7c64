"""Risk: how often a drafted write does damage, over window and task length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash
import pandas as pd
from dash import html

from dashboards import figures, parts, query
from dashboards.desk import Desk
from dashboards.pages.running import Ask, controls
from dashboards.pages.running import register as register_ask
from hwprofiles.errors import InputError
from simulator.scenario_file import to_document

PATH, TITLE, PAGE = "/risk", "Risk", "risk"


def layout(desk: Desk, asked: Mapping[str, str]) -> Any:
    """The page, its knobs where the URL says."""
    name = query.choice(asked, "scenario", [k for k, _ in desk.shelf.labels()], desk.shelf.first)
    knobs = [
        parts.select(PAGE, "scenario", "Scenario", desk.shelf.labels(), name),
        parts.text(
            PAGE,
            "hold_failures",
            "Hold failures",
            query.text(asked, "hold_failures", "0,0.01,0.05"),
            "chances that a write is taken for a read",
        ),
        parts.slider(
            PAGE, "budget", "Damage budget", (0.005, 0.5, 0.005), query.number(asked, "budget", 0.005, 0.5, 0.05)
        ),
        controls(PAGE, "Work out the risk"),
    ]
    lead = "Damage is a harmful write that ran: wrong, or run before its review and then discarded."
    return parts.page(TITLE, lead, knobs, [html.Div(id="risk-answer", className="results")])


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""

    def question(values: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            failures = [float(t) for t in str(values.get("hold_failures") or "").split(",")]
        except ValueError:
            raise InputError("hold failures: expected numbers such as 0,0.05") from None
        if len(failures) > 6:
            raise InputError("hold failures: at most six")
        return {
            "scenario": to_document(desk.shelf.scenario(str(values.get("scenario")))),
            "hold_failures": failures,
            "damage_budget": query.clamped(values.get("budget"), 0.005, 0.5, 0.05),
        }

    register_ask(
        app,
        desk,
        Ask(
            page=PAGE,
            kind="risk",
            question=question,
            figures=figures.risk_figures,
            words=lambda d: [parts.table(_safe(d), f"Largest window within a damage budget of {d['damage_budget']:g}")],
            data=lambda d: pd.DataFrame(list(d["cells"])),
        ),
    )


def _safe(document: Mapping[str, Any]) -> list[dict[str, object]]:
    rows: dict[float, dict[str, object]] = {}
    own = {r["steps"] for r in document["strong_only"] if "own" in r}
    for s in document["largest_safe_window"]:
        row = rows.setdefault(
            s["steps"], {"steps of the task": f"{s['steps']:.4g}" + (" (own tasks)" if s["steps"] in own else "")}
        )
        in_all, excess = s["window"], s["window_in_excess"]
        row[f"hold failure {s['hold_failure']:g}: in all / in excess"] = f"{in_all or 'none'} / {excess or 'none'}"
    return list(rows.values())
