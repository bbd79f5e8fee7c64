"""The factors that `specroof accuracy` prices with: the bundled fit, or a file of the user.

A file has `[factors."DEVICE"]`, `[factors."DEVICE/DTYPE"]`, `[factors."DEVICE/DTYPE/LIBRARY"]` (or `class:CLASS` in
place of a device, for those without an entry of their own) and `[generations."GENERATION"]`,
`[generations."GENERATION/DEVICE"]`; in each `NAME = number` or
`NAME = { value, low, high }`. Every other table (provenance, covariance) is left to whoever reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from hwprofiles.calibration import BUNDLED as DEVICE_FIT
from hwprofiles.efficiency import FACTOR_NAMES
from hwprofiles.errors import ProfileError, unknown_name
from hwprofiles.load import DEVICE_CLASSES, hardware
from hwprofiles.tables import read_toml
from validate.accuracy.factors import HOST, FactorTable, bundled_generations

_BUNDLED = re.compile(r"fitted\w*\.toml")


def bundled() -> tuple[FactorTable, FactorTable]:
    """Device factors fitted to measurement tables, and the engine generations, from `data/fitted*.toml` by name."""
    factors: dict[str, Mapping[str, float]] = {}
    generations = {key: dict(table) for key, table in bundled_generations().items()}
    own_files = (entry for entry in (files("validate.accuracy") / "data").iterdir() if _BUNDLED.fullmatch(entry.name))
    for file in (DEVICE_FIT, *sorted(own_files, key=lambda entry: entry.name)):
        with as_file(file) as path:
            own, more = _read(path)
        factors.update({key: {**factors.get(key, {}), **table} for key, table in own.items()})
        generations.update(more)
    return factors, generations


def read(path: str | Path) -> tuple[FactorTable, FactorTable]:
    """Device factors and engine generations of a calibration file, the bundled generations underneath.

    Raises
    ------
    ProfileError
        The file cannot be read, or a value is no finite number >= 0.
    InputError
        An unknown device or factor; the message has the nearest name.
    """
    factors, own = _read(Path(path))
    document, _ = read_toml(Path(path), "calibration file")
    if document.get("extends") == "bundled":
        below, _ = bundled()
        factors = {**{key: dict(table) for key, table in below.items()}, **factors}
    generations = {key: dict(table) for key, table in bundled_generations().items()}
    for key, table in own.items():
        generations.setdefault(key, {}).update(table)
    return factors, generations


def _read(path: Path) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    document, file = read_toml(path, "calibration file")
    factors = _section(document, file, "factors", FACTOR_NAMES)
    for key in factors:
        device = key.split("/")[0]
        if device not in {f"class:{name}" for name in DEVICE_CLASSES}:
            hardware(device)
    return factors, _section(document, file, "generations", (*HOST, *FACTOR_NAMES))


def _section(
    document: Mapping[str, Any], file: str, section: str, known: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    tables = document.get(section, {})
    if not isinstance(tables, dict):
        raise ProfileError(f"{file}: {section} must be a table")
    found: dict[str, dict[str, float]] = {}
    for key, table in tables.items():
        if not isinstance(table, dict):
            raise ProfileError(f"{file}: {section}.{key} must be a table")
        found[key] = {}
        for name, given in table.items():
            if name == "source":
                continue
            if name not in known:
                raise unknown_name(f"factor in {section}.{key} of {file}", name, known)
            found[key][name] = _number(given, f"{file}: {section}.{key}.{name}")
    return found


def _number(given: Any, place: str) -> float:
    value = given.get("value") if isinstance(given, dict) else given
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ProfileError(f"{place} must be a finite number >= 0 or a table with such a value, got {given!r:.60}")
    return float(value)
