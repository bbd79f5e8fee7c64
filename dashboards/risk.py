"""Risk figures: maps of damage over window and task length by hold failure, and time against damage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards.page import write_figure
from dashboards.template import LIGHT, plain

_SCALE = [[0.0, "#F7F7F7"], [0.35, "#FDDBA8"], [1.0, "#D55E00"]]
_LINES = ("#0072B2", "#009E73", "#E69F00", "#D55E00", "#882255", "#332288", "#999933", "#767676")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "x")
_MOST_MAPS = 4
_BELOW = "the workload's own tasks: time against damage (number: window; open: another is as fast and as safe)"


def risk_figure(document: Mapping[str, Any]) -> go.Figure:
    """Damage in excess of strong-only over window and steps, a map per hold failure, above time against damage.

    The line on a map bounds the windows that stay within the damage budget in excess of strong-only.

    Parameters
    ----------
    document : Mapping
        The JSON document of `specroof risk`.
    """
    failures = list(dict.fromkeys(c["hold_failure"] for c in document["cells"]))
    shown = failures if len(failures) <= _MOST_MAPS else [*failures[: _MOST_MAPS - 1], failures[-1]]
    figure = make_subplots(
        rows=2,
        cols=len(shown),
        specs=[[{}] * len(shown), [{"colspan": len(shown)}, *[None] * (len(shown) - 1)]],
        row_heights=[0.45, 0.55],
        vertical_spacing=0.2,
        horizontal_spacing=0.03,
        shared_yaxes=True,
        subplot_titles=[*(f"hold failure {x:g}" for x in shown), _BELOW],
    )
    top = max(c["excess_over_strong_only"] for c in document["cells"])
    for col, failure in enumerate(shown, start=1):
        _map(figure, document, failure, col, max(top, 1e-6))
    for i, failure in enumerate(failures):
        _frontier(figure, document, failure, i)
    figure.update_layout(
        template=LIGHT,
        height=820,
        margin={"t": 36, "b": 70},
        coloraxis={
            "colorscale": _SCALE,
            "cmin": 0.0,
            "cmax": max(top, 1e-6),
            "colorbar": {
                "title": {"text": "excess damage", "side": "right"},
                "thickness": 14,
                "len": 0.42,
                "y": 1.0,
                "yanchor": "top",
            },
        },
    )
    figure.update_yaxes(title={"text": "steps of the task"}, row=1, col=1)
    figure.update_xaxes(title={"text": "window (steps)"}, row=1)
    figure.update_xaxes(title={"text": "time, ratio to strong-only"}, row=2, col=1)
    figure.update_yaxes(title={"text": "probability of damage"}, rangemode="tozero", row=2, col=1)
    return figure


def write_risk(document: Mapping[str, Any], path: Path) -> None:
    """Write the figures as one self-contained HTML page; raises `InputError` when the file cannot be written."""
    write_figure(risk_figure(document), "What drafting puts at risk", document, path)


def _map(figure: go.Figure, document: Mapping[str, Any], failure: float, col: int, top: float) -> None:
    cells = [c for c in document["cells"] if c["hold_failure"] == failure]
    steps = sorted({c["steps"] for c in cells})
    windows = sorted({c["window"] for c in cells})
    at = {(c["steps"], c["window"]): c for c in cells}
    rows = [[at[s, w] for w in windows] for s in steps]
    figure.add_heatmap(
        x=list(range(len(windows))),
        y=list(range(len(steps))),
        z=[[max(0.0, c["excess_over_strong_only"]) for c in row] for row in rows],
        text=[[f"{c['excess_over_strong_only']:.2f}" for c in row] for row in rows],
        texttemplate="%{text}",
        textfont={"size": 11},
        customdata=[
            [
                [
                    c["window"],
                    c["steps"],
                    c["damage_probability"],
                    c["damage_probability_low"],
                    c["damage_probability_high"],
                    c["success"],
                ]
                for c in row
            ]
            for row in rows
        ],
        hovertemplate=(
            "window %{customdata[0]}, %{customdata[1]} steps<br>excess %{text}<br>damage %{customdata[2]:.3f} "
            "[%{customdata[3]:.3f}, %{customdata[4]:.3f}]<br>success %{customdata[5]:.3f}<extra></extra>"
        ),
        coloraxis="coloraxis",
        xgap=1,
        ygap=1,
        name=f"hold failure {failure:g}",
        row=1,
        col=col,
    )
    figure.update_xaxes(tickvals=list(range(len(windows))), ticktext=[f"{w}" for w in windows], row=1, col=col)
    figure.update_yaxes(tickvals=list(range(len(steps))), ticktext=[f"{s:g}" for s in steps], row=1, col=col)
    _budget_line(figure, document, failure, (steps, windows), col)


def _budget_line(
    figure: go.Figure, document: Mapping[str, Any], failure: float, axes: tuple[list[float], list[int]], col: int
) -> None:
    """A staircase right of the safe cells."""
    steps, windows = axes
    safe = {s["steps"]: s["window_in_excess"] for s in document["largest_safe_window"] if s["hold_failure"] == failure}
    x: list[float] = []
    y: list[float] = []
    for row, n in enumerate(steps):
        edge = -0.5 if safe[n] is None else windows.index(safe[n]) + 0.5
        x += [edge, edge]
        y += [row - 0.5, row + 0.5]
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": "#22272e", "width": 2.5},
        name=f"within a budget of {document['damage_budget']:g} on its left",
        showlegend=col == 1,
        hoverinfo="skip",
        row=1,
        col=col,
    )


def _frontier(figure: go.Figure, document: Mapping[str, Any], failure: float, i: int) -> None:
    points = [f for f in document["frontier"] if f["hold_failure"] == failure]
    points.sort(key=lambda f: f["window"])
    figure.add_scatter(
        x=[f["time_ratio"] for f in points],
        y=[f["damage_probability"] for f in points],
        mode="lines+markers+text",
        text=[plain(f["window"]) if f["efficient"] else "" for f in points],
        textposition="top center",
        line={"color": _LINES[i % len(_LINES)], "width": 1.4},
        marker={
            "size": 10,
            "symbol": [_SYMBOLS[i % len(_SYMBOLS)] + ("" if f["efficient"] else "-open") for f in points],
        },
        customdata=[
            [
                f["window"],
                f["time_ratio_low"],
                f["time_ratio_high"],
                f["damage_probability_low"],
                f["damage_probability_high"],
            ]
            for f in points
        ],
        hovertemplate=(
            "window %{customdata[0]}<br>time ratio %{x:.3f} [%{customdata[1]:.3f}, %{customdata[2]:.3f}]<br>"
            "damage %{y:.4f} [%{customdata[3]:.4f}, %{customdata[4]:.4f}]<extra></extra>"
        ),
        name=f"hold failure {failure:g}",
        row=2,
        col=1,
    )
