"""Break-even by load: the contour where the ratio is 1, one line per number of agents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dashboards.breakeven import axis_title, scale_of
from dashboards.page import write_figure
from dashboards.template import LIGHT

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7A5195", "#22272e")
_DASHES = ("solid", "dash", "dot", "dashdot")
_BAND_OPACITY = 0.14


def loads_figure(document: Mapping[str, Any]) -> go.Figure:
    """The contour of ratio 1 for each load with its 90 % band; drafting pays on the side that its name states.

    Parameters
    ----------
    document : Mapping
        The JSON document of `specroof breakeven --load`.
    """
    x, y = document["x"], document["y"]
    figure = go.Figure()
    for i, load in enumerate(document["loads"]):
        colour = COLOURS[i % len(COLOURS)]
        n = load["concurrency"]
        name = f"{n} agent{'s' if n > 1 else ''}, {load['method']}"
        points = sorted((p for p in load["frontier"] if p["x"] is not None), key=lambda p: (p["y"], p["x"]))
        band = [p for p in points if p["x_low"] is not None or p["x_high"] is not None]
        if single(points) and band:
            low = [p["x_low"] if p["x_low"] is not None else x["values"][0] for p in band]
            high = [p["x_high"] if p["x_high"] is not None else x["values"][-1] for p in band]
            figure.add_scatter(
                x=[*low, *reversed(high)],
                y=[*(p["y"] for p in band), *(p["y"] for p in reversed(band))],
                fill="toself",
                fillcolor=colour,
                opacity=_BAND_OPACITY,
                line={"width": 0},
                hoverinfo="skip",
                showlegend=False,
            )
        figure.add_scatter(
            x=[p["x"] for p in points],
            y=[p["y"] for p in points],
            mode="lines+markers" if single(points) else "markers",
            line={"color": colour, "width": 2.5, "dash": _DASHES[i % len(_DASHES)]},
            marker={"size": 5, "color": colour},
            name=name if points else f"{name}: {nowhere(load)}",
        )
    figure.update_layout(
        template=LIGHT,
        height=520,
        showlegend=True,
        xaxis={
            "title": {"text": axis_title(x["name"])},
            "type": scale_of(x["values"]),
            "range": _range(x["values"]),
        },
        yaxis={"title": {"text": axis_title(y["name"])}, "type": scale_of(y["values"]), "range": _range(y["values"])},
    )
    return figure


def single(points: Sequence[Mapping[str, Any]]) -> bool:
    """Whether points of a frontier, in order of y, have one x for each y."""
    return all(a["y"] < b["y"] for a, b in pairwise(points))


def nowhere(load: Mapping[str, Any]) -> str:
    """Why a map has no contour, in words."""
    known = [v for row in load["ratio"] for v in row if v is not None]
    if not known:
        return "not known"
    return "pays everywhere" if max(known) < 1 else "pays nowhere" if min(known) > 1 else "no crossing along x"


def _range(values: Any) -> list[float]:
    ends = [float(values[0]), float(values[-1])]
    return [math.log10(v) for v in ends] if scale_of(values) == "log" else ends


def write_loads(document: Mapping[str, Any], path: Path) -> None:
    """Write the figure as one self-contained HTML page; raises `InputError` when the file cannot be written."""
    title = f"{document['objective']} of {document['strategy']}: where it equals strong-only, by load"
    write_figure(loads_figure(document), title, document, path)
