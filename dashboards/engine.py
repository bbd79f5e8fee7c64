"""An engine over time: its batch, its KV cache and its queue, one line per replica."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards import template
from dashboards.frames import require
from dashboards.units import unit_for

MOST_POINTS = 1500
"""Points of a line: more are thinned to the extremes of equal runs, so that no peak is lost."""

_PANELS = (
    ("n_decode", "sequences decoding"),
    ("kv_used_tokens", "KV cache (tokens)"),
    ("n_waiting", "jobs waiting"),
)
_DASHES = ("solid", "dash", "dot", "dashdot")


def engine_load(frame: pd.DataFrame) -> go.Figure:
    """Batch, KV cache and queue of every replica over the run's clock, as steps.

    Parameters
    ----------
    frame : pandas.DataFrame
        The frame `engine` of a run: columns `role`, `replica`, `start_s`, `time_s`, `n_decode`, `kv_used_tokens`,
        `n_waiting`.

    Raises
    ------
    InputError
        When a column is missing.
    """
    require(frame, ("role", "replica", "start_s", "time_s", *(c for c, _ in _PANELS)), "engine_load")
    unit = unit_for("time_s", [(frame["start_s"] + frame["time_s"]).max()])
    figure = make_subplots(rows=len(_PANELS), cols=1, shared_xaxes=True, vertical_spacing=0.07)
    ordered = frame.sort_values("start_s", kind="stable")
    groups = ordered[["role", "replica"]].drop_duplicates().sort_values(["role", "replica"]).to_dict("records")
    for group in groups:
        role, replica = str(group["role"]), int(group["replica"])
        part = ordered[(ordered["role"] == role) & (ordered["replica"] == replica)]
        for row, (column, words) in enumerate(_PANELS, start=1):
            values = part[column].to_numpy(dtype=float)
            kept = thinned(values, MOST_POINTS)
            figure.add_scatter(
                x=(part["start_s"].to_numpy(dtype=float)[kept] * unit.factor).tolist(),
                y=values[kept].tolist(),
                mode="lines",
                line={
                    "shape": "hv",
                    "width": 1.5,
                    "color": template.ROLE_COLOURS.get(role, template.FALLBACK_COLOUR),
                    "dash": _DASHES[replica % len(_DASHES)],
                },
                name=template.plain(f"{role} {replica}"),
                legendgroup=f"{role} {replica}",
                showlegend=row == 1,
                hovertemplate=f"{template.plain(role)} {replica}: %{{y:.4g}} {words} at %{{x:.4g}} {unit.symbol}"
                "<extra></extra>",
                row=row,
                col=1,
            )
    for row, (_, words) in enumerate(_PANELS, start=1):
        figure.update_yaxes(title_text=words, rangemode="tozero", row=row, col=1)
    figure.update_xaxes(title_text=f"time on the run's clock ({unit.symbol})", row=len(_PANELS), col=1)
    figure.update_layout(template=template.LIGHT, height=560, showlegend=True)
    return figure


def thinned(values: np.ndarray[Any, Any], most: int) -> np.ndarray[Any, Any]:
    """Indices of at most about `most` values: the lowest and the highest of each of `most / 2` equal runs, in order."""
    n = len(values)
    if n <= most:
        return np.arange(n)
    edges = np.linspace(0, n, most // 2 + 1).astype(int)
    kept = {0, n - 1}
    for low, high in pairwise(edges.tolist()):
        part = values[low:high]
        kept |= {low + int(part.argmin()), low + int(part.argmax())}
    return np.array(sorted(kept))
