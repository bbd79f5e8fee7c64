"""An axis of a map or sweep: a parameter or scenario key and the values it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hwprofiles.errors import InputError, unknown_name
from simulator.scenario import PARAMETERS
from simulator.scenario_file import all_keys, scenario_keys

MOST_VALUES = 2_000
"""Values an axis may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """`name` (a parameter or dotted key) and its `values` in rising order; `whole` where they are whole numbers."""

    name: str
    values: tuple[float, ...]
    whole: bool = False

    @property
    def key(self) -> str:
        """The dotted scenario key behind the name."""
        return PARAMETERS.get(self.name, self.name)

    def setting(self, value: float) -> Mapping[str, Any]:
        """The change of a scenario that puts it at `value`."""
        return {self.key: int(value) if self.whole else float(value)}


def parse_axis(text: str) -> Axis:
    """Read `NAME=LO:HI:N`, `NAME=LO:HI:N:log` or `NAME=A,B,C`.

    Raises
    ------
    InputError
        Not of that form, an unknown name, a key that is no number, values out of order or too many.
    """
    name, mark, spec = text.partition("=")
    name, spec = name.strip(), spec.strip()
    if not mark or not name or not spec:
        raise InputError(f"axis {text!r}: expected NAME=LO:HI:N, NAME=LO:HI:N:log or NAME=A,B,C")
    kind = _kind(name)
    values = _listed(text, spec) if ":" not in spec else _ranged(text, spec, kind == "whole number")
    if len(values) > MOST_VALUES:
        raise InputError(f"axis {name}: {len(values)} values; at most {MOST_VALUES}")
    if any(b <= a for a, b in pairwise(values)):
        raise InputError(f"axis {name}: values must rise, each once, got {spec}")
    if kind == "whole number" and any(v != int(v) for v in values):
        raise InputError(f"axis {name}: takes whole numbers, got {spec}")
    return Axis(name=name, values=values, whole=kind == "whole number")


def _kind(name: str) -> str:
    key = PARAMETERS.get(name, name)
    if key not in all_keys():
        raise unknown_name("parameter", name, [*PARAMETERS, *all_keys()])
    kind = next(str(k["type"]) for k in scenario_keys() if k["key"] == key)
    if kind not in ("number", "whole number", "number or band"):
        raise InputError(f"axis {name}: {key} is no number but {kind}; an axis needs numbers")
    return kind


def _number(text: str, part: str) -> float:
    try:
        value = float(part)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"axis {text!r}: {part.strip()!r} is no finite number")
    return value


def _listed(text: str, spec: str) -> tuple[float, ...]:
    return tuple(_number(text, part) for part in spec.split(","))


def _ranged(text: str, spec: str, whole: bool) -> tuple[float, ...]:
    parts = spec.split(":")
    if len(parts) not in (3, 4) or (len(parts) == 4 and parts[3] != "log"):
        raise InputError(f"axis {text!r}: expected LO:HI:N or LO:HI:N:log")
    low, high, n = (_number(text, part) for part in parts[:3])
    if n != int(n) or not 2 <= n <= MOST_VALUES:
        raise InputError(f"axis {text!r}: N must be a whole number from 2 to {MOST_VALUES}, got {parts[2]}")
    if not low < high:
        raise InputError(f"axis {text!r}: LO must be below HI, got {parts[0]} and {parts[1]}")
    if len(parts) == 4:
        if low <= 0:
            raise InputError(f"axis {text!r}: a log range needs LO > 0, got {parts[0]}")
        values = np.geomspace(low, high, int(n))
    else:
        values = np.linspace(low, high, int(n))
    if whole:
        values = np.round(values)
        if len(set(values.tolist())) < len(values):
            raise InputError(f"axis {text!r}: only {len(set(values.tolist()))} whole numbers lie in the range; lower N")
    return tuple(float(v) for v in values)
