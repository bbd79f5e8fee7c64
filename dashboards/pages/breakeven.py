"""Break-even: where drafting pays, over two parameters; and what the verdict's spread comes from."""

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
from hwprofiles.errors import InputError
from simulator.axis import parse_axis
from simulator.breakeven import MAPPED
from simulator.scenario_file import to_document

PATH, TITLE, PAGE = "/breakeven", "Break-even", "breakeven"
_MOST_CELLS = 10_000
_STRATEGIES = ("spec_agent", "step_verification", "weak_only", "spec_agent_pipelined")


def layout(desk: Desk, asked: Mapping[str, str]) -> Any:
    """The page, its knobs where the URL says."""
    name = query.choice(asked, "scenario", [k for k, _ in desk.shelf.labels()], desk.shelf.first)
    knobs = [
        parts.select(PAGE, "scenario", "Scenario", desk.shelf.labels(), name),
        parts.text(PAGE, "x", "Across", query.text(asked, "x", "acceptance=0.5:0.99:25"), "NAME=LO:HI:N or A,B,C"),
        parts.text(PAGE, "y", "Upwards", query.text(asked, "y", "output_tokens=30:600:15"), "NAME=LO:HI:N or A,B,C"),
        parts.select(
            PAGE,
            "objective",
            "Objective",
            [(o, label(o, OBJECTIVE_LABELS)) for o in MAPPED],
            query.choice(asked, "objective", MAPPED, "time"),
        ),
        parts.select(
            PAGE,
            "strategy",
            "Strategy",
            [(s, label(s, STRATEGY_LABELS)) for s in _STRATEGIES],
            query.choice(asked, "strategy", _STRATEGIES, "spec_agent"),
        ),
        controls(PAGE, "Draw the map"),
    ]
    lead = "The ratio to strong only over two parameters: blue wins, orange loses, the solid line is break-even."
    return parts.page(TITLE, lead, knobs, [html.Div(id="breakeven-answer", className="results")])


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""

    def question(values: Mapping[str, Any]) -> Mapping[str, Any]:
        x, y = (parse_axis(str(values.get(a) or "")) for a in ("x", "y"))
        if len(x.values) * len(y.values) > _MOST_CELLS:
            raise InputError(f"a map here has at most {_MOST_CELLS:,} cells; the command line draws larger ones")
        scenario = desk.shelf.scenario(str(values.get("scenario")))
        return {
            "scenario": to_document(scenario),
            **{k: str(values.get(k)) for k in ("x", "y", "objective", "strategy")},
        }

    register_ask(
        app,
        desk,
        Ask(
            page=PAGE,
            kind="breakeven",
            question=question,
            figures=lambda d: [(f"{label(d['objective'], OBJECTIVE_LABELS)}, ratio to strong only", _map(d))],
            words=_words,
            data=cells,
        ),
    )


def _map(document: Mapping[str, Any]) -> Any:
    return figures.breakeven_map(document)


def _words(document: Mapping[str, Any]) -> list[Any]:
    """How much of the map is on either side."""
    found = pd.Series([v for row in document["verdict"] for v in row]).value_counts(normalize=True)
    shares = {w: f"{100.0 * float(found.get(w, 0.0)):.0f} %" for w in ("wins", "loses", "cannot_tell")}
    strategy = label(document["strategy"], STRATEGY_LABELS)
    return [
        html.P(
            f"{strategy} surely wins in {shares['wins']} of the map, surely loses in {shares['loses']}; "
            f"in {shares['cannot_tell']} nobody can tell."
        )
    ]


def cells(document: Mapping[str, Any]) -> pd.DataFrame:
    """The map as a table, one row per cell."""
    x, y = document["x"], document["y"]
    return pd.DataFrame(
        [
            {x["name"]: b, y["name"]: a}
            | {k: document[k][i][j] for k in ("ratio", "low", "high", "verdict", "decided_by")}
            for i, a in enumerate(y["values"])
            for j, b in enumerate(x["values"])
        ]
    )
