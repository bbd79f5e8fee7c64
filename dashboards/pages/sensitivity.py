"""Sensitivity: which inputs the spread of a verdict comes from, and what to measure first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash
import pandas as pd
from dash import html

from dashboards import figures, parts, query
from dashboards.desk import Desk
from dashboards.names import OBJECTIVE_LABELS, STRATEGY_LABELS, label
from dashboards.pages.running import Ask, controls
from dashboards.pages.running import register as register_ask
from simulator.scenario_file import to_document

PATH, TITLE, PAGE = "/sensitivity", "Sensitivity", "sensitivity"
_STRATEGIES = ("spec_agent", "step_verification", "weak_only")


def layout(desk: Desk, asked: Mapping[str, str]) -> Any:
    """The page, its knobs where the URL says."""
    name = query.choice(asked, "scenario", [k for k, _ in desk.shelf.labels()], desk.shelf.first)
    knobs = [
        parts.select(PAGE, "scenario", "Scenario", desk.shelf.labels(), name),
        parts.select(
            PAGE,
            "strategy",
            "Strategy",
            [(s, label(s, STRATEGY_LABELS)) for s in _STRATEGIES],
            query.choice(asked, "strategy", _STRATEGIES, "spec_agent"),
        ),
        controls(PAGE, "Find what matters"),
    ]
    lead = (
        "Which uncertain input the spread of each ratio comes from, and the one measurement that would narrow it most."
    )
    return parts.page(TITLE, lead, knobs, [html.Div(id="sensitivity-answer", className="results")])


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""
    register_ask(
        app,
        desk,
        Ask(
            page=PAGE,
            kind="sensitivity",
            question=lambda v: {
                "scenario": to_document(desk.shelf.scenario(str(v.get("scenario")))),
                "strategy": str(v.get("strategy")),
            },
            figures=lambda d: [(label(o, OBJECTIVE_LABELS), figures.tornado(d, o)) for o in d["objectives"]],
            words=lambda d: [html.Ul([html.Li(f["advice"]) for f in d["objectives"].values()])],
            data=lambda d: pd.DataFrame(
                [{"objective": o} | dict(s) for o, f in d["objectives"].items() for s in f["sources"]]
            ),
        ),
    )
