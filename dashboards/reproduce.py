"""Published against predicted, one line per figure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dashboards.page import write_figure
from dashboards.template import LIGHT, RULE_COLOUR

_PUBLISHED, _PREDICTED = "#E69F00", "#0072B2"


def reproduced(document: Mapping[str, Any]) -> go.Figure:
    """Predicted median and 90 % band of every published figure, and the published range behind it.

    Parameters
    ----------
    document : Mapping
        The JSON document of `specroof reproduce`.
    """
    rows = list(reversed(document["figures"]))
    names = [row["id"] for row in rows]
    edge = max([1.2, *(row["high"] for row in rows)]) + 0.1
    start = min([-0.1, *(row["low"] for row in rows)]) - 0.05
    figure = go.Figure()
    for i, row in enumerate(rows):
        low, high = row["published"]
        figure.add_scatter(
            x=[start if low is None else low, edge if high is None else high],
            y=[row["id"], row["id"]],
            mode="lines+markers" if low == high else "lines",
            line={"color": _PUBLISHED, "width": 12},
            marker={"size": 12, "symbol": "diamond", "color": _PUBLISHED},
            opacity=0.55,
            name="published",
            showlegend=i == 0,
            hovertemplate=f"{row['metric']}<br>published %{{x:.3g}}<extra></extra>",
        )
    figure.add_scatter(
        x=[row["predicted"] for row in rows],
        y=names,
        mode="markers",
        error_x={
            "type": "data",
            "array": [row["high"] - row["predicted"] for row in rows],
            "arrayminus": [row["predicted"] - row["low"] for row in rows],
            "thickness": 1.6,
            "width": 4,
        },
        marker={"size": 9, "color": _PREDICTED},
        name="predicted, 90 % band",
        hovertemplate="predicted %{x:.3g}<extra></extra>",
    )
    figure.add_vline(x=1.0, line={"color": RULE_COLOUR, "dash": "dot", "width": 1})
    figure.update_layout(
        template=LIGHT,
        height=540,
        xaxis={
            "title": {"text": "ratio to strong-only; gap: share recovered; success: difference"},
            "range": [start, edge],
        },
        yaxis={"type": "category", "categoryorder": "array", "categoryarray": names},
    )
    return figure


def write_reproduced(document: Mapping[str, Any], path: Path) -> None:
    """Write the figure as one self-contained HTML page; raises `InputError` when the file cannot be written."""
    write_figure(reproduced(document), "Published and predicted figures of SpecAgent", document, path)
