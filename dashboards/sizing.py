"""Fleets that were tried: what they cost and how long the slowest tasks take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from dashboards import template
from dashboards.frames import axis_title
from dashboards.names import STRATEGY_LABELS, in_order, label
from dashboards.units import digits, is_number

_LIMIT = re.compile(r"^p95 trajectory_s <= ([0-9.eE+-]+)$")


def fleets(document: Mapping[str, Any]) -> go.Figure:
    """The 95 % point of the time per task over dollars an hour; filled marks meet the objectives, open ones do not.

    Parameters
    ----------
    document : Mapping
        The JSON document of `specroof size`. Fleets that were not simulated have no time and are counted under the
        axis.
    """
    rows = list(document["fleets"])
    timed = [r for r in rows if is_number(r["p95_s"]) and is_number(r["usd_per_h"])]
    figure = go.Figure()
    for name in in_order([str(r["strategy"]) for r in timed], STRATEGY_LABELS):
        mine = [r for r in timed if r["strategy"] == name]
        words = template.plain(label(name, STRATEGY_LABELS))
        symbol = template.SOLID_SYMBOLS.get(name, "circle")
        colour = template.STRATEGY_COLOURS.get(name, template.FALLBACK_COLOUR)
        figure.add_scatter(
            x=[r["usd_per_h"] for r in mine],
            y=[r["p95_s"] for r in mine],
            error_y={
                "type": "data",
                "array": [(r["high"] if is_number(r["high"]) else r["p95_s"]) - r["p95_s"] for r in mine],
                "arrayminus": [r["p95_s"] - (r["low"] if is_number(r["low"]) else r["p95_s"]) for r in mine],
                "thickness": 1.2,
                "width": 3,
            },
            mode="markers",
            marker={
                "size": 11,
                "symbol": [symbol if r["meets"] else f"{symbol}-open" for r in mine],
                "color": colour,
                "line": {"width": 2, "color": colour},
            },
            name=words,
            customdata=[[_fleet(r), "meets" if r["meets"] else "does not meet"] for r in mine],
            hovertemplate=f"{words}: %{{customdata[0]}}<br>$%{{x:.4g}} an hour, p95 %{{y:.4g}} s"
            "<br>%{customdata[1]} the objectives<extra></extra>",
        )
    for text in document["slos"]:
        limit = _LIMIT.match(str(text))
        if limit:
            figure.add_hline(
                y=float(limit[1]),
                line={"color": template.RULE_COLOUR, "dash": "dot", "width": 1.5},
                annotation={"text": template.plain(text), "font": {"size": 12}},
            )
    lost = len(rows) - len(timed)
    note = f"{lost} fleets overloaded or without a price, not drawn" if lost else ""
    figure.update_xaxes(title_text=axis_title("cost of the fleet (USD an hour)", note), rangemode="tozero")
    figure.update_yaxes(title_text="95 % of tasks done within (s)", rangemode="tozero")
    figure.update_layout(template=template.LIGHT, height=460, showlegend=True)
    return figure


def fleet_rows(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """The cheapest fleet of every strategy in words: one row each, the recommended one marked."""
    chosen = document.get("recommended") or {}
    rows = []
    for s in document["strategies"]:
        best = s["best"]
        settings = ", ".join(f"{k} = {v}" for k, v in s["settings"].items())
        row = {"strategy": label(str(s["strategy"]), STRATEGY_LABELS) + (f" ({settings})" if settings else "")}
        if best is None:
            row |= {"fleet": "–", "USD an hour": "–", "p95 (s)": "–", "note": str(s["reason"] or "none meets")}
        else:
            same = all(best[k] == chosen.get(k) for k in ("strategy", "settings", "weak_replicas", "strong_replicas"))
            row |= {
                "fleet": _fleet(best),
                "USD an hour": digits(best["usd_per_h"]),
                "p95 (s)": _ends(best),
                "note": "recommended" if same else "",
            }
        rows.append(row)
    return rows


def _ends(r: Mapping[str, Any]) -> str:
    if not is_number(r["p95_s"]):
        return "–"
    ends = f" ({digits(r['low'])} – {digits(r['high'])})" if is_number(r["low"]) and is_number(r["high"]) else ""
    return digits(r["p95_s"]) + ends


def _fleet(r: Mapping[str, Any]) -> str:
    return f"{r['weak_replicas']} weak + {r['strong_replicas']} strong"
