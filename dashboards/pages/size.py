"""Plan capacity: the cheapest fleet that holds a service-level objective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash
import pandas as pd
from dash import html

from dashboards import figures, parts, query
from dashboards.desk import Desk
from dashboards.names import STRATEGY_LABELS, label
from dashboards.pages.running import Ask, controls
from dashboards.pages.running import register as register_ask
from dashboards.sizing import fleet_rows
from simulator.scenario_file import to_document
from simulator.slo import parse_rate, parse_slos

PATH, TITLE, PAGE = "/size", "Plan capacity", "size"
_MOST_REPLICAS = 64


def layout(desk: Desk, asked: Mapping[str, str]) -> Any:
    """The page, its knobs where the URL says."""
    name = query.choice(asked, "scenario", [k for k, _ in desk.shelf.labels()], desk.shelf.first)
    knobs = [
        parts.select(PAGE, "scenario", "Scenario", desk.shelf.labels(), name),
        parts.text(
            PAGE,
            "slo",
            "Objective",
            query.text(asked, "slo", "p95 trajectory_s <= 60"),
            "mean, p50, p90, p95 or p99 of trajectory_s or queue_s; several with ;",
        ),
        parts.text(PAGE, "rate", "Tasks to serve", query.text(asked, "rate", "1/s"), "2/s, 120/min or 7200/h"),
        parts.number(
            PAGE,
            "max_replicas",
            "Largest pool",
            (1, _MOST_REPLICAS, 1),
            int(query.number(asked, "max_replicas", 1, _MOST_REPLICAS, 16)),
            "replicas",
        ),
        controls(PAGE, "Find the fleet"),
    ]
    lead = "Every candidate is simulated until its objective is met or missed with confidence; this takes minutes."
    return parts.page(TITLE, lead, knobs, [html.Div(id="size-answer", className="results")])


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""

    def question(values: Mapping[str, Any]) -> Mapping[str, Any]:
        slos = [s.strip() for s in str(values.get("slo") or "").split(";") if s.strip()]
        parse_slos(slos)
        parse_rate(str(values.get("rate") or ""))
        return {
            "scenario": to_document(desk.shelf.scenario(str(values.get("scenario")))),
            "slos": slos,
            "rate": str(values.get("rate")),
            "strategies": [],
            "max_replicas": int(query.clamped(values.get("max_replicas"), 1, _MOST_REPLICAS, 16)),
        }

    register_ask(
        app,
        desk,
        Ask(
            page=PAGE,
            kind="size",
            question=question,
            figures=lambda d: [("Fleets tried", figures.fleets(d))],
            words=_words,
            data=lambda d: pd.DataFrame(
                [{k: v for k, v in f.items() if k not in ("slos", "settings")} for f in d["fleets"]]
            ),
        ),
    )


def _words(document: Mapping[str, Any]) -> list[Any]:
    chosen = document["recommended"]
    said = "No fleet within the limits holds the objective."
    if chosen is not None:
        said = (
            f"{label(chosen['strategy'], STRATEGY_LABELS)} with {chosen['weak_replicas']} weak and "
            f"{chosen['strong_replicas']} strong replicas: {chosen['why']}."
        )
    return [html.P(said), parts.table(fleet_rows(document), "Cheapest fleet of every strategy")]
