"""What a verdict's spread comes from: Sobol indices as bars, largest on top."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from dashboards import template
from dashboards.frames import axis_title
from dashboards.names import OBJECTIVE_LABELS, label
from hwprofiles.errors import unknown_name

_MOST_BARS = 12


def tornado(document: Mapping[str, Any], objective: str) -> go.Figure:
    """Share of the variance of the log ratio that each input brings: alone (solid) and with all it acts with (pale).

    Parameters
    ----------
    document : Mapping
        The JSON document of `specroof sensitivity`.
    objective : str
        One of its objectives.

    Raises
    ------
    InputError
        An objective that the document does not have.
    """
    if objective not in document["objectives"]:
        raise unknown_name("objective", objective, document["objectives"])
    found = document["objectives"][objective]
    sources = sorted(found["sources"], key=lambda s: -s["total"])
    shown, rest = sources[:_MOST_BARS], sources[_MOST_BARS:]
    names = ["<br>".join(template.plain(t) for t in textwrap.wrap(str(s["name"]), 22)) for s in shown]
    colour = template.OBJECTIVE_COLOURS.get(objective, template.FALLBACK_COLOUR)
    figure = go.Figure()
    pale = "rgba({}, {}, {}, 0.35)".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))
    for key, words, paint, width in (("total", "with all it acts with", pale, 0.7), ("first", "alone", colour, 0.4)):
        figure.add_bar(
            orientation="h",
            y=list(range(len(shown))),
            x=[100.0 * max(0.0, s[key]) for s in shown],
            width=width,
            name=words,
            marker={"color": paint},
            customdata=[template.plain(s["measure"]) for s in shown],
            hovertemplate=f"%{{x:.1f}} % {words}<br>%{{customdata}}<extra></extra>",
        )
    note = f"{len(rest)} smaller ones not drawn" if rest else "" if shown else "nothing uncertain moves the ratio"
    words = label(objective, OBJECTIVE_LABELS).lower()
    title = f"share of the {words} ratio’s<br>spread (%)"
    figure.update_xaxes(title_text=axis_title(title, note), rangemode="tozero")
    figure.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(shown))),
        ticktext=names,
        range=[max(1, len(shown)) - 0.4, -0.6],
        showgrid=False,
    )
    figure.update_layout(
        template=template.LIGHT, barmode="overlay", height=170 + 38 * max(1, len(shown)), showlegend=True
    )
    return figure
