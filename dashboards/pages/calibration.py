"""Calibration: the factors step times rest on, and how well each is known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dash
import plotly.graph_objects as go
from dash import ALL, Input, Output, State, html

from dashboards import parts, query
from dashboards.desk import Desk
from dashboards.factors import factor_bands
from dashboards.parity import parity, phase_bars
from dashboards.units import digits
from hwprofiles.calibration import measured_factors
from hwprofiles.errors import InputError

PATH, TITLE, PAGE = "/calibration", "Calibration", "calibration"
_BUNDLED = "bundled fit"

Shown = tuple[list[tuple[str, go.Figure]], list[dict[str, object]], str]
"""Figures with their titles, the rows of a table, and its title."""


def layout(desk: Desk, asked: Mapping[str, str]) -> Any:
    """The page, its knobs where the URL says."""
    files = [*_files(desk), *_validations(desk)]
    which = query.choice(asked, "file", files, files[0])
    devices = _devices(desk, which)
    knobs = [
        parts.select(PAGE, "file", "Calibration or validation", [(f, f) for f in files], which),
        parts.select(
            PAGE,
            "device",
            "Device, class or engine",
            [(d, d) for d in devices],
            query.choice(asked, "device", devices, devices[0]),
        ),
    ]
    results = [
        html.Div(id="calibration-fault"),
        html.Div(id="calibration-figures"),
        html.Div(id="calibration-table"),
    ]
    lead = (
        "Step times are rooflines corrected by these factors; a wide band is worth a measurement (specroof calibrate)."
    )
    return parts.page(TITLE, lead, knobs, results)


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""

    @app.callback(
        Output("calibration-figures", "children"),
        Output("calibration-table", "children"),
        Output("calibration-fault", "children"),
        Output(parts.knob(PAGE, "device"), "options"),
        Input(parts.knob(PAGE, ALL), "value"),
        Input("theme", "data"),
        State(parts.knob(PAGE, ALL), "id"),
    )
    def show(values: list[Any], theme: str | None, ids: list[dict[str, str]]) -> tuple[Any, ...]:
        at = {i["knob"]: v for i, v in zip(ids, values, strict=True)}
        which = str(at.get("file"))
        devices = _devices(desk, which)
        options = [{"value": d, "label": d} for d in devices]
        try:
            validation = _validations(desk).get(which)
            if validation is not None:
                drawn, rows, words = _validated(validation)
            else:
                drawn, rows, words = _factors(desk, which, query.choice(at, "device", devices, devices[0]))
        except InputError as error:
            return None, None, parts.fault(error), options
        shown = [parts.drawn(f, theme, title, f"calibration-figure-{i}") for i, (title, f) in enumerate(drawn)]
        return shown, parts.table(rows, words), None, options


def _factors(desk: Desk, which: str, device: str) -> Shown:
    files = _files(desk)
    factors = measured_factors(files[query.choice({"file": which}, "file", list(files), _BUNDLED)]).get(device, {})
    rows: list[dict[str, object]] = [
        {"factor": n, "value": digits(f.value), "90 % band": f"{digits(f.low)} – {digits(f.high)}", "tier": f.tier}
        for n, f in factors.items()
    ]
    return [("How well each factor is known", factor_bands(factors))], rows, f"Factors of {device}"


def _validated(document: Mapping[str, Any]) -> Shown:
    try:
        drawn = [("Predicted against measured", parity(document)), ("Where the time went", phase_bars(document))]
        rows: list[dict[str, object]] = [
            {
                "metric": metric.replace("_", " "),
                "median error": f"{e['median_ape']:.1%}",
                "bias": f"{e['bias']:+.1%}",
                "in band": f"{document['in_band'][metric]:.0%}",
            }
            for metric, e in document["errors"].items()
        ]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"the validation lacks what the figures need: {error}") from None
    return drawn, rows, "Errors of the prediction"


def _devices(desk: Desk, which: str) -> list[str]:
    """What a calibration has factors of; of a validation nothing can be chosen."""
    files = _files(desk)
    try:
        return list(measured_factors(files[which])) if which in files else ["all"]
    except InputError:
        return ["all"]


def _files(desk: Desk) -> dict[str, Path | None]:
    return {_BUNDLED: None, **{f"{i + 1}: {name}": path for i, (name, path) in enumerate(desk.shelf.calibrations)}}


def _validations(desk: Desk) -> dict[str, Mapping[str, Any]]:
    return {f"validation {i + 1}: {name}": found for i, (name, found) in enumerate(desk.shelf.validations)}
