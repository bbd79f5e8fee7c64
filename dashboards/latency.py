"""Distributions of the time a task took, one curve per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from dashboards import template
from dashboards.names import STRATEGY_LABELS, label
from dashboards.units import is_number, unit_for, with_unit

_MOST_POINTS = 400
_MARKS = (0.5, 0.95, 0.99)
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def latencies(runs: Sequence[Mapping[str, object]]) -> go.Figure:
    """The share of tasks done within a time, with marks at the median, 95 % and 99 %.

    F(t) = (number of tasks with time_s <= t) / n

    Parameters
    ----------
    runs : sequence of mappings
        Each with `strategy`, `label` and `time_s` (sequence of seconds; what is no number is left out and counted in
        the legend).
    """
    found = []
    for run in runs:
        given = list(run["time_s"])  # type: ignore[call-overload]  # a column of seconds
        times = np.sort(np.array([float(t) for t in given if is_number(t)]))
        found.append((str(run["strategy"]), str(run["label"]), times, len(given) - len(times)))
    unit = unit_for("time_s", [float(t[-1]) for _, _, t, _ in found if len(t)])
    figure = go.Figure()
    seen: dict[str, int] = {}
    for strategy, words, times, lost in found:
        count = seen[strategy] = seen.get(strategy, -1) + 1
        if not len(times):
            continue
        shares = np.linspace(0.0, 1.0, min(_MOST_POINTS, len(times) + 1))
        places = np.quantile(times, shares, method="inverted_cdf")
        name = template.plain(template.shorten(words)) + (f" ({lost} unfinished)" if lost else "")
        colour = template.STRATEGY_COLOURS.get(strategy, template.FALLBACK_COLOUR)
        figure.add_scatter(
            x=(places * unit.factor).tolist(),
            y=(shares * 100.0).tolist(),
            mode="lines",
            line={"shape": "hv", "width": 2, "color": colour, "dash": _DASHES[count % len(_DASHES)]},
            name=name,
            legendgroup=name,
            hovertemplate=f"{name}: %{{y:.0f}} % within %{{x:.3g}} {unit.symbol}<extra></extra>",
        )
        marks = np.quantile(times, _MARKS, method="inverted_cdf")
        figure.add_scatter(
            x=(marks * unit.factor).tolist(),
            y=[m * 100.0 for m in _MARKS],
            mode="markers",
            marker={"size": 8, "color": colour, "symbol": template.STRATEGY_SYMBOLS.get(strategy, "circle")},
            customdata=[with_unit(float(m), unit) for m in marks],
            hovertemplate="p%{y:.0f}: %{customdata}<extra></extra>",
            showlegend=False,
            legendgroup=name,
        )
    figure.update_xaxes(title_text=f"time per task ({unit.symbol})", rangemode="tozero")
    figure.update_yaxes(title_text="tasks done (%)", range=[0, 102])
    figure.update_layout(template=template.LIGHT, height=420, showlegend=True)
    return figure


def strategy_label(strategy: str, seed: object) -> str:
    """The words for one run: its strategy and its seed."""
    return f"{label(strategy, STRATEGY_LABELS)}, seed {seed}"
