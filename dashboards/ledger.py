"""Figures of where the work goes: quantities by phase, and one trajectory over time."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards import template
from dashboards.frames import axis_title, require
from dashboards.names import COLUMN_LABELS, PHASE_LABELS, STRATEGY_LABELS, in_order, label
from dashboards.units import is_number, unit_for, with_unit
from hwprofiles.errors import unknown_name

PHASE_QUANTITIES: tuple[str, ...] = ("time_s", "traffic_bytes", "flops", "energy_j")
LANES: tuple[str, ...] = ("weak", "strong", "tools", "network")
_ORDER = dict.fromkeys(template.PHASE_COLOURS, "")


def phases(frame: pd.DataFrame, quantity: str) -> go.Figure:
    """One stacked bar per strategy: `quantity` split into the phases, families of phases sharing a hue.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns `strategy`, `phase` and `quantity` (SI base unit); a strategy all of whose cells are missing is said
        to be not known where its bar would be.
    quantity : str
        One of `PHASE_QUANTITIES`.

    Raises
    ------
    InputError
        When `quantity` is not known or a column is missing.
    """
    if quantity not in PHASE_QUANTITIES:
        raise unknown_name("quantity", quantity, PHASE_QUANTITIES)
    require(frame, ("strategy", "phase", quantity), "phases")
    rows = frame.assign(**{quantity: pd.to_numeric(frame[quantity], errors="coerce")}).to_dict("records")
    return go.Figure(phase_parts(rows, quantity)).update_layout(template=template.LIGHT)


def phase_parts(rows: Sequence[Mapping[Hashable, Any]], quantity: str) -> dict[str, Any]:
    """The same as plain `data` and `layout` for plotly.js, without template: made in a tenth of the time.

    Parameters
    ----------
    rows : sequence of mappings
        Each with the columns of `phases`.
    quantity : str
        One of `PHASE_QUANTITIES`.
    """
    strategies = in_order([r["strategy"] for r in rows], STRATEGY_LABELS)
    sums: dict[tuple[str, str], float] = {}
    for r in rows:
        if is_number(r[quantity]):
            sums[r["phase"], r["strategy"]] = sums.get((r["phase"], r["strategy"]), 0.0) + float(r[quantity])
    lengths = [sum(v for (_, s), v in sums.items() if s == strategy) for strategy in strategies]
    unit = unit_for(quantity, lengths)
    data = []
    for phase in in_order([r["phase"] for r in rows], _ORDER):
        shown = [sums.get((phase, s)) for s in strategies]
        if not any(shown):
            continue
        words = template.plain(label(phase, PHASE_LABELS))
        cells = zip(strategies, shown, strict=True)
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "y": list(range(len(strategies))),
                "x": [v * unit.factor if v is not None else None for v in shown],
                "name": words,
                "marker": _paint(phase),
                "customdata": [[template.plain(label(s, STRATEGY_LABELS)), with_unit(v, unit)] for s, v in cells],
                "hovertemplate": f"%{{customdata[0]}}<br>{words}: %{{customdata[1]}}<extra></extra>",
            }
        )
    lacking = [i for i, s in enumerate(strategies) if not any(of == s for _, of in sums)]
    plain = {"x": 0, "xanchor": "left", "xshift": 4, "showarrow": False, "font": {"size": 13, "style": "italic"}}
    title = f"{label(quantity, COLUMN_LABELS).lower()} ({unit.symbol})"
    layout = {
        "xaxis": {"title": {"text": title}, "range": [0, 1.03 * unit.factor * max([0.0, *lengths]) or 1.0]},
        "yaxis": {
            "tickmode": "array",
            "tickvals": list(range(len(strategies))),
            "ticktext": [_broken(label(s, STRATEGY_LABELS)) for s in strategies],
            "range": [len(strategies) - 0.4, -0.6],
            "showgrid": False,
        },
        "annotations": [{"text": "not known", "y": i, **plain} for i in lacking],
        "barmode": "stack",
        "height": 190 + 52 * max(1, len(strategies)),
        "showlegend": True,
    }
    return {"data": data, "layout": layout}


def timeline(frame: pd.DataFrame) -> go.Figure:
    """One trajectory under each strategy: who is busy when, one row per lane, on a shared clock.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns `strategy`, `start_s`, `end_s`, `lane` (`weak`, `strong`, `tools`, `network`), `phase`, `step`, `label`.
        Spans without a start or an end are counted under the axis and not drawn.

    Raises
    ------
    InputError
        When a column is missing.
    """
    require(frame, ("strategy", "start_s", "end_s", "lane", "phase", "step", "label"), "timeline")
    timed = frame["start_s"].map(is_number) & frame["end_s"].map(is_number)
    spans = frame[timed].astype({"start_s": float, "end_s": float})
    strategies = in_order(list(frame["strategy"]), STRATEGY_LABELS)
    unit = unit_for("time_s", spans["end_s"].tolist())
    lanes = {s: in_order(list(spans.loc[spans["strategy"] == s, "lane"]), dict.fromkeys(LANES, "")) for s in strategies}
    sizes = [max(1, len(lanes[s])) for s in strategies]
    inner_px = 30 * sum(sizes) + 42 * max(0, len(strategies) - 1)
    figure = make_subplots(
        rows=max(1, len(strategies)),
        cols=1,
        shared_xaxes=True,
        row_heights=[float(n) for n in sizes] or None,
        vertical_spacing=42 / inner_px if len(strategies) > 1 else 0.0,
    )
    named: set[str] = set()
    for row, strategy in enumerate(strategies, start=1):
        mine = spans[spans["strategy"] == strategy]
        for phase in in_order(list(mine["phase"]), _ORDER):
            _spans(figure, mine[mine["phase"] == phase], lanes[strategy], phase, unit.factor, row, named)
        axis = f"y{row if row > 1 else ''}"
        figure.add_annotation(
            text=f"<b>{template.plain(template.shorten(label(strategy, STRATEGY_LABELS)))}</b>", showarrow=False,
            x=0, xref="paper", xanchor="left", y=1, yref=f"{axis} domain", yanchor="bottom", font={"size": 13},
        )  # fmt: skip
        names = [template.plain(template.shorten(lane, 18)) for lane in lanes[strategy]]
        figure.update_yaxes(
            tickmode="array", tickvals=list(range(len(names))), ticktext=names, showgrid=False,
            range=[sizes[row - 1] - 0.4, -0.6], row=row, col=1,
        )  # fmt: skip
    untimed = int((~timed).sum())
    note = f"{untimed} span{'s' if untimed != 1 else ''} without a start or an end not drawn" if untimed else ""
    figure.update_xaxes(rangemode="tozero", showgrid=True)
    title = axis_title(f"time since the task began ({unit.symbol})", note)
    figure.update_xaxes(title_text=title, row=max(1, len(strategies)), col=1)
    figure.update_layout(
        template=template.LIGHT,
        barmode="overlay",
        height=inner_px + 150,
        margin={"t": 28},
        showlegend=True,
    )
    return figure


def _spans(
    figure: go.Figure, part: pd.DataFrame, lanes: list[str], phase: str, factor: float, row: int, named: set[str]
) -> None:
    starts = [s * factor for s in part["start_s"].tolist()]
    ends = [e * factor for e in part["end_s"].tolist()]
    texts = [template.plain(template.shorten(str(text))) for text in part["label"].tolist()]
    words = template.plain(label(phase, PHASE_LABELS))
    figure.add_bar(
        orientation="h",
        y=[lanes.index(lane) for lane in part["lane"].tolist()],
        base=starts,
        width=0.72,
        x=[end - start for start, end in zip(starts, ends, strict=True)],
        name=words,
        legendgroup=phase,
        showlegend=phase not in named,
        marker=_paint(phase),
        customdata=[list(item) for item in zip(part["step"].tolist(), texts, starts, ends, strict=True)],
        hovertemplate=f"{words}, step %{{customdata[0]}}<br>%{{customdata[1]}}"
        "<br>%{customdata[2]:.3f} to %{customdata[3]:.3f}<extra></extra>",
        row=row,
        col=1,
    )
    named.add(phase)


def _paint(phase: str) -> dict[str, object]:
    paint: dict[str, object] = {
        "color": template.PHASE_COLOURS.get(phase, template.FALLBACK_COLOUR),
        "line": {"width": 0.5, "color": "rgba(120,120,120,0.6)"},
    }
    if phase in template.HATCHED:
        paint["pattern"] = {"shape": "/", "size": 6, "solidity": 0.25, "fgcolor": "rgba(255,255,255,0.75)"}
        paint["pattern"] |= {"fillmode": "overlay"}  # type: ignore[operator]  # pattern is a dict
    return paint


def _broken(text: str) -> str:
    """A long bar label on several lines, so that the bars keep their room on a phone."""
    return "<br>".join(template.plain(line) for line in textwrap.wrap(template.shorten(text, 48), 13))
