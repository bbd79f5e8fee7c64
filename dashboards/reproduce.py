"""Published against predicted, one line per figure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dashboards.page import write_figure
from dashboards.template import LIGHT, RULE_COLOUR
from dashboards.units import digits

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
    """Write figure and tables as one self-contained HTML page; raises `InputError` when it cannot be written."""
    rows = [
        {
            "figure": row["id"],
            "setting": row["setting"],
            "metric": row["metric"],
            "published": _ends(*row["published"]),
            "predicted": digits(row["predicted"]),
            "90 % band": _ends(row["low"], row["high"]),
            "overlaps": row["overlaps"],
        }
        for row in document["figures"]
    ]
    implied = [
        {"setting": r["setting"], "unknown": r["unknown"], "prior": _range(r["prior"]), "implied": _range(r["implied"])}
        for r in document["implied"]
    ]
    tables = [("Published and predicted", rows), ("What the published figures imply", implied)]
    write_figure(reproduced(document), "Published and predicted figures of SpecAgent", document, path, tables)


def _ends(low: float | None, high: float | None) -> str:
    if low is not None and low == high:
        return digits(low)
    if low is None or high is None:
        return f"at least {digits(low)}" if low is not None else f"at most {digits(high)}" if high is not None else "–"
    return f"{digits(low)} – {digits(high)}"


def _range(found: Any) -> str:
    """A band, or the shares of choices."""
    if isinstance(found, Mapping):
        return ", ".join(f"{name} {share:.0%}" for name, share in found.items())
    return "too few draws near" if found is None else _ends(*found)
