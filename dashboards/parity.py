"""Measured against predicted: a point per trajectory with its band, and what the requests of each kind took."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dashboards.names import STRATEGY_LABELS, label
from dashboards.page import figures_page, write_page
from dashboards.template import FALLBACK_COLOUR, LIGHT, RULE_COLOUR, SOLID_SYMBOLS, STRATEGY_COLOURS, plain

_TEN_PERCENT = 0.1
_SECONDS = [m * 10.0**p for p in range(-3, 5) for m in (1, 2, 5)]
_WORDS = {
    "first_token": "to first tokens",
    "decode": "own decode",
    "draft_decode": "draft decode",
    "verdict_decode": "verdict decode",
    "repair_decode": "repair decode",
    "tool": "tools",
    "wasted": "wasted drafts",
}


def parity(document: Mapping[str, Any]) -> go.Figure:
    """Predicted over measured time of every trajectory, with its 90 % band; grey: 10 % on both sides of equality.

    Parameters
    ----------
    document : Mapping
        The JSON document of `specroof validate`.
    """
    figure = go.Figure()
    every = [row for one in document["strategies"].values() for row in one["pairs"]["time_s"]]
    ends = [0.9 * min(v for row in every for v in row[:2]), 1.1 * max(v for row in every for v in row[:2])]
    for share, dash in ((1.0, "solid"), (1.0 + _TEN_PERCENT, "dot"), (1.0 - _TEN_PERCENT, "dot")):
        line = {"color": RULE_COLOUR, "dash": dash, "width": 1}
        figure.add_scatter(
            x=ends, y=[share * e for e in ends], mode="lines", line=line, showlegend=False, hoverinfo="skip"
        )
    for name, one in document["strategies"].items():
        rows = one["pairs"]["time_s"]
        figure.add_scatter(
            x=[r[0] for r in rows],
            y=[r[1] for r in rows],
            error_y={
                "array": [r[3] - r[1] for r in rows],
                "arrayminus": [r[1] - r[2] for r in rows],
                "thickness": 1,
                "width": 0,
            },
            mode="markers",
            name=plain(label(name, STRATEGY_LABELS)),
            marker={
                "color": STRATEGY_COLOURS.get(name, FALLBACK_COLOUR),
                "symbol": SOLID_SYMBOLS.get(name, "circle"),
                "size": 9,
            },
            hovertemplate="measured %{x:.3g} s<br>predicted %{y:.3g} s<extra>"
            + plain(label(name, STRATEGY_LABELS))
            + "</extra>",
        )
    figure.update_layout(template=LIGHT, height=560, margin={"b": 90})
    figure.update_xaxes(title="measured time of a trajectory (s)", type="log", tickvals=_SECONDS)
    figure.update_yaxes(title="predicted, with 90 % band (s)", type="log", tickvals=_SECONDS)
    return figure


def phase_bars(document: Mapping[str, Any]) -> go.Figure:
    """Where the time went, measured beside predicted, by strategy."""
    figure = go.Figure()
    rows = [(s, family, both) for s, families in document["phases"].items() for family, both in families.items()]
    labels = [[plain(label(s, STRATEGY_LABELS)) for s, _, _ in rows], [_WORDS.get(f, plain(f)) for _, f, _ in rows]]
    for key, name, colour in (("measured_s", "measured", "#0072B2"), ("predicted_s", "predicted", "#E69F00")):
        values = [both[key] for _, _, both in rows]
        figure.add_bar(x=values, y=labels, orientation="h", name=name, marker={"color": colour})
    figure.update_layout(template=LIGHT, barmode="group", height=140 + 44 * len(rows), margin={"b": 90})
    figure.update_xaxes(title="seconds per trajectory")
    figure.update_yaxes(autorange="reversed")
    return figure


def write_parity(document: Mapping[str, Any], path: Path) -> None:
    """The page of a validation: parity, and phases; raises `InputError` when it cannot be written."""
    error, band = document["errors"]["time_s"], document["in_band"]["time_s"]
    words = f"Median error of a trajectory's time {error['median_ape']:.1%}, bias {error['bias']:+.1%}, "
    words += f"{band:.0%} inside their 90 % bands"
    figures = [(words, parity(document)), ("Where the time went", phase_bars(document))]
    write_page(figures_page(figures, "Predicted against measured", document), path)
