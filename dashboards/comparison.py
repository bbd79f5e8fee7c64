"""Figures that hold strategies against strong only: ratios with intervals, and ratios over the window."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dashboards import template
from dashboards.frames import axis_title, require
from dashboards.names import HIGHER_IS_BETTER, OBJECTIVE_LABELS, STRATEGY_LABELS, in_order, label
from dashboards.units import digits, is_number

SAME = "same as strong only"
AXIS = "ratio to strong only (log scale)"
_TICKS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_DECADES = tuple(10.0**power for power in range(1, 16))
_RULE = {"color": template.RULE_COLOUR, "width": 1.5, "dash": "dot"}
_ROW_PX = 26
_GAP_PX = 110
_SMALLEST_SPAN = 1.15


def ratios(frame: pd.DataFrame) -> go.Figure:
    """Each strategy's ratio to strong only with its interval, one band per objective, on a logarithmic axis.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns `strategy`, `objective`, `value`, `low`, `high` (ratios, 1 = same as strong only). Rows without a
        value are listed under the figure as not known; a value of zero is drawn at the left edge.

    Raises
    ------
    InputError
        When a column is missing.
    """
    require(frame, ("strategy", "objective", "value", "low", "high"), "ratios")
    return go.Figure(ratio_parts(frame.to_dict("records"))).update_layout(template=template.LIGHT)


def ratio_parts(rows: Sequence[Mapping[Hashable, Any]]) -> dict[str, Any]:
    """The same as plain `data` and `layout` for plotly.js, without template: made in a tenth of the time.

    Parameters
    ----------
    rows : sequence of mappings
        Each with the columns of `ratios`.
    """
    rows = [r for r in rows if r["strategy"] != "strong_only"]
    objectives = in_order([r["objective"] for r in rows if is_number(r["value"])], OBJECTIVE_LABELS)
    less = [name for name in objectives if name not in HIGHER_IS_BETTER]
    more = [name for name in objectives if name in HIGHER_IS_BETTER]
    panels = [panel for panel in (less, more) if panel]
    strategies = in_order([r["strategy"] for r in rows], STRATEGY_LABELS)
    bands_px = _ROW_PX * max(2, len(strategies)) * max(1, len(objectives))
    gap = _GAP_PX / (bands_px + _GAP_PX) if len(panels) > 1 else 0.0
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"shapes": [], "annotations": []}
    top = 1.0
    for index, panel in enumerate(panels, start=1):
        part = [r for r in rows if r["objective"] in panel]
        span = _span(part)
        named = {t["legendgroup"] for t in data}
        drawn = [_ratio_trace(part, panel, span, s, _offset(i, len(strategies))) for i, s in enumerate(strategies)]
        n = str(index) if index > 1 else ""
        axes = {"xaxis": f"x{n}", "yaxis": f"y{n}"}
        data += [{**t, "showlegend": t["legendgroup"] not in named, **axes} for t in drawn if t]
        foot = top - (1.0 - gap * (len(panels) - 1)) * len(panel) / len(objectives)
        _ratio_axes(layout, panel, span, n, (max(0.0, round(foot, 12)), top), wins_left=panel is less)
        top = foot - gap
    last = f"xaxis{len(panels) if len(panels) > 1 else ''}"
    layout.setdefault(last, {})["title"] = {"text": axis_title(AXIS, _not_known(rows))}
    height = bands_px + _GAP_PX * len(panels) + 110
    return {"data": data, "layout": {**layout, "height": height, "margin": {"t": 44}, "showlegend": True}}


def windows(frame: pd.DataFrame) -> go.Figure:
    """Each objective's ratio to strong only as the window grows, on a logarithmic axis.

    Parameters
    ----------
    frame : pandas.DataFrame
        Column `window` (steps) and one column per objective holding ratios; gaps where a ratio is not known.

    Raises
    ------
    InputError
        When the column `window` is missing.
    """
    require(frame, ("window",), "windows")
    ordered = frame.sort_values("window", kind="stable")
    objectives = in_order([c for c in ordered.columns if c != "window"], OBJECTIVE_LABELS)
    figure = go.Figure()
    drawn: list[float] = []
    for name in objectives:
        values = [float(v) if is_number(v) and v > 0 else None for v in ordered[name].tolist()]
        if not any(v is not None for v in values):
            continue
        drawn += [v for v in values if v is not None]
        colour = template.OBJECTIVE_COLOURS.get(name, template.FALLBACK_COLOUR)
        words = template.plain(label(name, OBJECTIVE_LABELS))
        better = " (more is better)" if name in HIGHER_IS_BETTER else ""
        figure.add_scatter(
            x=ordered["window"].tolist(),
            y=values,
            name=words + better,
            mode="lines+markers",
            line={"color": colour, "width": 2, "dash": template.OBJECTIVE_DASHES.get(name, "solid")},
            marker={"size": 7},
            hovertemplate=f"{words}: %{{y:.3g}} at window %{{x}}<extra></extra>",
        )
    span = widened(drawn)
    ends = [ordered["window"].min(), ordered["window"].max()]
    figure.add_scatter(x=ends, y=[1.0, 1.0], name=SAME, mode="lines", line=_RULE, hoverinfo="skip")
    figure.update_yaxes(title_text=AXIS, **_log_axis(span))
    figure.update_xaxes(title_text="window (steps)", tickmode="array", tickvals=ordered["window"].unique().tolist())
    figure.update_layout(template=template.LIGHT, height=420, showlegend=True)
    return figure


def _ratio_trace(
    part: Sequence[Mapping[Hashable, Any]], panel: list[str], span: tuple[float, float], name: str, offset: float
) -> dict[str, Any] | None:
    """One strategy's marks in a panel; None where it has no ratio there."""
    mine = {str(r["objective"]): r for r in part if r["strategy"] == name}
    known = [o for o in panel if o in mine and is_number(mine[o]["value"])]
    if not known:
        return None
    values = [float(mine[o]["value"]) for o in known]
    shown = [min(max(v, span[0]), span[1]) for v in values]
    ends = [[_end(mine[o][side], v, span) for o, v in zip(known, shown, strict=True)] for side in ("low", "high")]
    words = template.plain(template.shorten(label(name, STRATEGY_LABELS)))
    symbol = template.STRATEGY_SYMBOLS.get(name, "circle")
    return {
        "type": "scatter",
        "x": shown,
        "y": [panel.index(o) + offset for o in known],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "arrayminus": [v - low for v, low in zip(shown, ends[0], strict=True)],
            "array": [high - v for v, high in zip(shown, ends[1], strict=True)],
            "thickness": 2,
            "width": 4,
        },
        "mode": "markers",
        "marker": {
            "size": 10,
            "symbol": [symbol if v > 0 else "arrow-bar-left" for v in values],
            "color": template.STRATEGY_COLOURS.get(name, template.FALLBACK_COLOUR),
        },
        "name": words,
        "legendgroup": name,
        "customdata": [[template.plain(label(o, OBJECTIVE_LABELS)), _words(mine[o])] for o in known],
        "hovertemplate": f"{words}<br>%{{customdata[0]}}: %{{customdata[1]}}<extra></extra>",
    }


def _ratio_axes(
    layout: dict[str, Any],
    panel: list[str],
    span: tuple[float, float],
    n: str,
    domain: tuple[float, float],
    *,
    wins_left: bool,
) -> None:
    """A panel's axes and what stands on them."""
    x, y = f"x{n}", f"y{n}"
    edges = (math.log10(span[0]), 0.0, math.log10(span[1]))
    won = edges[:2] if wins_left else edges[1:]
    upright = {"xref": x, "yref": f"{y} domain", "y0": 0, "y1": 1}
    tint = {"fillcolor": template.WIN_TINT, "line": {"width": 0}, "layer": "below"}
    layout["shapes"] += [
        {"type": "rect", "x0": 10 ** won[0], "x1": 10 ** won[1], **tint, **upright},
        {"type": "line", "x0": 1, "x1": 1, "line": _RULE, **upright},
    ]
    above = {"y": 1, "yref": f"{y} domain", "yanchor": "bottom", "showarrow": False}
    sides = ("◀ wins", "loses ▶") if wins_left else ("◀ loses", "wins ▶")
    place = (0.0 - edges[0]) / (edges[2] - edges[0])
    anchor = "left" if place < 0.25 else "right" if place > 0.75 else "center"
    layout["annotations"] += [
        *(
            {"text": text, "x": at, "xref": f"{x} domain", "xanchor": side, "font": {"size": 12}, **above}
            for text, at, side in ((sides[0], 0.0, "left"), (sides[1], 1.0, "right"))
        ),
        {"text": SAME, "x": 0, "xref": x, "xanchor": anchor, "yshift": 18, "font": {"size": 11}, **above},
    ]
    layout[f"xaxis{n}"] = {"anchor": y, "domain": [0.0, 1.0], "title": {"text": AXIS}, **_log_axis(span)}
    layout[f"yaxis{n}"] = {
        "anchor": x,
        "domain": list(domain),
        "tickmode": "array",
        "tickvals": list(range(len(panel))),
        "ticktext": [template.plain(template.shorten(label(o, OBJECTIVE_LABELS), 24)) for o in panel],
        "range": [len(panel) - 0.45, -0.55],
        "showgrid": False,
    }


def ratio_span(frame: pd.DataFrame) -> tuple[float, float]:
    """The ends of a logarithmic axis that shows every positive ratio and interval of `frame`, with 1 inside it."""
    return _span(frame.to_dict("records"))


def _span(rows: Sequence[Mapping[Hashable, Any]]) -> tuple[float, float]:
    return widened([float(r[column]) for r in rows for column in ("value", "low", "high") if is_number(r[column])])


def widened(values: list[float]) -> tuple[float, float]:
    """The ends of a logarithmic ratio axis around the positive ones of `values`, with 1 inside and some air."""
    positive = [v for v in values if v > 0]
    low, high = min([1 / _SMALLEST_SPAN, *positive]), max([_SMALLEST_SPAN, *positive])
    air = (high / low) ** 0.06
    return low / air, high * air


def _log_axis(span: tuple[float, float]) -> dict[str, Any]:
    """Range and ticks of a logarithmic ratio axis: round ratios outwards from 1, far enough apart for a phone."""
    apart = (span[1] / span[0]) ** (1 / 6.5)
    ticks = [1.0]
    for sign in (1, -1):
        last = 1.0
        for step in _TICKS[1:] if apart < 2.5 else _DECADES:
            if step >= last * apart and span[0] <= step**sign <= span[1]:
                last = step
                ticks.append(step**sign)
    ticks.sort()
    return {
        "type": "log",
        "range": [math.log10(span[0]), math.log10(span[1])],
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [_tick(t) for t in ticks],
        "tickangle": 0,
    }


def _tick(ratio: float) -> str:
    text = digits(ratio, 3 if ratio == 1.25 else 2)
    return text.rstrip("0").rstrip(".") if "." in text and "×" not in text else text


def _offset(place: int, n: int) -> float:
    return (place - (n - 1) / 2) * min(0.22, 0.8 / max(1, n))


def _end(value: object, fallback: float, span: tuple[float, float]) -> float:
    return min(max(float(value), span[0]), span[1]) if is_number(value) else fallback


def _not_known(rows: Sequence[Mapping[Hashable, Any]]) -> str:
    """The objectives that no strategy has a ratio for, and the single ratios missing from the others."""
    lacking: list[str] = []
    for objective in in_order([r["objective"] for r in rows], OBJECTIVE_LABELS):
        part = [r for r in rows if r["objective"] == objective]
        without = [label(r["strategy"], STRATEGY_LABELS) for r in part if not is_number(r["value"])]
        whose = "" if len(without) == len(part) else f" ({', '.join(without)})"
        if without:
            lacking.append(label(objective, OBJECTIVE_LABELS).lower() + whose)
    return f"not known: {', '.join(lacking)}" if lacking else ""


def _words(row: Mapping[Hashable, Any]) -> str:
    low, high = row["low"], row["high"]
    ends = f" ({digits(low)} – {digits(high)})" if is_number(low) and is_number(high) else ""
    return digits(float(row["value"])) + ends
