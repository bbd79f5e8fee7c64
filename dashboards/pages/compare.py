"""Compare runs: distributions and means of several saved runs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash
from dash import ALL, Input, Output, State, html

from dashboards import figures, parts, query, shelf
from dashboards.desk import Desk
from dashboards.pages import runs
from dashboards.units import digits, is_number
from hwprofiles.errors import InputError

PATH, TITLE, PAGE = "/compare", "Compare runs", "compare"
MOST = 12
"""Curves that can still be told apart."""
_MEANS = (("traffic_bytes", "traffic (B)"), ("energy_j", "energy (J)"), ("strong_output_tokens", "strong tokens"))


def layout(desk: Desk, asked: Mapping[str, str]) -> Any:
    """The page, its runs where the URL says, else the first few."""
    if not desk.shelf.runs:
        return runs.none_given(TITLE)
    known = [str(i) for i in range(len(desk.shelf.runs))]
    chosen = [k for k in query.text(asked, "runs", ",".join(known[:4])).split(",") if k in known][:MOST]
    knobs = [parts.select(PAGE, "runs", "Runs", runs.labels(desk), ",".join(chosen), multi=True)]
    results = [
        html.Div(id="compare-fault"),
        html.Div(id="compare-figures"),
        html.Div(id="compare-table"),
    ]
    lead = f"Up to {MOST} runs: one colour per strategy, one dash per run of it; marks at the median, 95 % and 99 %."
    return parts.page(TITLE, lead, knobs, results)


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""

    @app.callback(
        Output("compare-figures", "children"),
        Output("compare-table", "children"),
        Output("compare-fault", "children"),
        Input(parts.knob(PAGE, ALL), "value"),
        Input("theme", "data"),
        State(parts.knob(PAGE, ALL), "id"),
    )
    def show(values: list[Any], theme: str | None, ids: list[dict[str, str]]) -> tuple[Any, ...]:
        at = {i["knob"]: v for i, v in zip(ids, values, strict=True)}
        try:
            found = [desk.shelf.run(n) for n in list(at.get("runs") or ())[:MOST]]
            curves = [
                {"strategy": r.strategy, "label": r.label, "time_s": _counted(r)}
                for r in found
            ]  # fmt: skip
        except InputError as error:
            return None, None, parts.fault(error)
        table = parts.table([_row(r) for r in found], "Means over the counted tasks")
        words = "Share of tasks done within a time"
        return parts.drawn(figures.latencies(curves), theme, words, "compare-figure-0"), table, None


def _counted(run: shelf.Saved) -> list[float]:
    frame = shelf.columns(run.folder, "trajectories", ("counted", "time_s"))
    return [float(t) for t in frame.loc[frame["counted"], "time_s"].tolist()]


def _row(run: shelf.Saved) -> dict[str, object]:
    times, means = run.summary.get("time_s") or {}, run.summary.get("mean") or {}
    return {
        "run": run.label,
        "tasks": run.summary.get("n_counted"),
        **{f"{q} time (s)": _short(times.get(q)) for q in ("mean", "p50", "p95", "p99")},
        **{words: _short(means.get(key)) for key, words in _MEANS},
    }


def _short(value: object) -> str:
    return digits(float(value)) if is_number(value) else "–"
