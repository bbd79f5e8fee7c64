"""Explore: turn the knobs of a scenario and watch the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dash
import pandas as pd
import plotly.graph_objects as go
from dash import ALL, Input, Output, State, dcc, html

from dashboards import figures, parts, query, template
from dashboards.comparison import ratio_parts
from dashboards.desk import Desk
from dashboards.knobs import SIDES, SLIDERS, changed
from dashboards.ledger import phase_parts
from dashboards.names import OBJECTIVE_LABELS, STRATEGY_LABELS, label
from dashboards.pages.running import Ask, controls
from dashboards.pages.running import register as register_ask
from dashboards.pages.showing import Shown, at, register_saving
from dashboards.pages.sides import side
from dashboards.saving import KINDS
from dashboards.uploads import MOST_BYTES, take
from hwprofiles.errors import InputError
from simulator.outcome import OBJECTIVES
from simulator.scenario import Scenario

PATH, TITLE, PAGE = "/", "Explore", "explore"
_FIGURES = ("Against strong only", "By phase")


def layout(desk: Desk, asked: Mapping[str, str]) -> Any:
    """The page, its knobs where the URL says, else where the scenario has them."""
    name = query.choice(asked, "scenario", [k for k, _ in desk.shelf.labels()], desk.shelf.first)
    try:
        own = desk.own_values(name)
    except InputError as error:
        return parts.page(TITLE, "", [], [parts.fault(error)])
    scenario = desk.shelf.scenario(name)
    objective = query.choice(asked, "objective", OBJECTIVES, scenario.objective.minimise)
    verdict, style, *drawn, notes = _answer(desk, {**asked, "scenario": name, "objective": objective}, None)
    desk.ready_knobs(name)
    knobs = [
        parts.select(PAGE, "scenario", "Scenario", desk.shelf.labels(), name),
        *(k for role in SIDES for k in side(PAGE, role, scenario, asked)),
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
            objective,
        ),
        _upload(),
        controls(PAGE, "Plan in full"),
    ]
    results = [
        html.Div(verdict, id="explore-verdict", **{"aria-live": "polite"}),
        html.Div(_frames(drawn), id="explore-figures", style=style, className="as-light"),
        parts.exports(PAGE, KINDS),
        html.Div(notes, id="explore-notes"),
        html.Div(id="explore-answer", className="results"),
        dcc.Store(id="explore-asked"),
        dcc.Store(id="explore-answered"),
    ]
    lead = (
        "Expected values on idle engines, from four tasks that stand for the workload: turn a knob and watch. "
        "“Plan in full” takes all tasks and simulates the load."
    )
    return parts.page(TITLE, lead, knobs, results)


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""
    knobs = parts.knob(PAGE, ALL)

    @app.callback(
        Output("explore-verdict", "children"),
        Output("explore-figures", "style"),
        *(Output(_graph(i), "figure") for i in range(len(_FIGURES))),
        *(Output(_graph(i), "style") for i in range(len(_FIGURES))),
        Output("explore-notes", "children"),
        Output("explore-figures", "className"),
        Output("explore-answered", "data"),
        Input("explore-asked", "data"),
        Input("theme", "data"),
        State(knobs, "value"),
        State(knobs, "id"),
        prevent_initial_call=True,
    )
    def turn(turns: int, theme: str | None, values: list[Any], ids: list[dict[str, str]]) -> tuple[Any, ...]:
        return *_answer(desk, at(values, ids), theme), "", turns

    def shown(values: list[Any], ids: list[dict[str, str]]) -> Shown:
        known = at(values, ids)
        document = desk.glance(_turned(desk, known))
        return Shown(
            figures=pictures(document, str(known.get("objective"))),
            data=strategy_frame(document),
            document=_portable(document, desk, str(known.get("scenario"))),
        )

    register_saving(app, PAGE, "specroof-explore", [State(knobs, "value"), State(knobs, "id")], shown)

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
        dash.ClientsideFunction("specroof", "ask"), Output("explore-asked", "data"), Input(knobs, "value")
    )
    app.clientside_callback(dash.ClientsideFunction("specroof", "answered"), Input("explore-answered", "data"))
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
            question=lambda values: {"scenario": _document(_turned(desk, values))},
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


def _turned(desk: Desk, known: Mapping[str, Any]) -> Scenario:
    """The scenario with its knobs turned; raises `InputError`."""
    key = str(known.get("scenario"))
    return changed(desk.shelf.scenario(key), known, desk.own_values(key))


def _answer(desk: Desk, known: Mapping[str, Any], theme: str | None) -> list[Any]:
    """Verdict, style of the figures' place, the figures, their styles, and the notes."""
    try:
        document = desk.glance(_turned(desk, known))
    except InputError as error:
        return [parts.fault(error), {"display": "none"}, *[dash.no_update] * 2 * len(_FIGURES), None]
    objective = str(known.get("objective"))
    found = drawings(document, objective)
    worn = parts.THEMES.get(theme or "", template.LIGHT).to_plotly_json()
    return [
        html.Div(parts.cards(document, objective), className="cards"),
        {},
        *({**f, "layout": {**f["layout"], "template": worn}} for f in found),
        *({"height": f"{f['layout']['height']}px"} for f in found),
        parts.footer(document),
    ]


def drawings(document: Mapping[str, Any], objective: str) -> list[dict[str, Any]]:
    """Ratios, and the phases of the quantity that is closest to the objective; plain data and layout, no template."""
    nothing = {"value": None, "low": None, "high": None}
    ratios = [
        {"strategy": s, "objective": o, **(e or nothing)}
        for s, by in document["ratios_to_strong_only"].items()
        for o, e in by.items()
    ]
    quantity = {"traffic": "traffic_bytes", "flops": "flops"}.get(objective, "time_s")
    return [ratio_parts(ratios), phase_parts(document["phases"], quantity)]


def pictures(document: Mapping[str, Any], objective: str) -> list[tuple[str, go.Figure]]:
    """The same as figures with their titles."""
    return [
        (words, go.Figure(found).update_layout(template=template.LIGHT))
        for words, found in zip(_FIGURES, drawings(document, objective), strict=True)
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


def _graph(number: int) -> str:
    return f"{PAGE}-figure-{number}"


def _frames(drawn: Sequence[Any]) -> list[Any]:
    """Where the figures are; they stay there, so that a turned knob redraws them and builds nothing anew."""
    n = len(_FIGURES)
    found = []
    for i, (words, figure, style) in enumerate(zip(_FIGURES, drawn[:n], drawn[n:], strict=True)):
        what = {} if figure is dash.no_update else {"figure": figure, "style": style}
        graph = dcc.Graph(id=_graph(i), config={"displaylogo": False}, responsive=True, **what)
        saves = html.Div(parts.figure_saves(PAGE, i, words), className="saves")
        found.append(html.Figure([html.Figcaption(words), saves, html.Div(graph)]))
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
