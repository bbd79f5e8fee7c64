"""Cost, time and success of the strategies at once: which are beaten by another in all three."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from dashboards import template
from dashboards.frames import axis_title
from dashboards.names import COLUMN_LABELS, STRATEGY_LABELS, label
from dashboards.units import Unit, is_number, unit_for, with_unit

_COSTS = ("usd", "energy_j", "traffic_bytes")
"""What stands for cost: the first that is known for at least two strategies."""


_CORNERS = ("top right", "bottom right", "top left", "bottom left")
"""Where the words stand, in turn: strategies often lie on top of each other."""


def pareto(document: Mapping[str, Any]) -> go.Figure:
    """Time over cost, a mark per strategy with its success beside it; open marks are beaten in all three.

    A strategy is beaten when another is no worse in time, cost and success, and better in one.

    Parameters
    ----------
    document : Mapping
        The JSON document of `specroof plan`. Strategies without time or cost are named under the axis.
    """
    strategies = list(document["strategies"])
    known = [c for c in _COSTS if sum(_value(s, c) is not None for s in strategies) >= min(2, len(strategies))]
    cost = known[0] if known else _COSTS[0]
    rows = [s for s in strategies if _value(s, cost) is not None and _value(s, "time_s") is not None]
    lacking = [label(str(s["name"]), STRATEGY_LABELS) for s in strategies if s not in rows]
    units = {c: unit_for(c, [_value(s, c) for s in rows]) for c in (cost, "time_s", "success")}
    figure = go.Figure()
    front = sorted(
        (s for s in rows if not _beaten(s, rows, cost)), key=lambda s: (_value(s, cost), _value(s, "time_s"))
    )
    figure.add_scatter(
        x=[_scaled(s, cost, units) for s in front],
        y=[_scaled(s, "time_s", units) for s in front],
        mode="lines",
        line={"color": template.RULE_COLOUR, "dash": "dot", "width": 1.5},
        name="not beaten",
        hoverinfo="skip",
    )
    for i, s in enumerate(rows):
        _mark(figure, s, cost, units, i, open_=s not in front)
    note = f"not known: {', '.join(lacking)}" if lacking else ""
    words = label(cost, COLUMN_LABELS).lower()
    figure.update_xaxes(title_text=axis_title(f"{words} per task ({units[cost].symbol})", note), rangemode="tozero")
    figure.update_yaxes(title_text=f"time per task ({units['time_s'].symbol})", rangemode="tozero")
    figure.update_layout(template=template.LIGHT, height=440, showlegend=True)
    return figure


def _mark(
    figure: go.Figure, s: Mapping[str, Any], cost: str, units: Mapping[str, Unit], corner: int, *, open_: bool
) -> None:
    name = str(s["name"])
    words = template.plain(template.shorten(label(name, STRATEGY_LABELS)))
    symbol = template.SOLID_SYMBOLS.get(name, "circle")
    colour = template.STRATEGY_COLOURS.get(name, template.FALLBACK_COLOUR)
    success = with_unit(_value(s, "success"), units["success"])
    figure.add_scatter(
        x=[_scaled(s, cost, units)],
        y=[_scaled(s, "time_s", units)],
        error_x=_ends(s, cost, units[cost]),
        error_y=_ends(s, "time_s", units["time_s"]),
        mode="markers+text",
        text=[success],
        textposition=_CORNERS[corner % len(_CORNERS)],
        marker={
            "size": 13,
            "symbol": symbol + "-open" if open_ else symbol,
            "color": colour,
            "line": {"width": 2, "color": colour},
        },
        name=words + (" (beaten)" if open_ else ""),
        customdata=[
            [with_unit(_value(s, "time_s"), units["time_s"]), with_unit(_value(s, cost), units[cost]), success]
        ],
        hovertemplate=f"{words}<br>time %{{customdata[0]}}<br>cost %{{customdata[1]}}"
        "<br>success %{customdata[2]}<extra></extra>",
    )


def _ends(s: Mapping[str, Any], column: str, unit: Unit) -> dict[str, Any]:
    e = s[column]
    low, high = (e["low"], e["high"]) if is_number(e.get("low")) and is_number(e.get("high")) else (e["value"],) * 2
    return {
        "type": "data",
        "array": [(high - e["value"]) * unit.factor],
        "arrayminus": [(e["value"] - low) * unit.factor],
        "thickness": 1,
        "width": 3,
    }


def _beaten(s: Mapping[str, Any], rows: list[Mapping[str, Any]], cost: str) -> bool:
    mine = _three(s, cost)
    others = (_three(o, cost) for o in rows if o is not s)
    return any(all(b <= a for a, b in zip(mine, o, strict=True)) and o != mine for o in others)


def _three(s: Mapping[str, Any], cost: str) -> tuple[float, float, float]:
    success = _value(s, "success")
    return _value(s, cost) or 0.0, _value(s, "time_s") or 0.0, -(0.0 if success is None else success)


def _value(s: Mapping[str, Any], column: str) -> float | None:
    e = s.get(column)
    found = e.get("value") if isinstance(e, Mapping) else e
    return float(found) if is_number(found) else None


def _scaled(s: Mapping[str, Any], column: str, units: Mapping[str, Unit]) -> float:
    return float(_value(s, column) or 0.0) * units[column].factor
