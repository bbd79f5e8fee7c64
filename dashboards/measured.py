"""A real run beside its prediction: measured means over the predicted band, as ratios."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from dashboards import template
from dashboards.frames import axis_title
from dashboards.names import STRATEGY_LABELS, in_order, label
from dashboards.units import digits, is_number


def measured(document: Mapping[str, Any]) -> go.Figure:
    """Measured over predicted (1 = as predicted) of every metric and strategy, the predicted band as its bar.

    Parameters
    ----------
    document : Mapping
        The JSON document of `specroof validate`. Metrics predicted as zero are named under the axis.
    """
    strategies = in_order(list(document["measured"]), STRATEGY_LABELS)
    metrics = list(dict.fromkeys(m for s in strategies for m in document["measured"][s]))
    figure, lacking = go.Figure(), []
    for i, name in enumerate(strategies):
        x, y, up, down, words = [], [], [], [], []
        for row, metric in enumerate(metrics):
            value, p = document["measured"][name].get(metric), document["predicted"][name].get(metric)
            if not is_number(value) or p is None or not p["value"]:
                lacking.append(f"{metric.replace('_', ' ')} of {label(name, STRATEGY_LABELS).lower()}")
                continue
            x.append(value / p["value"])
            y.append(row + (i - (len(strategies) - 1) / 2) * min(0.2, 0.7 / max(1, len(strategies))))
            up.append((p["high"] - p["value"]) / p["value"])
            down.append((p["value"] - p["low"]) / p["value"])
            words.append([metric.replace("_", " "), digits(value), digits(p["value"])])
        colour = template.STRATEGY_COLOURS.get(name, template.FALLBACK_COLOUR)
        figure.add_scatter(
            x=[1.0] * len(x),
            y=y,
            error_x={"type": "data", "array": up, "arrayminus": down, "thickness": 6, "width": 0, "color": colour},
            mode="markers",
            marker={"size": 1, "color": colour},
            opacity=0.35,
            showlegend=False,
            hoverinfo="skip",
        )
        figure.add_scatter(
            x=x,
            y=y,
            mode="markers",
            marker={"size": 11, "symbol": template.STRATEGY_SYMBOLS.get(name, "circle"), "color": colour},
            name=template.plain(label(name, STRATEGY_LABELS)),
            customdata=words,
            hovertemplate="%{customdata[0]}: measured %{customdata[1]}, predicted %{customdata[2]}<extra></extra>",
        )
    figure.add_vline(x=1.0, line={"color": template.RULE_COLOUR, "dash": "dot", "width": 1.5})
    note = f"not predicted: {', '.join(dict.fromkeys(lacking))}" if lacking else ""
    figure.update_xaxes(title_text=axis_title("measured / predicted; bar: predicted 90 % band", note))
    figure.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(metrics))),
        ticktext=[template.plain(m.replace("_", " ")) for m in metrics],
        range=[max(1, len(metrics)) - 0.4, -0.6],
        showgrid=False,
    )
    figure.update_layout(template=template.LIGHT, height=190 + 60 * max(1, len(metrics)), showlegend=True)
    return figure
