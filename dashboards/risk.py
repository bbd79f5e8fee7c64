"""Risk figures: maps of damage over window and task length by hold failure, and time against damage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dashboards.frames import axis_title
from dashboards.page import figures_page, write_page
from dashboards.template import LIGHT, LINE_COLOUR, plain

_SCALE = [[0.0, "#F7F7F7"], [0.35, "#FDDBA8"], [1.0, "#D55E00"]]
_LINES = ("#0072B2", "#009E73", "#E69F00", "#D55E00", "#882255", "#332288", "#999933", "#767676")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "x")
_MOST_MAPS = 4
_TEXT_AT = ("top center", "bottom center", "middle left", "middle right")


def risk_figures(document: Mapping[str, Any]) -> list[tuple[str, go.Figure]]:
    """A map of damage per hold failure (the first and the last of more than four), and time against damage.

    Parameters
    ----------
    document : Mapping
        The JSON document of `specroof risk`.
    """
    failures = list(dict.fromkeys(c["hold_failure"] for c in document["cells"]))
    shown = failures if len(failures) <= _MOST_MAPS else [*failures[: _MOST_MAPS - 1], failures[-1]]
    maps = [(f"Damage in excess of strong only, hold failure {x:g}", risk_map(document, x)) for x in shown]
    return [*maps, ("Time against damage on the workload's own tasks", risk_frontier(document))]


def risk_map(document: Mapping[str, Any], hold_failure: float) -> go.Figure:
    """Damage in excess of strong-only over window and steps, on one colour scale for all hold failures.

    The line bounds the windows that stay within the damage budget in excess of strong-only.
    """
    top = max(1e-6, *(c["excess_over_strong_only"] for c in document["cells"]))
    figure = go.Figure()
    steps, windows = _cells(figure, document, hold_failure)
    _budget_line(figure, document, hold_failure, (steps, windows))
    figure.update_xaxes(title="window (steps)", tickvals=list(range(len(windows))), ticktext=[f"{w}" for w in windows])
    figure.update_yaxes(title="steps of the task", tickvals=list(range(len(steps))), ticktext=[f"{s:g}" for s in steps])
    figure.update_layout(
        template=LIGHT,
        height=150 + 38 * len(steps),
        showlegend=True,
        coloraxis={
            "colorscale": _SCALE,
            "cmin": 0.0,
            "cmax": top,
            "colorbar": {"title": {"text": "excess damage", "side": "right"}, "thickness": 14},
        },
    )
    return figure


def risk_frontier(document: Mapping[str, Any]) -> go.Figure:
    """Probability of damage over the ratio of time to strong-only, a point per window, a line per hold failure."""
    figure = go.Figure()
    for i, failure in enumerate(dict.fromkeys(c["hold_failure"] for c in document["cells"])):
        _frontier(figure, document, failure, i)
    note = "number: window; open mark: another window is as fast and as safe"
    figure.update_xaxes(title=axis_title("time, ratio to strong only", note))
    figure.update_yaxes(title="probability of damage", rangemode="tozero")
    figure.update_layout(template=LIGHT, height=460, showlegend=True)
    return figure


def write_risk(document: Mapping[str, Any], path: Path) -> None:
    """Write the figures as one self-contained HTML page; raises `InputError` when the file cannot be written."""
    write_page(figures_page(risk_figures(document), "What drafting puts at risk", document), path)


def _cells(figure: go.Figure, document: Mapping[str, Any], failure: float) -> tuple[list[float], list[int]]:
    """Draw the map's cells; returns its steps and windows."""
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
    )
    return steps, windows


def _budget_line(
    figure: go.Figure, document: Mapping[str, Any], failure: float, axes: tuple[list[float], list[int]]
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
        line={"color": LINE_COLOUR, "width": 3},
        name=f"within a budget of {document['damage_budget']:g} on its left",
        hoverinfo="skip",
    )


def _frontier(figure: go.Figure, document: Mapping[str, Any], failure: float, i: int) -> None:
    points = [f for f in document["frontier"] if f["hold_failure"] == failure]
    points.sort(key=lambda f: f["window"])
    figure.add_scatter(
        x=[f["time_ratio"] for f in points],
        y=[f["damage_probability"] for f in points],
        mode="lines+markers+text",
        text=[plain(f["window"]) if f["efficient"] else "" for f in points],
        textposition=_TEXT_AT[i % len(_TEXT_AT)],
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
    )
