"""How well a calibration knows its factors: each one's band relative to its value."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from dashboards import template
from dashboards.units import digits
from hwprofiles.efficiency import Factor


def factor_bands(factors: Mapping[str, Factor]) -> go.Figure:
    """Low and high end of every factor over its value, the widest band on top, on a logarithmic axis.

    Parameters
    ----------
    factors : mapping from factor to value and band
        Factors that are zero are left out.
    """
    kept = {name: f for name, f in factors.items() if f.value > 0 and f.low > 0}
    names = sorted(kept, key=lambda n: -kept[n].high / kept[n].low)
    figure = go.Figure()
    figure.add_scatter(
        x=[1.0] * len(names),
        y=list(range(len(names))),
        error_x={
            "type": "data",
            "array": [kept[n].high / kept[n].value - 1.0 for n in names],
            "arrayminus": [1.0 - kept[n].low / kept[n].value for n in names],
            "thickness": 2,
            "width": 4,
        },
        mode="markers",
        marker={"size": 8, "color": template.ROLE_COLOURS["strong"]},
        customdata=[
            [template.plain(n), digits(f.value), digits(f.low), digits(f.high), f.tier]
            for n, f in ((n, kept[n]) for n in names)
        ],
        hovertemplate="%{customdata[0]}: %{customdata[1]} [%{customdata[2]}, %{customdata[3]}], %{customdata[4]}"
        "<extra></extra>",
        name="factor",
    )
    figure.add_vline(x=1.0, line={"color": template.RULE_COLOUR, "dash": "dot", "width": 1.5})
    figure.update_xaxes(type="log", title_text="90 % band / value (log scale)")
    figure.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(names))),
        ticktext=[template.plain(n) for n in names],
        range=[max(1, len(names)) - 0.4, -0.6],
        showgrid=False,
        tickfont={"size": 12},
    )
    figure.update_layout(template=template.LIGHT, height=110 + 24 * max(1, len(names)), showlegend=False)
    return figure
