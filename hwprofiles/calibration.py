"""Calibration files: fitted efficiency factors of devices and device classes, laid over the assumed ones.

A file has `[factors."class:CLASS"]` for devices without rows of their own, `[factors."DEVICE"]`, and
`[factors."DEVICE/DTYPE/LIBRARY"]` for another kernel library; in each `NAME = number` or `{ value, low, high }`.
`[engines."ENGINE"]` has the host times of an engine in the same form, `[engines."ENGINE".on."DEVICE"]` those measured
on a device of `[factors]`, which go before them there. `extends = "bundled"` puts the file on top of the bundled fit;
without it the file stands alone. `[correlations."DEVICE"]` says how a device's factors hang together. Other tables
(provenance, server, covariance, bands, engine generations) are for whoever compares with measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from hwprofiles.efficiency import FACTOR_NAMES, Correlations, Efficiency, Factor, factor_range
from hwprofiles.tables import Table, read_toml

_FOLDER = Path(__file__).parent / "data" / "efficiency"
BUNDLED = _FOLDER / "fitted.toml"
"""The fit of data-centre GPUs; without a path a calibration is this file on top of that of edge devices."""
BUNDLED_EDGE = _FOLDER / "fitted_edge.toml"
ENGINE_TIMES = ("host_step_s", "host_seq_s", "request_s", "request_token_s")
"""Factors of an engine, whatever it runs on."""
_LEAST_EIGENVALUE = -1e-2
"""Rounding of what was written may push one a little below 0."""
STALE_DAYS = 180
"""Age from which a calibration is called stale: engines change what a step costs about twice a year."""


def calibrated(assumed: Efficiency, device: str | None, path: Path | None = None) -> Efficiency:
    """The factors of a device class, or of one device of it, under a calibration.

    What the file says of the class replaces what is assumed, and what it says of the device replaces both.

    Parameters
    ----------
    assumed : Efficiency
        First values of the class, named like it.
    device : str or None
        Name of a device of the class; None: the class itself.
    path : Path or None
        The calibration file; None: the bundled one.

    Raises
    ------
    ProfileError
        The file cannot be read, has a factor that is not known, or a value out of range.
    """
    factors = dict(assumed.factors)
    fitted = measured_factors(path)
    for key in (f"class:{assumed.name}", *((device,) if device else ())):
        factors.update(fitted.get(key, {}))
    own = device is not None and device in fitted
    joint = correlations(path, device) if own and device and path is not None else None
    return Efficiency(name=device if own and device else assumed.name, factors=factors, correlations=joint)


def correlations(path: Path, device: str) -> Correlations | None:
    """`[correlations."DEVICE"]` of a calibration file: `names` and the lower triangle of their correlations.

    Raises
    ------
    ProfileError
        They are no correlations: an unknown or repeated name, rows of another length, a number beyond -1 .. 1, a matrix
        that no factors can have, or those of a device without factors.
    """
    document, file = read_toml(path, "calibration file")
    if "correlations" not in document:
        return None
    owners = {key.split("/")[0]: 0 for key in document.get("factors", {})}
    every = Table(document, file, "", document).table("correlations", owners)
    if device not in every.data:
        return None
    table = every.table(device, ("names", "lower"))
    names, lower = table.data.get("names"), table.data.get("lower")
    known = {*FACTOR_NAMES, *ENGINE_TIMES}
    if not isinstance(names, list) or len(set(map(str, names))) < len(names) or not set(map(str, names)) <= known:
        raise table.wrong("names", "a list of different factors")
    if not isinstance(lower, list) or [len(r) if isinstance(r, list) else -1 for r in lower] != [
        i + 1 for i in range(len(names))
    ]:
        raise table.wrong("lower", "rows of 1, 2, 3 ... numbers, one row for each name")
    values = [[float(v) if type(v) in (int, float) else math.nan for v in row] for row in lower]
    if not all(-1.0 <= v <= 1.0 for row in values for v in row) or any(row[-1] != 1.0 for row in values):
        raise table.wrong("lower", "correlations from -1 to 1, each row ending with 1")
    _must_be_possible(table, values)
    whole = tuple(tuple(values[max(i, j)][min(i, j)] for j in range(len(names))) for i in range(len(names)))
    return Correlations(device=device, names=tuple(names), matrix=whole)


def _must_be_possible(table: Table, lower: list[list[float]]) -> None:
    import numpy as np

    half = np.zeros((len(lower), len(lower)))
    for i, row in enumerate(lower):
        half[i, : i + 1] = row
    if len(lower) and np.linalg.eigvalsh(half + half.T - np.eye(len(lower))).min() < _LEAST_EIGENVALUE:
        raise table.wrong("lower", "correlations that some factors can have (no negative eigenvalue)")


def fitted_devices(path: Path | None = None) -> frozenset[str]:
    """Names of the devices a calibration has factors for."""
    return frozenset(key for key in measured_factors(path) if "/" not in key and not key.startswith("class:"))


def measured_factors(path: Path | None = None) -> dict[str, dict[str, Factor]]:
    """Every factor that a calibration file has, or the bundled ones, by device or class; errors as in `calibrated`."""
    return _bundled() if path is None else _factors(path)


def engine_factors(engine: str, names: Sequence[str], path: Path, device: str) -> dict[str, Factor]:
    """The host times of an engine on a device under a calibration; empty where the file has none of that engine.

    Parameters
    ----------
    names : sequence of str
        Every factor that an engine may have.
    device : str
        Whose own times, where the file has them, go before those of the engine anywhere.

    Raises
    ------
    ProfileError
        The file cannot be read, has a factor that is not among `names` or out of range, or times on a device without
        factors.
    """
    document, file = read_toml(path, "calibration file")
    engines = document.get("engines", {})
    top = Table(document, file, "", document)
    if not isinstance(engines, dict):
        raise top.wrong("engines", "a table of engines")
    if engine not in engines:
        return {}
    table = top.table("engines", engines).table(engine, (*names, "source", "on"))
    source = _source(document)
    found = {name: _factor(table, name, source) for name in table.data if name not in ("source", "on")}
    if "on" in table:
        own = table.table("on", {key.split("/")[0]: 0 for key in (*document.get("factors", {}), device)})
        for place in own.data:
            times = own.table(place, (*names, "source"))
            read = {name: _factor(times, name, source) for name in times.data if name != "source"}
            found |= read if place == device else {}
    return found


def timed_on(engine: str, path: Path) -> frozenset[str]:
    """Devices on which a calibration has host times of an engine of their own."""
    table = read_toml(path, "calibration file")[0].get("engines", {}).get(engine, {})
    return frozenset(table.get("on", {}))


def notes(path: Path, today: date) -> list[str]:
    """What to tell somebody who uses a calibration file: that it is old, or that nobody can say how old it is."""
    document, file = read_toml(path, "calibration file")
    stated = document.get("provenance")
    text = stated.get("date") if isinstance(stated, dict) else None
    try:
        age = (today - date.fromisoformat(str(text))).days if text is not None else 0
    except ValueError:
        return [f"{file}: provenance.date is no date of the form YYYY-MM-DD, so nobody can say how old it is"]
    return [f"{file} was measured {age} days ago; engines change, so measure again"] if age > STALE_DAYS else []


def measured_version(path: Path) -> str | None:
    """The engine version that a calibration was measured on; None where it does not say."""
    document, _ = read_toml(path, "calibration file")
    server = document.get("server")
    version = server.get("engine_version") if isinstance(server, dict) else None
    return version if isinstance(version, str) else None


@cache
def _bundled() -> dict[str, dict[str, Factor]]:
    fitted = _factors(BUNDLED)
    return {**fitted, **{key: own for key, own in _factors(BUNDLED_EDGE).items() if key not in fitted}}


def _factors(path: Path) -> dict[str, dict[str, Factor]]:
    """The factors of a file as it is now: it may be written anew while this process runs."""
    document, file = read_toml(path, "calibration file")
    top = Table(document, file, "", document)
    below: dict[str, dict[str, Factor]] = {}
    if "extends" in document:
        top.choice("extends", ("bundled",))
        below = dict(_bundled())
    sections = top.table("factors", document["factors"]) if isinstance(document.get("factors"), dict) else None
    if sections is None:
        raise top.wrong("factors", "a table of devices")
    source = _source(document)
    found = below
    for key in sections.data:
        table = sections.table(key, (*FACTOR_NAMES, "source"))
        found[key] = {name: _factor(table, name, source) for name in table.data if name != "source"}
    return found


def _source(document: dict[str, Any]) -> str:
    stated = document.get("provenance", {})
    if not isinstance(stated, dict) or "command" not in stated:
        return "calibration file"
    return f"{stated['command']}; {stated.get('n', 'unknown number of')} rows"


def _factor(table: Table, name: str, source: str) -> Factor:
    floor, ceiling = factor_range(name)
    if not isinstance(table.data[name], dict):
        value = table.number(name, low=floor, high=ceiling)
        return Factor(value=value, low=value, high=value, tier="fitted", source=source)
    inner = table.table(name, ("value", "low", "high"))
    low = inner.number("low", low=floor, high=ceiling)
    high = inner.number("high", low=low, high=ceiling)
    return Factor(value=inner.number("value", low=low, high=high), low=low, high=high, tier="fitted", source=source)
