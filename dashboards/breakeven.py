"""Break-even figures: the map of the ratio with its contour, and critical acceptance over hardware balance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dashboards.page import write_figure
from dashboards.template import LIGHT, LINE_COLOUR, RULE_COLOUR, plain

_WINS, _EVEN, _LOSES = "#0072B2", "#F7F7F7", "#D55E00"
_SPANS = (1.5, 2.0, 4.0)
"""Ratios that the ends of the colour scale stand for: the smallest that holds the map; beyond, the end colours."""

_RIDGES = [5, 10, 20, 50, 100, 200, 500, 1000, 2000]

_UNITS = {
    "acceptance": "probability",
    "window": "steps",
    "steps": "steps",
    "concurrency": "agents",
    "arrival_rate_per_s": "tasks/s",
    "rtt_s": "s",
    "link_bytes_per_s": "bytes/s",
    "tool_latency_s": "s",
    "verbosity": "weak tokens / strong tokens",
    "write_share": "share",
    "reply_share": "share",
}


def axis_title(name: str) -> str:
    """A parameter with its unit."""
    unit = _UNITS.get(name) or ("tokens" if name.endswith("_tokens") else "s" if name.endswith("_s") else "")
    words = plain(name.replace("_", " "))
    return f"{words} ({unit})" if unit else words


def breakeven_map(document: Mapping[str, Any]) -> go.Figure:
    """The ratio to strong-only over two parameters: blue wins, orange loses; solid where it is 1, dashed its band.

    Parameters
    ----------
    document : Mapping
        The JSON document of `specroof breakeven`.
    """
    x, y = document["x"], document["y"]
    ratio, low, high = (_grid(document[k]) for k in ("ratio", "low", "high"))
    reach = float(np.exp(np.nanmax(np.abs(np.log(ratio)))))
    span = next((s for s in _SPANS if reach <= s), _SPANS[-1])
    shown = np.log2(np.clip(ratio, 1 / span, span))
    hover = np.stack([ratio, low, high], axis=-1)
    ticks = [t for t in (0.25, 0.5, 0.67, 0.75, 0.9, 1, 1.1, 1.33, 1.5, 2, 4) if 1 / span - 0.01 <= t <= span]
    figure = go.Figure(
        go.Heatmap(
            x=x["values"],
            y=y["values"],
            z=shown,
            zmin=-np.log2(span),
            zmax=np.log2(span),
            colorscale=[[0.0, _WINS], [0.5, _EVEN], [1.0, _LOSES]],
            colorbar={
                "title": {"text": "ratio", "side": "right"},
                "tickvals": np.log2(ticks).tolist(),
                "ticktext": [f"{t:g}" for t in ticks],
                "thickness": 14,
            },
            customdata=np.concatenate([hover, _words(document)], axis=-1, dtype=object),
            hovertemplate=(
                f"{plain(x['name'])} %{{x:.4g}}<br>{plain(y['name'])} %{{y:.4g}}<br>"
                "ratio %{customdata[0]:.3f} [%{customdata[1]:.3f}, %{customdata[2]:.3f}]<br>"
                "decided by %{customdata[3]}<extra></extra>"
            ),
            name="ratio",
        )
    )
    for values, dash, name in (
        (ratio, "solid", "ratio = 1"),
        (low, "dash", "low end of the 90 % band = 1"),
        (high, "dot", "high end of the 90 % band = 1"),
    ):
        _contour(figure, x["values"], y["values"], values, dash, name)
    figure.update_layout(
        template=LIGHT,
        height=520,
        xaxis={"title": {"text": axis_title(x["name"])}, "type": scale_of(x["values"])},
        yaxis={"title": {"text": axis_title(y["name"])}, "type": scale_of(y["values"])},
    )
    return figure


def balance_figure(document: Mapping[str, Any]) -> go.Figure:
    """Critical acceptance over the ridge point: a point with its band per device, a line for scaled compute."""
    curve = [c for c in document["curve"] if c["critical_acceptance"]["value"] is not None]
    rows = [r for r in document["devices"] if "reason" not in r and r["critical_acceptance"]["value"] is not None]
    rows.sort(key=lambda r: r["ridge_flops_per_byte"])
    figure = go.Figure()
    figure.add_scatter(
        x=[c["ridge_flops_per_byte"] for c in curve],
        y=[c["critical_acceptance"]["value"] for c in curve],
        mode="lines",
        line={"color": RULE_COLOUR, "dash": "dash"},
        name="first device, compute scaled",
    )
    value = [r["critical_acceptance"]["value"] for r in rows]
    up = [(r["critical_acceptance"]["high"] or 1.0) - v for r, v in zip(rows, value, strict=True)]
    down = [v - (r["critical_acceptance"]["low"] or 0.0) for r, v in zip(rows, value, strict=True)]
    figure.add_scatter(
        x=[r["ridge_flops_per_byte"] for r in rows],
        y=value,
        error_y={"type": "data", "array": up, "arrayminus": down, "thickness": 1.2, "width": 4},
        mode="markers",
        hovertext=[plain(r["hardware"]) for r in rows],
        marker={"size": 9, "color": "#0072B2"},
        name="device, 90 % band",
    )
    names = [str(r["hardware"]) for r in rows]
    ridges = [float(r["ridge_flops_per_byte"]) for r in rows]
    ends = log_ends([*ridges, *(float(c["ridge_flops_per_byte"]) for c in curve)])
    tops = [(r, v + u) for r, v, u in zip(ridges, value, up, strict=True)]
    heights = above(tops, [0.032 * len(n) for n in names], ends, width=0.05)
    for name, ridge, height in zip(names, ridges, heights, strict=True):
        figure.add_annotation(
            **{"x": math.log10(ridge), "y": height, "yshift": 3, "xanchor": "center", "yanchor": "bottom"},
            text=plain(name),
            textangle=-90,
            showarrow=False,
        )
    figure.update_layout(
        template=LIGHT,
        height=480,
        xaxis={
            "title": {"text": "ridge point (FLOP per byte)"},
            "type": "log",
            "tickvals": _RIDGES,
            "range": [math.log10(e) for e in ends],
        },
        yaxis={
            "title": {"text": "acceptance from which drafting pays"},
            "range": [0, max(1.02, *(h + 0.035 * len(n) for n, h in zip(names, heights, strict=True)))],
            "tickvals": [0, 0.2, 0.4, 0.6, 0.8, 1],
        },
    )
    return figure


def log_ends(values: Sequence[float]) -> tuple[float, float]:
    """Ends of a logarithmic axis around `values`, with room for the names of the outermost."""
    low, high = min(values), max(values)
    room = (high / low) ** 0.06
    return low / room, high * room


def above(
    tops: Sequence[tuple[float, float]], lengths: Sequence[float], ends: tuple[float, float], *, width: float
) -> list[float]:
    """Heights from which upright names over bars touch neither each other nor the bar of a neighbour.

    Parameters
    ----------
    tops : place on a logarithmic axis from `ends[0]` to `ends[1]`, and upper end, of every bar
    lengths : of the names, in the unit of the upper ends
    width : what a name takes of the length of the axis
    """
    along = [math.log(x / ends[0]) / math.log(ends[1] / ends[0]) for x, _ in tops]
    placed: dict[int, float] = {}
    for i in sorted(range(len(tops)), key=lambda i: tops[i][1]):
        height = max(tops[j][1] for j in range(len(tops)) if abs(along[j] - along[i]) < width / 2)
        near = [placed[k] + lengths[k] for k in placed if abs(along[k] - along[i]) < width]
        placed[i] = max(height, *near) if near else height
    return [placed[i] for i in range(len(tops))]


def write_map(document: Mapping[str, Any], path: Path) -> None:
    """Write the map as one self-contained HTML page; raises `InputError` when the file cannot be written."""
    title = f"{document['objective']} of {document['strategy']} against strong-only"
    write_figure(breakeven_map(document), title, document, path)


def write_balance(document: Mapping[str, Any], path: Path) -> None:
    """Write the balance figure as one self-contained HTML page; raises `InputError` when it cannot be written."""
    title = f"{document['objective']}: acceptance from which {document['strategy']} pays, by hardware balance"
    write_figure(balance_figure(document), title, document, path)


def _grid(rows: Any) -> Any:
    return np.array([[np.nan if v is None else v for v in row] for row in rows], dtype=float)


def _words(document: Mapping[str, Any]) -> Any:
    return np.array([[[name.replace("_", " ")] for name in row] for row in document["decided_by"]], dtype=object)


def _contour(figure: go.Figure, x: Any, y: Any, values: Any, dash: str, name: str) -> None:
    finite = values[np.isfinite(values)]
    if not finite.size or not finite.min() < 1.0 < finite.max():
        return
    figure.add_contour(
        x=x,
        y=y,
        z=np.log2(values),
        contours={"start": 0.0, "end": 0.0, "size": 1.0, "coloring": "none"},
        line={"color": LINE_COLOUR, "width": 2.5 if dash == "solid" else 1.4, "dash": dash},
        name=name,
        showlegend=True,
        showscale=False,
        hoverinfo="skip",
    )


def scale_of(values: Any) -> str:
    """Log where the axis spans more than a decade in even ratios."""
    if len(values) < 3 or values[0] <= 0 or values[-1] / values[0] < 10:
        return "linear"
    ratios = np.diff(np.log(values))
    return "log" if np.allclose(ratios, ratios[0], rtol=0.05) else "linear"
