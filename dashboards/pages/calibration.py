"""Calibration: the factors step times rest on, and how well each is known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dash
import pandas as pd
from dash import Input, Output

from dashboards import parts, query
from dashboards.desk import Desk
from dashboards.factors import factor_bands
from dashboards.pages import showing
from dashboards.pages.showing import Shown
from dashboards.parity import parity, phase_bars
from dashboards.units import digits
from hwprofiles.calibration import measured_factors
from hwprofiles.errors import InputError

PATH, TITLE, PAGE = "/calibration", "Calibration", "calibration"
_BUNDLED = "bundled fit"
_METRICS = {"time_s": "time"}


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
    lead = (
        "Step times are rooflines corrected by these factors; a wide band is worth a measurement (specroof calibrate)."
    )
    return parts.page(TITLE, lead, knobs, [showing.place(PAGE)])


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""

    @app.callback(
        Output(parts.knob(PAGE, "device"), "options"),
        Output(parts.knob(PAGE, "device"), "disabled"),
        Input(parts.knob(PAGE, "file"), "value"),
    )
    def devices(which: str | None) -> tuple[list[dict[str, str]], bool]:
        """The devices of a calibration; a validation has none to choose from."""
        return [{"value": d, "label": d} for d in _devices(desk, str(which))], str(which) in _validations(desk)

    def answer(at: Mapping[str, Any]) -> Shown:
        which = str(at.get("file"))
        validation = _validations(desk).get(which)
        if validation is not None:
            return _validated(validation)
        return _factors(desk, which, query.choice(at, "device", _devices(desk, which), _devices(desk, which)[0]))

    showing.register(app, PAGE, answer)


def _factors(desk: Desk, which: str, device: str) -> Shown:
    files = _files(desk)
    factors = measured_factors(files[query.choice({"file": which}, "file", list(files), _BUNDLED)]).get(device, {})
    rows: list[dict[str, object]] = [
        {"factor": n, "value": digits(f.value), "90 % band": f"{digits(f.low)} – {digits(f.high)}", "tier": f.tier}
        for n, f in factors.items()
    ]
    data = pd.DataFrame(
        [
            {"device": device, "factor": n, "value": f.value, "low": f.low, "high": f.high, "tier": f.tier}
            for n, f in factors.items()
        ]
    )
    return Shown(
        figures=[("How well each factor is known", factor_bands(factors))],
        data=data,
        document={},
        below=[parts.table(rows, f"Factors of {device}")],
    )


def _validated(document: Mapping[str, Any]) -> Shown:
    try:
        rows: list[dict[str, object]] = [
            {
                "metric": _METRICS.get(metric, metric.replace("_", " ")),
                "median error": f"{e['median_ape']:.1%}",
                "bias": f"{e['bias']:+.1%}",
                "in band": f"{document['in_band'][metric]:.0%}",
            }
            for metric, e in document["errors"].items()
        ]
        return Shown(
            figures=[("Predicted against measured", parity(document)), ("Where the time went", phase_bars(document))],
            data=_pairs(document),
            document=document,
            below=[parts.table(rows, "Errors of the prediction")],
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"the validation lacks what the figures need: {error}") from None


def _pairs(document: Mapping[str, Any]) -> pd.DataFrame:
    """One row per trajectory and metric: what was measured, what was predicted."""
    names = ("measured", "predicted", "low", "high")
    return pd.DataFrame(
        [
            {"strategy": strategy, "metric": metric, **dict(zip(names, row, strict=False))}
            for strategy, one in document["strategies"].items()
            for metric, rows in one["pairs"].items()
            for row in rows
        ]
    )


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
