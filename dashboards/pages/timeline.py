"""Timeline: one trajectory of a saved run, and the engines it ran on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash
from dash import html

from dashboards import figures, parts, query, shelf
from dashboards.desk import Desk
from dashboards.pages import runs, showing
from dashboards.pages.showing import Shown
from dashboards.units import digits

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
    ]
    lead = "One task of a saved run on its own clock, and the batch, cache and queue of the engines on the run’s."
    return parts.page(TITLE, lead, knobs, [showing.place(PAGE)])


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""

    def answer(at: Mapping[str, Any]) -> Shown:
        run = desk.shelf.run(at.get("run"))
        spans = shelf.spans(run.folder, int(query.clamped(at.get("trajectory"), 0, 10**9, 0)), run.strategy)
        engine = shelf.columns(run.folder, "engine", _ENGINE)
        drawn = [("Who is busy when", figures.timeline(spans.head(_MOST_SPANS)))]
        if len(engine):
            drawn.append(("The engines", figures.engine_load(engine)))
        above = [html.P(_slowest(run), className="soft")]
        if len(spans) > _MOST_SPANS:
            above.append(html.P(f"Only the first {_MOST_SPANS:,} of {len(spans):,} spans are drawn."))
        return Shown(figures=drawn, data=spans, document={"scenario": run.meta.get("scenario")}, above=above)

    showing.register(app, PAGE, answer)


def _slowest(run: shelf.Saved) -> str:
    """Where to look first."""
    frame = shelf.columns(run.folder, "trajectories", ("trajectory", "time_s"))
    top = frame.nlargest(5, "time_s")
    return "Slowest: " + ", ".join(
        f"{int(t)} ({digits(float(s))} s)" for t, s in zip(top["trajectory"], top["time_s"], strict=True)
    )
