"""The roofline: what a device can do at an arithmetic intensity, and where the passes of an agent lie below it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dashboards import template
from dashboards.frames import axis_title, require
from dashboards.units import digits, is_number, rate_unit, with_unit

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down", "hexagon")
_DASHES = {"weak": "dash", "strong": "solid"}


def roofline(devices: pd.DataFrame, points: pd.DataFrame) -> go.Figure:
    """Roofs of the devices and the points of the passes on them, per device, on two logarithmic axes.

    The roof is `min(peak_flops_per_s, bandwidth_bytes_per_s * intensity)`.

    Parameters
    ----------
    devices : pandas.DataFrame
        Columns `name`, `role` (`weak`, `strong`), `dtype`, `peak_flops_per_s`, `bandwidth_bytes_per_s`, `n_devices`.
    points : pandas.DataFrame
        Columns `label`, `role`, `intensity_flops_per_byte`, `achieved_flops_per_s`, `bound`; per device.
        Points and devices without their numbers are named under the axis and not drawn.

    Raises
    ------
    InputError
        When a column is missing.
    """
    require(devices, ("name", "role", "dtype", "peak_flops_per_s", "bandwidth_bytes_per_s", "n_devices"), "roofline")
    require(points, ("label", "role", "intensity_flops_per_byte", "achieved_flops_per_s", "bound"), "roofline")
    roofs = devices[_positive(devices, "peak_flops_per_s") & _positive(devices, "bandwidth_bytes_per_s")]
    dots = points[_positive(points, "intensity_flops_per_byte") & _positive(points, "achieved_flops_per_s")]
    speeds = [*roofs["peak_flops_per_s"].tolist(), *dots["achieved_flops_per_s"].tolist()] or [1.0]
    unit = rate_unit("FLOP/s", [math.sqrt(min(speeds) * max(speeds))])
    ridges = (roofs["peak_flops_per_s"] / roofs["bandwidth_bytes_per_s"]).tolist()
    along = [*ridges, *dots["intensity_flops_per_byte"].tolist()] or [1.0]
    left, right = 10 ** math.floor(math.log10(min(along)) - 0.3), 10 ** math.ceil(math.log10(max(along)) + 0.3)
    figure = go.Figure()
    for row in roofs.sort_values("role", kind="stable").to_dict("records"):  # strong solid, weak dashed on top of it
        _roof(figure, row, left, right, unit.factor)
    for index, row in enumerate(dots.to_dict("records")):
        _dot(figure, row, _SYMBOLS[index % len(_SYMBOLS)], unit.factor)
    lacking = [str(n) for n in devices.loc[devices.index.difference(roofs.index), "name"]]
    lacking += [str(n) for n in points.loc[points.index.difference(dots.index), "label"]]
    note = f"not known, so not drawn: {', '.join(lacking)}" if lacking else ""
    figure.update_xaxes(
        type="log",
        title_text=axis_title("arithmetic intensity (FLOP per byte, log scale)", note),
        **_decades(left, right),
    )
    lowest = min([*speeds, *(left * b for b in roofs["bandwidth_bytes_per_s"].tolist())]) * unit.factor
    title = f"speed per device ({unit.symbol}, log scale)"
    figure.update_yaxes(type="log", title_text=title, **_decades(lowest / 1.5, max(speeds) * unit.factor * 2))
    figure.update_layout(template=template.LIGHT, height=500, showlegend=True)
    return figure


def _roof(figure: go.Figure, row: Mapping[Hashable, Any], left: float, right: float, factor: float) -> None:
    peak, bandwidth = float(row["peak_flops_per_s"]), float(row["bandwidth_bytes_per_s"])
    ridge = peak / bandwidth
    role, count = str(row["role"]), row["n_devices"]
    many = f"{count:g} × " if is_number(count) and count != 1 else ""
    figure.add_scatter(
        x=[left, ridge, right],
        y=[bandwidth * left * factor, peak * factor, peak * factor],
        mode="lines",
        name=template.plain(f"{role}: {many}{row['name']}, {row['dtype']}"),
        line={
            "color": template.ROLE_COLOURS.get(role, template.FALLBACK_COLOUR),
            "width": 2,
            "dash": _DASHES.get(role, "dot"),
        },
        hovertemplate="%{x:.3g} FLOP per byte: at most %{y:.3g}<extra></extra>",
    )


def _dot(figure: go.Figure, row: Mapping[Hashable, Any], symbol: str, factor: float) -> None:
    speed = float(row["achieved_flops_per_s"])
    words = template.plain(row["label"])
    bound = template.plain(row["bound"]) if isinstance(row["bound"], str) else "not known"
    unit = rate_unit("FLOP/s", [speed])
    figure.add_scatter(
        x=[row["intensity_flops_per_byte"]],
        y=[speed * factor],
        mode="markers",
        name=f"{words} ({bound})",
        marker={
            "size": 12,
            "symbol": symbol,
            "color": template.ROLE_COLOURS.get(str(row["role"]), template.FALLBACK_COLOUR),
            "line": {"width": 1, "color": "#ffffff"},
        },
        customdata=[[with_unit(speed, unit), bound]],
        hovertemplate=f"{words}: %{{customdata[0]}} at %{{x:.3g}} FLOP per byte"
        "<br>bound by %{customdata[1]}<extra></extra>",
    )


def _positive(frame: pd.DataFrame, column: str) -> pd.Series[bool]:
    return frame[column].map(lambda value: is_number(value) and value > 0).astype(bool)


def _decades(low: float, high: float) -> dict[str, Any]:
    """Range and ticks of a logarithmic axis from `low` to `high`: powers of ten, at most eight of them."""
    ends = [math.log10(low), math.log10(high)]
    powers = range(math.ceil(ends[0]), math.floor(ends[1]) + 1)
    ticks = [10.0**power for power in powers if power % (len(powers) // 8 + 1) == 0]
    return {"range": ends, "tickmode": "array", "tickvals": ticks, "ticktext": [digits(t, 1) for t in ticks]}
