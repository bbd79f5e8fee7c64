"""Sweep results: a quantity over a varied parameter, by strategy, from saved studies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash
import pandas as pd
from dash import Input, Output, State, dcc, html

from dashboards import figures, parts, query
from dashboards.desk import Desk
from dashboards.names import STRATEGY_LABELS, label
from dashboards.pages import runs, showing
from dashboards.pages.showing import Shown
from dashboards.sweeps import SavedSweep
from dashboards.swept import METRICS, RATIO_OF, is_single, metric_label
from dashboards.units import Unit, is_number, shown, unit_for
from hwprofiles.errors import InputError

PATH, TITLE, PAGE = "/sweeps", "Sweeps", "sweeps"
_ALL = "all"
_MOST_VALUES = 60
_MOST_ROWS = 200
_NONE = "No sweep was given. Save one and name its study, its rows (CSV, parquet), or a folder of studies:"
_COMMAND = (
    "specroof sweep retail-h200 --vary acceptance=0.6:0.98:20 --vary window=1,2,4,8 --study sweep.sqlite\n"
    "specroof dashboard sweep.sqlite"
)


def layout(desk: Desk, asked: Mapping[str, str]) -> Any:
    """The page, its knobs where the URL says."""
    sweeps = desk.shelf.sweeps
    if not sweeps:
        return runs.none_given(TITLE, _NONE, _COMMAND)
    number = query.choice(asked, "sweep", [str(i) for i in range(len(sweeps))], "0")
    found = sweeps[int(number)]
    x = query.choice(asked, "x", found.varied, found.varied[0])
    known = [m for m in METRICS if found.frame[m].notna().any()]
    knobs = [
        parts.select(PAGE, "sweep", "Sweep", [(str(i), s.label) for i, s in enumerate(sweeps)], number),
        parts.select(PAGE, "x", "Over", [(v, label(v, {})) for v in found.varied], x),
        parts.select(
            PAGE, "y", "Quantity", [(m, metric_label(m)) for m in known], query.choice(asked, "y", known, known[0])
        ),
        *(_held(found, name, asked) for name in found.varied if name != x),
    ]
    lead = (
        "Saved results of specroof sweep: a line per strategy, with its 90 % interval where every mark is one cell; "
        "over several cells their median, and the range they span."
    )
    opened = dcc.Store(id="sweeps-opened", data=[number, x])
    return parts.page(TITLE, lead, knobs, [showing.place(PAGE), opened])


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""

    @app.callback(
        Output("content", "children", allow_duplicate=True),
        Input(parts.knob(PAGE, "sweep"), "value"),
        Input(parts.knob(PAGE, "x"), "value"),
        State(parts.knob(PAGE, "y"), "value"),
        State("sweeps-opened", "data"),
        prevent_initial_call=True,
    )
    def reopen(sweep: str, x: str, y: str, opened: list[str]) -> Any:
        """Another sweep, or another parameter to draw over, has other knobs."""
        if [sweep, x] == opened:
            return dash.no_update
        return layout(desk, {"sweep": sweep, "x": x, "y": y})

    showing.register(app, PAGE, lambda at: _answer(desk.shelf.sweep(at.get("sweep")), at))


def _held(found: SavedSweep, name: str, asked: Mapping[str, str]) -> Any:
    """Hold another varied parameter at one of its values, or take all of its cells."""
    values = [str(v) for v in sorted(found.frame[name].dropna().unique().tolist())]
    repeats = len(values) < found.frame["cell"].nunique() and len(values) <= _MOST_VALUES
    default = values[len(values) // 2] if repeats else _ALL
    options = [(_ALL, "all of its values"), *((v, _short(v)) for v in values[:_MOST_VALUES])]
    value = query.choice(asked, name, [v for v, _ in options], default)
    return parts.select(PAGE, name, f"Only where {label(name, {})} is", options, value)


def _answer(found: SavedSweep, at: Mapping[str, Any]) -> Shown:
    frame, held = found.frame, []
    x = str(at.get("x"))
    for name in found.varied:
        value = at.get(name)
        if name != x and value not in (None, _ALL):
            frame = frame[frame[name].astype(str) == value]
            held.append(f"{label(name, {})} {_short(str(value))}")
    y = str(at.get("y"))
    if x not in found.varied or y not in METRICS or frame.empty:
        raise InputError("the sweep has no such cell; choose again")
    where = f", {', '.join(held)}" if held else ""
    drawn = [(f"{metric_label(y)} over {label(x, {})}{where}", figures.swept(frame, x, y))]
    ratio = RATIO_OF.get(y)
    if ratio is not None and frame[ratio].notna().any():
        drawn.append((f"{metric_label(y)} against strong only{where}", figures.swept(frame, x, ratio)))
    note = "" if is_single(frame, x) else "Marks are medians over several cells, bars the range over them. "
    return Shown(
        figures=drawn,
        data=found.frame,
        document={"scenario": found.scenario} if found.scenario else {},
        above=[html.P(note + "; ".join(found.notes), className="soft")] if note or found.notes else [],
        below=[parts.table(_rows(frame, found.varied, y), _caption(len(frame)))],
    )


def _caption(n: int) -> str:
    return "Cells" if n <= _MOST_ROWS else f"The first {_MOST_ROWS} of {n:,} rows; the files hold all"


def _rows(frame: pd.DataFrame, varied: tuple[str, ...], y: str) -> list[dict[str, object]]:
    unit = unit_for(y, frame[y].tolist())
    ratio = RATIO_OF.get(y)
    heading = metric_label(y) + (f" ({unit.symbol})" if unit.symbol else "")
    return [
        {
            **{label(v, {}): _short(str(row[v])) for v in varied},
            "strategy": label(str(row["strategy"]), STRATEGY_LABELS),
            heading: _banded(row, y, unit),
            **({"ratio to strong only": _banded(row, ratio, Unit(factor=1.0, symbol=""))} if ratio else {}),
        }
        for row in frame.head(_MOST_ROWS).to_dict("records")
    ]


def _banded(row: Mapping[Any, Any], column: str, unit: Unit) -> str:
    ends = [row.get(f"{column}_{end}") for end in ("low", "high")]
    if not all(is_number(e) for e in ends):
        return shown(row[column], unit)
    return f"{shown(row[column], unit)} ({shown(ends[0], unit)} – {shown(ends[1], unit)})"


def _short(text: str) -> str:
    """A number with few digits; other texts as they are."""
    try:
        return f"{float(text):.4g}" if "." in text else text
    except ValueError:
        return text
