"""Results of a sweep: one quantity over one varied parameter, a line per strategy."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from dashboards import template
from dashboards.breakeven import axis_title as parameter_title
from dashboards.frames import require
from dashboards.names import COLUMN_LABELS, STRATEGY_LABELS, in_order, label
from dashboards.units import is_number, unit_for, with_unit

_RATIO = "ratio_"


def swept(frame: pd.DataFrame, x: str, y: str) -> go.Figure:
    """The median of `y` over the cells with the same `x`, with the range over them, one line per strategy.

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
    for name in in_order([str(s) for s in rows["strategy"]], STRATEGY_LABELS):
        if is_ratio and name == "strong_only":
            continue
        mine = rows[rows["strategy"] == name].groupby(x, sort=numeric)[y]
        middle, low, high = mine.median(), mine.min(), mine.max()
        words = template.plain(label(name, STRATEGY_LABELS))
        figure.add_scatter(
            x=[v if numeric else template.plain(v) for v in middle.index.tolist()],
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
            marker={"size": 8, "symbol": template.STRATEGY_SYMBOLS.get(name, "circle")},
            name=words,
            customdata=[with_unit(float(v), unit) for v in middle.tolist()],
            hovertemplate=f"{words}: %{{customdata}} at %{{x}}<extra></extra>",
        )
    if is_ratio:
        figure.add_hline(y=1.0, line={"color": template.RULE_COLOUR, "dash": "dot", "width": 1.5})
    title = (
        f"{label(y.removeprefix(_RATIO), {})}, ratio to strong only" if is_ratio else label(y, COLUMN_LABELS).lower()
    )
    figure.update_yaxes(title_text=title if is_ratio or not unit.symbol else f"{title} ({unit.symbol})")
    figure.update_xaxes(title_text=parameter_title(x))
    figure.update_layout(template=template.LIGHT, height=440, showlegend=True)
    return figure
