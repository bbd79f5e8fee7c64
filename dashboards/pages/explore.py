"""Explore: turn the knobs of a scenario and watch the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash
import pandas as pd
import plotly.graph_objects as go
from dash import ALL, Input, Output, State, dcc, html

from costmodel.models import model_names
from dashboards import figures, parts, query
from dashboards.desk import Desk
from dashboards.knobs import SIDES, SLIDERS, changed, own_values
from dashboards.names import OBJECTIVE_LABELS, STRATEGY_LABELS, label
from dashboards.pages.running import Ask, controls
from dashboards.pages.running import register as register_ask
from dashboards.saving import KINDS, saved
from dashboards.uploads import MOST_BYTES, take
from hwprofiles.errors import InputError
from hwprofiles.load import hardware_names
from simulator.outcome import OBJECTIVES
from simulator.scenario import Scenario

PATH, TITLE, PAGE = "/", "Explore", "explore"
_AS_IS = "as-is"


def layout(desk: Desk, asked: Mapping[str, str]) -> Any:
    """The page, its knobs where the URL says, else where the scenario has them."""
    name = query.choice(asked, "scenario", [k for k, _ in desk.shelf.labels()], desk.shelf.first)
    try:
        own = own_values(desk.shelf.scenario(name))
    except InputError as error:
        return parts.page(TITLE, "", [], [parts.fault(error)])
    scenario = desk.shelf.scenario(name)
    knobs = [
        parts.select(PAGE, "scenario", "Scenario", desk.shelf.labels(), name),
        *(k for role in SIDES for k in _side(role, scenario, asked)),
        *(
            parts.slider(PAGE, knob, words, bounds, query.number(asked, knob, *bounds[:2], own[knob]), unit)
            for knob, (_, words, bounds, unit) in SLIDERS.items()
            if knob in own
        ),
        parts.select(
            PAGE,
            "objective",
            "Objective to show",
            [(o, label(o, OBJECTIVE_LABELS)) for o in OBJECTIVES],
            query.choice(asked, "objective", OBJECTIVES, scenario.objective.minimise),
        ),
        _upload(),
        controls(PAGE, "Plan in full"),
    ]
    results = [
        html.Div(id="explore-verdict", **{"aria-live": "polite"}),
        html.Div(id="explore-figures"),
        parts.exports(PAGE, KINDS),
        html.Div(id="explore-notes"),
        html.Div(id="explore-answer", className="results"),
        dcc.Store(id="explore-settled"),
    ]
    lead = (
        "Expected values on idle engines, from four tasks that stand for the workload: turn a knob and watch. "
        "“Plan in full” takes all tasks and simulates the load."
    )
    return parts.page(TITLE, lead, knobs, results)


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""
    knobs = parts.knob(PAGE, ALL)

    own: dict[str, dict[str, float]] = {}

    def scenario_of(values: Mapping[str, Any]) -> Scenario:
        key = str(values.get("scenario"))
        scenario = desk.shelf.scenario(key)
        if key not in own:
            own[key] = own_values(scenario)
        return changed(scenario, values, own[key])

    @app.callback(
        Output("explore-verdict", "children"),
        Output("explore-figures", "children"),
        Output("explore-notes", "children"),
        Input("explore-settled", "data"),
        Input("theme", "data"),
        State(knobs, "value"),
        State(knobs, "id"),
        prevent_initial_call=True,
    )
    def turn(_turns: int, theme: str | None, values: list[Any], ids: list[dict[str, str]]) -> tuple[Any, ...]:
        at = {i["knob"]: v for i, v in zip(ids, values, strict=True)}
        try:
            document = desk.glance(scenario_of(at))
        except InputError as error:
            return parts.fault(error), None, None
        objective = str(at.get("objective"))
        drawn = pictures(document, objective)
        return (
            html.Div(parts.cards(document, objective), className="cards"),
            [parts.drawn(f, theme, words, f"explore-figure-{i}") for i, (words, f) in enumerate(drawn)],
            parts.footer(document),
        )

    @app.callback(
        Output({"page": PAGE, "download": "file"}, "data"),
        Input({"page": PAGE, "save": ALL}, "n_clicks"),
        State(knobs, "value"),
        State(knobs, "id"),
        prevent_initial_call=True,
    )
    def save(clicks: list[int | None], values: list[Any], ids: list[dict[str, str]]) -> Any:
        if not any(clicks):
            return dash.no_update
        at = {i["knob"]: v for i, v in zip(ids, values, strict=True)}
        document = desk.glance(scenario_of(at))
        return saved(
            dash.ctx.triggered_id["save"],
            "specroof-explore",
            strategy_frame(document),
            pictures(document, str(at.get("objective"))),
            _portable(document, desk, str(at.get("scenario"))),
        )

    @app.callback(
        Output("url", "search", allow_duplicate=True),
        Output("explore-upload-said", "children"),
        Input("explore-upload", "contents"),
        State("explore-upload", "filename"),
        State(parts.knob(PAGE, "scenario"), "value"),
        prevent_initial_call=True,
    )
    def upload(contents: str | None, name: str | None, base: str) -> tuple[Any, Any]:
        if not contents:
            return dash.no_update, dash.no_update
        try:
            key = take(contents, str(name or ""), desk.shelf, desk.shelf.scenario(base))
        except InputError as error:
            return dash.no_update, parts.fault(error)
        return f"?scenario={key}", f"{name} is read"

    app.clientside_callback(
        dash.ClientsideFunction("specroof", "settle"), Output("explore-settled", "data"), Input(knobs, "value")
    )
    app.clientside_callback(
        dash.ClientsideFunction("specroof", "restart"),
        Output("url", "search", allow_duplicate=True),
        Input(parts.knob(PAGE, "scenario"), "value"),
        prevent_initial_call=True,
    )
    register_ask(
        app,
        desk,
        Ask(
            page=PAGE,
            kind="plan",
            question=lambda values: {"scenario": _document(scenario_of(values))},
            figures=lambda found: [*pictures(found, "time"), ("Cost, time and success", figures.pareto(found))],
            words=lambda found: [
                html.H2("The full plan"),
                html.P(f"Recommended: {label(found['recommended']['strategy'], STRATEGY_LABELS)}. "
                       f"{found['recommended']['why']}."),
                html.Div(parts.cards(found), className="cards"),
            ],
            data=strategy_frame,
        ),
    )  # fmt: skip


def pictures(document: Mapping[str, Any], objective: str) -> list[tuple[str, go.Figure]]:
    """Ratios, and the phases of the quantity that is closest to the objective."""
    rows = [
        {"strategy": s, "objective": o, **(e or {"value": None, "low": None, "high": None})}
        for s, by in document["ratios_to_strong_only"].items()
        for o, e in by.items()
    ]
    frame = pd.DataFrame(rows, columns=["strategy", "objective", "value", "low", "high"])
    quantity = {"traffic": "traffic_bytes", "flops": "flops"}.get(objective, "time_s")
    return [
        ("Against strong only", figures.ratios(frame)),
        ("By phase", figures.phases(pd.DataFrame(document["phases"]), quantity)),
    ]


def strategy_frame(document: Mapping[str, Any]) -> pd.DataFrame:
    """Strategies by quantities, with the ends of the intervals beside the values."""
    rows = []
    for s in document["strategies"]:
        row: dict[str, Any] = {"strategy": s["name"], "method": s["method"]}
        for column, e in s.items():
            if isinstance(e, Mapping) and "value" in e:
                row |= {column: e["value"], f"{column}_low": e["low"], f"{column}_high": e["high"]}
        rows.append(row)
    return pd.DataFrame(rows)


def _document(scenario: Scenario) -> Any:
    from simulator.scenario_file import to_document

    return to_document(scenario)


def _portable(document: Mapping[str, Any], desk: Desk, key: str) -> Mapping[str, Any]:
    """The document with an uploaded trace under its own name, not where this machine keeps it."""
    handed = desk.shelf.handed.get(key)
    if handed is None or not handed.trace:
        return document
    scenario = document["scenario"]
    return {**document, "scenario": {**scenario, "workload": {**scenario["workload"], "trace": handed.trace}}}


def _side(role: str, scenario: Scenario, asked: Mapping[str, str]) -> list[Any]:
    side = getattr(scenario, role)
    if side.api is not None:
        return [html.P(f"{role} model: {side.api} (priced API)", className="soft")]
    found = []
    for key, known in (("model", list(model_names())), ("hardware", hardware_names())):
        words = f"{role.capitalize()} {'model' if key == 'model' else 'hardware'}"
        options = [(_AS_IS, f"as it is: {getattr(side, key)}"), *((n, n) for n in known)]
        value = query.choice(asked, f"{role}_{key}", known, _AS_IS)
        found.append(parts.select(PAGE, f"{role}_{key}", words, options, value))
    n = query.number(asked, f"{role}_n", 1, 64, side.n_devices)
    found.append(parts.number(PAGE, f"{role}_n", f"{role.capitalize()} devices", (1, 64, 1), int(n), "per replica"))
    return found


def _upload() -> Any:
    return html.Div(
        [
            dcc.Upload(
                ["Upload a scenario (TOML) or a trace (JSON, JSONL, parquet)"],
                id="explore-upload",
                max_size=MOST_BYTES,
                multiple=False,
            ),
            html.Div(id="explore-upload-said", role="status"),
        ],
        className="upload",
    )
