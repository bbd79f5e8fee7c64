"""What pages show and save alike: figures with buttons under their titles, what stands above and below, data, files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dash
import pandas as pd
import plotly.graph_objects as go
from dash import ALL, Input, Output, State, html

from dashboards import parts
from dashboards.saving import KINDS, saved
from hwprofiles.errors import InputError

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An answer of a page.

    Parameters
    ----------
    figures : pairs of title and figure
    data : the table that CSV and parquet hold
    document : `scenario`, `notes` and the like, for the foot of the page and the TOML file
    above, below : what stands over and under the figures
    """

    figures: Sequence[tuple[str, go.Figure]]
    data: pd.DataFrame
    document: Mapping[str, Any]
    above: Sequence[Any] = ()
    below: Sequence[Any] = ()


def children(page: str, found: Shown, theme: str | None) -> list[Any]:
    """All of an answer; the ids of its buttons begin with `page`."""
    has_scenario = bool(found.document.get("scenario"))
    return [
        *found.above,
        *parts.gallery(found.figures, theme, page),
        *found.below,
        parts.exports(page, [(kind, words) for kind, words in KINDS if has_scenario or kind != "toml"]),
        *([parts.footer(found.document)] if has_scenario else []),
    ]


def register_saving(
    app: dash.Dash, page: str, name: str, states: Sequence[State], found: Callable[..., Shown | None]
) -> None:
    """Answer the buttons of a page; `found` gets the values of `states` and says what the page shows now."""

    @app.callback(
        Output({"page": page, "download": "file"}, "data"),
        Input({"page": page, "save": ALL}, "n_clicks"),
        *states,
        prevent_initial_call=True,
    )
    def save(_clicks: list[int | None], *at: Any) -> Any:
        if not any(t["value"] for t in dash.ctx.triggered):  # a button that was drawn, not pressed
            return dash.no_update
        try:
            shown = found(*at)
        except InputError:  # the page says what is wrong
            return dash.no_update
        if shown is None:
            return dash.no_update
        return saved(dash.ctx.triggered_id["save"], name, shown.data, shown.figures, shown.document)


def register(app: dash.Dash, page: str, answer: Callable[[Values], Shown]) -> None:
    """Answer at once whenever a knob moves; the page holds an empty `html.Div(id=f"{page}-shown")`.

    Parameters
    ----------
    answer : from the knobs to what is shown; raises `InputError`
    """
    knobs = parts.knob(page, ALL)

    @app.callback(
        Output(f"{page}-shown", "children"),
        Input(knobs, "value"),
        Input("theme", "data"),
        State(knobs, "id"),
    )
    def show(values: list[Any], theme: str | None, ids: list[dict[str, str]]) -> Any:
        try:
            return children(page, answer(at(values, ids)), theme)
        except InputError as error:
            return parts.fault(error)

    states = [State(knobs, "value"), State(knobs, "id")]
    register_saving(app, page, f"specroof-{page}", states, lambda values, ids: answer(at(values, ids)))


def at(values: Sequence[Any], ids: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Knobs by name."""
    return {i["knob"]: v for i, v in zip(ids, values, strict=True)}


def place(page: str) -> Any:
    """Where the answer goes."""
    return html.Div(id=f"{page}-shown", className="results")
