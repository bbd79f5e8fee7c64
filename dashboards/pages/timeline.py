"""Timeline: one trajectory of a saved run, and the engines it ran on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash
from dash import ALL, Input, Output, State, html

from dashboards import figures, parts, query, shelf
from dashboards.desk import Desk
from dashboards.pages import runs
from dashboards.units import digits
from hwprofiles.errors import InputError

PATH, TITLE, PAGE = "/timeline", "Timeline", "timeline"
_ENGINE = ("role", "replica", "start_s", "time_s", "n_decode", "kv_used_tokens", "n_waiting")
_MOST_SPANS = 20_000


def layout(desk: Desk, asked: Mapping[str, str]) -> Any:
    """The page, its knobs where the URL says."""
    if not desk.shelf.runs:
        return runs.none_given(TITLE)
    labels = runs.labels(desk)
    name = query.choice(asked, "run", [k for k, _ in labels], "0")
    last = len(shelf.columns(desk.shelf.run(name).folder, "trajectories", ("trajectory", "arrival_s"))) - 1
    at = int(query.number(asked, "trajectory", 0, max(0, last), 0))
    knobs = [
        parts.select(PAGE, "run", "Run", labels, name),
        parts.number(PAGE, "trajectory", "Trajectory", (0, 1_000_000, 1), at),
        html.Div(id="timeline-slowest", className="soft"),
    ]
    results = [
        html.Div(id="timeline-fault"),
        html.Div(id="timeline-figures"),
    ]
    lead = "One task of a saved run on its own clock, and the batch, cache and queue of the engines on the run’s."
    return parts.page(TITLE, lead, knobs, results)


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""

    @app.callback(
        Output("timeline-figures", "children"),
        Output("timeline-slowest", "children"),
        Output("timeline-fault", "children"),
        Input(parts.knob(PAGE, ALL), "value"),
        Input("theme", "data"),
        State(parts.knob(PAGE, ALL), "id"),
    )
    def show(values: list[Any], theme: str | None, ids: list[dict[str, str]]) -> tuple[Any, ...]:
        at = {i["knob"]: v for i, v in zip(ids, values, strict=True)}
        try:
            run = desk.shelf.run(at.get("run"))
            spans = shelf.spans(run.folder, int(query.clamped(at.get("trajectory"), 0, 10**9, 0)), run.strategy)
            engine = shelf.columns(run.folder, "engine", _ENGINE)
            drawn = [("Who is busy when", figures.timeline(spans.head(_MOST_SPANS)))]
            if len(engine):
                drawn.append(("The engines", figures.engine_load(engine)))
            return (
                [parts.drawn(f, theme, words, f"timeline-figure-{i}") for i, (words, f) in enumerate(drawn)],
                _slowest(run),
                None if len(spans) <= _MOST_SPANS else f"only the first {_MOST_SPANS:,} of {len(spans):,} spans",
            )
        except InputError as error:
            return None, None, parts.fault(error)


def _slowest(run: shelf.Saved) -> str:
    """Where to look first."""
    frame = shelf.columns(run.folder, "trajectories", ("trajectory", "time_s"))
    top = frame.nlargest(5, "time_s")
    return "Slowest: " + ", ".join(
        f"{int(t)} ({digits(float(s))} s)" for t, s in zip(top["trajectory"], top["time_s"], strict=True)
    )
