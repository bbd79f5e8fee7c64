"""Long questions on a page: a button to ask, a line of progress, a button to stop, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dash
import pandas as pd
import plotly.graph_objects as go
from dash import ALL, Input, Output, State, dcc, html

from dashboards import parts
from dashboards.desk import Desk
from dashboards.pages.showing import Shown, at, children, register_saving
from hwprofiles.errors import InputError

Values = Mapping[str, Any]
_POLL_MS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A long question of a page.

    Parameters
    ----------
    page : name of the page, first part of all ids
    kind : one of `dashboards.questions.QUESTIONS`
    question : from the knobs to what is asked; raises `InputError`
    figures : from the answer to (title, figure) pairs
    words : from the answer to what stands above the figures
    data : from the answer to the table that CSV and parquet hold
    """

    page: str
    kind: str
    question: Callable[[Values], Mapping[str, Any]]
    figures: Callable[[Mapping[str, Any]], Sequence[tuple[str, go.Figure]]]
    words: Callable[[Mapping[str, Any]], Sequence[Any]]
    data: Callable[[Mapping[str, Any]], pd.DataFrame]


def controls(page: str, words: str) -> Any:
    """The button that asks, the one that stops, and the line that tells how far it is."""
    return html.Div(
        [
            html.Div(
                [
                    html.Button(words, type="button", id=f"{page}-run", className="main"),
                    html.Button("Stop", type="button", id=f"{page}-stop", disabled=True),
                ],
                className="run",
            ),
            html.P(id=f"{page}-line", className="line", role="status"),
            dcc.Store(id=f"{page}-job"),
            dcc.Interval(id=f"{page}-tick", interval=_POLL_MS, disabled=True),
        ]
    )


def register(app: dash.Dash, desk: Desk, ask: Ask) -> None:
    """Add the callbacks of one question; the page holds `controls` and an empty `html.Div(id=f"{page}-answer")`."""
    page = ask.page
    knobs = parts.knob(page, ALL)

    @app.callback(
        Output(f"{page}-job", "data"),
        Output(f"{page}-tick", "disabled"),
        Output(f"{page}-line", "children"),
        Input(f"{page}-run", "n_clicks"),
        State(knobs, "value"),
        State(knobs, "id"),
        prevent_initial_call=True,
    )
    def start(clicks: int | None, values: list[Any], ids: list[dict[str, str]]) -> tuple[Any, bool, Any]:
        if not clicks:
            return dash.no_update, True, dash.no_update
        try:
            question = ask.question(at(values, ids))
        except InputError as error:
            return None, True, parts.fault(error)
        return desk.jobs.start(ask.kind, question), False, "waiting"

    @app.callback(
        Output(f"{page}-answer", "children"),
        Output(f"{page}-line", "children", allow_duplicate=True),
        Output(f"{page}-tick", "disabled", allow_duplicate=True),
        Output(f"{page}-stop", "disabled"),
        Input(f"{page}-tick", "n_intervals"),
        Input("theme", "data"),
        Input(f"{page}-job", "data"),
        prevent_initial_call=True,
    )
    def look(_ticks: int | None, theme: str | None, key: str | None) -> tuple[Any, Any, bool, bool]:
        job = desk.jobs.get(key)
        if job is None:
            return dash.no_update, dash.no_update, True, True
        if not job.is_over:
            return dash.no_update, job.line or job.status, False, False
        if job.document is None:
            said = "stopped" if job.status == "cancelled" else parts.fault(job.line)
            return dash.no_update, said, True, True
        return children(f"{page}-job", _shown(ask, job.document), theme), "", True, True

    @app.callback(
        Output(f"{page}-stop", "disabled", allow_duplicate=True),
        Input(f"{page}-stop", "n_clicks"),
        State(f"{page}-job", "data"),
        prevent_initial_call=True,
    )
    def stop(clicks: int | None, key: str | None) -> bool:
        if clicks:
            desk.jobs.cancel(key)
        return True

    def answered(key: str | None) -> Shown | None:
        job = desk.jobs.get(key)
        return None if job is None or job.document is None else _shown(ask, job.document)

    register_saving(app, f"{page}-job", f"specroof-{ask.kind}", [State(f"{page}-job", "data")], answered)


def _shown(ask: Ask, document: Mapping[str, Any]) -> Shown:
    return Shown(figures=ask.figures(document), data=ask.data(document), document=document, above=ask.words(document))
