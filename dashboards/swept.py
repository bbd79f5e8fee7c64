"""Results of a sweep: one quantity over one varied parameter, a line per strategy with its interval."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from dashboards import template
from dashboards.breakeven import axis_title as parameter_title
from dashboards.frames import require
from dashboards.names import COLUMN_LABELS, STRATEGY_LABELS, in_order, label
from dashboards.units import is_number, unit_for, with_unit

_RATIO, _BASE = "ratio_", "strong_only"
RATIO_OF = {
    "time_s": "ratio_time",
    "traffic_bytes": "ratio_traffic",
    "flops": "ratio_flops",
    "energy_j": "ratio_energy",
    "usd": "ratio_money",
    "success": "ratio_success",
}
"""The column that holds a quantity's ratio to strong only."""

_QUANTILES = {
    "time_s_p50": "Median time",
    "time_s_p95": "95th percentile of time",
    "time_s_p99": "99th percentile of time",
}
METRICS: tuple[str, ...] = (*COLUMN_LABELS, *_QUANTILES)
"""Columns of a sweep that are drawn."""


def metric_label(column: str) -> str:
    """The words of a column of a sweep."""
    return label(column, COLUMN_LABELS | _QUANTILES)


def swept(frame: pd.DataFrame, x: str, y: str) -> go.Figure:
    """`y` over `x`, one line per strategy: with its 90 % interval where a cell stands for itself.

    Where several cells share an `x`, their median and the range over them.

    Parameters
    ----------
    frame : pandas.DataFrame
        Rows as `Sweep.frame()` gives them: `strategy`, the varied parameters, and columns such as `time_s` or
        `ratio_time`.
    x, y : str
        A varied parameter, and the column to draw.

    Raises
    ------
    InputError
        When a column is missing.
    """
    require(frame, ("strategy", x, y), "swept")
    rows = frame[frame[y].map(is_number).astype(bool)]
    is_ratio = y.startswith(_RATIO)
    unit = unit_for(y, rows[y].tolist())
    numeric = pd.api.types.is_numeric_dtype(rows[x])
    figure = go.Figure()
    names = [n for n in in_order([str(s) for s in rows["strategy"]], STRATEGY_LABELS) if not is_ratio or n != _BASE]
    shift = 0.008 * float(rows[x].max() - rows[x].min()) if numeric and len(rows) else 0.0
    for i, name in enumerate(names):
        aside = shift * (i - (len(names) - 1) / 2)  # so that the bars of strategies do not hide each other
        middle, low, high = _summary(rows[rows["strategy"] == name], x, y, numeric)
        words = template.plain(label(name, STRATEGY_LABELS))
        figure.add_scatter(
            x=[v + aside if numeric else template.plain(v) for v in middle.index.tolist()],
            y=(middle * unit.factor).tolist(),
            error_y={
                "type": "data",
                "array": ((high - middle) * unit.factor).tolist(),
                "arrayminus": ((middle - low) * unit.factor).tolist(),
                "thickness": 1,
                "width": 3,
                "visible": bool((high > low).any()),
            },
            mode="lines+markers",
            line={"color": template.STRATEGY_COLOURS.get(name, template.FALLBACK_COLOUR), "width": 2},
            marker={"size": 8, "symbol": template.SOLID_SYMBOLS.get(name, "circle")},
            name=words,
            customdata=[
                [with_unit(float(m), unit), with_unit(float(a), unit), with_unit(float(b), unit), f"{at}"]
                for at, m, a, b in zip(middle.index, middle, low, high, strict=True)
            ],
            hovertemplate=f"{words}: %{{customdata[0]}} [%{{customdata[1]}}, %{{customdata[2]}}] at %{{customdata[3]}}"
            "<extra></extra>",
        )
    if is_ratio:
        figure.add_hline(y=1.0, line={"color": template.RULE_COLOUR, "dash": "dot", "width": 1.5})
    title = f"{label(y.removeprefix(_RATIO), {})}, ratio to strong only" if is_ratio else metric_label(y).lower()
    figure.update_yaxes(title_text=title if is_ratio or not unit.symbol else f"{title} ({unit.symbol})")
    figure.update_xaxes(title_text=parameter_title(x))
    figure.update_layout(template=template.LIGHT, height=440, showlegend=True)
    return figure


def is_single(frame: pd.DataFrame, x: str) -> bool:
    """Whether every strategy has one cell per value of `x`."""
    return not frame.duplicated(["strategy", x]).any()


def _summary(rows: pd.DataFrame, x: str, y: str, numeric: bool) -> tuple[pd.Series, pd.Series, pd.Series]:
    """The middle and both ends of `y` per value of `x`."""
    by = rows.groupby(x, sort=numeric)
    if is_single(rows, x) and {f"{y}_low", f"{y}_high"} <= set(rows):
        return by[y].first(), by[f"{y}_low"].first(), by[f"{y}_high"].first()
    return by[y].median(), by[y].min(), by[y].max()
