"""Which scenarios a sweep evaluates: axes over parameters, crossed on a grid or sampled as a Latin hypercube."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hwprofiles.errors import InputError, unknown_name
from simulator.scenario import PARAMETERS, Scenario
from simulator.scenario_file import parse_setting, scenario_keys, set_key, to_document

DESIGNS = ("grid", "lhs")
MOST_CELLS = 100_000
Settings = Mapping[str, Any]
"""Of one cell: parameter or dotted key -> value."""

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"\s*({_NUMBER})\s*:\s*({_NUMBER})\s*(?::\s*(\d+)\s*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One varied parameter: `values`, or the ends of a range (`low`, `high`) to sample from; `whole` numbers only."""

    name: str
    values: tuple[Any, ...] = ()
    low: float = math.nan
    high: float = math.nan
    whole: bool = False

    def at(self, u: float) -> Any:
        """The value at a share `u` in [0, 1) of the axis; every value, or whole number, has an equal part of it."""
        if self.values:
            return self.values[min(int(u * len(self.values)), len(self.values) - 1)]
        if self.whole:
            return int(self.low) + min(int(u * (self.high - self.low + 1)), int(self.high - self.low))
        return _clean(self.low + u * (self.high - self.low))


def parse_axis(text: str, design: str) -> Axis:
    """Read `NAME=a,b,c`, `NAME=LO:HI:N` (grid) or `NAME=LO:HI` (Latin hypercube).

    Raises
    ------
    InputError
        Another form, an unknown key, a range that is empty, or one without whole steps for a whole-number key.
    """
    name, mark, rest = (part.strip() for part in text.partition("="))
    if not mark or not name or not rest:
        raise InputError(f"--vary {text!r}: expected NAME=LO:HI:N or NAME=a,b,c")
    whole = _is_whole(name)
    found = _RANGE.fullmatch(rest)
    if found is None:
        values = tuple(parse_setting(f"{name}={piece}")[1] for piece in rest.split(","))
        if any(v == "" for v in values):
            raise InputError(f"--vary {text!r}: an empty value between commas")
        if len({repr(v) for v in values}) != len(values):
            raise InputError(f"--vary {text!r}: a value stands twice")
        return Axis(name=name, values=values)
    low, high, n = float(found[1]), float(found[2]), found[3]
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"--vary {text!r}: the range must rise from LO to HI")
    if design == "lhs":
        if n is not None:
            raise InputError(f"--vary {text!r}: a Latin hypercube takes NAME=LO:HI; --samples says how many")
        if whole and (low % 1 or high % 1):
            raise InputError(f"--vary {text!r}: {name} takes whole numbers")
        return Axis(name=name, low=low, high=high, whole=whole)
    if n is None or not 2 <= int(n) <= MOST_CELLS:
        raise InputError(f"--vary {text!r}: a grid takes NAME=LO:HI:N with N from 2 to {MOST_CELLS}")
    steps = [_clean(low + (high - low) * i / (int(n) - 1)) for i in range(int(n))]
    if whole and any(s % 1 for s in steps):
        raise InputError(f"--vary {text!r}: {name} takes whole numbers, and these {n} steps are not")
    return Axis(name=name, values=tuple(int(s) if whole else s for s in steps))


def cells_of(
    scenario: Scenario,
    vary: Sequence[str],
    *,
    design: Literal["grid", "lhs"] | str = "grid",
    samples: int | None = None,
    seed: int | None = None,
) -> list[dict[str, Any]]:
    """Settings of every cell, in order: the last axis of a grid moves fastest.

    A Latin hypercube of n samples has exactly one in each n-th part of every axis (McKay, Beckman, Conover 1979).

    Raises
    ------
    InputError
        No axis, a key varied twice or unknown, more than `MOST_CELLS` cells, or an option that has no effect.
    """
    if design not in DESIGNS:
        raise unknown_name("design", design, DESIGNS)
    axes = [parse_axis(text, design) for text in vary]
    _must_differ(scenario, axes)
    if design == "grid":
        if samples is not None or seed is not None:
            raise InputError("samples and seed have no effect on a grid; give --design lhs")
        n = math.prod(len(a.values) for a in axes)
        _bounded(n)
        return [dict(zip((a.name for a in axes), point, strict=True)) for point in _crossed(axes)]
    if samples is None:
        raise InputError("a Latin hypercube needs --samples N")
    _bounded(samples)
    return _hypercube(axes, samples, seed or 0)


def apply(document: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """A copy of a scenario document with a cell's settings."""
    out = copy.deepcopy(dict(document))
    for key, value in settings.items():
        set_key(out, key, value)
    return out


def _crossed(axes: Sequence[Axis]) -> Any:
    return itertools.product(*(a.values for a in axes))


def _hypercube(axes: Sequence[Axis], n: int, seed: int) -> list[dict[str, Any]]:
    import numpy as np

    rng = np.random.default_rng(seed)
    columns = {a.name: [a.at(float(u)) for u in (rng.permutation(n) + rng.random(n)) / n] for a in axes}
    return [{name: column[i] for name, column in columns.items()} for i in range(n)]


def _must_differ(scenario: Scenario, axes: Sequence[Axis]) -> None:
    if not axes:
        raise InputError("a sweep needs at least one --vary NAME=LO:HI:N or NAME=a,b,c")
    keys = [PARAMETERS.get(a.name, a.name) for a in axes]
    for key, axis in zip(keys, axes, strict=True):
        if keys.count(key) > 1:
            raise InputError(f"--vary {axis.name}: {key} is varied twice")
        apply(to_document(scenario), {axis.name: axis.at(0.0)})


def _bounded(n: int) -> None:
    if not 1 <= n <= MOST_CELLS:
        raise InputError(f"a sweep has 1 to {MOST_CELLS} cells, got {n}")


def _is_whole(name: str) -> bool:
    key = PARAMETERS.get(name, name)
    return any(row["key"] == key and row["type"] == "whole number" for row in scenario_keys())


def _clean(x: float) -> float:
    """Without the last digits that only rounding put there: 0.3, not 0.30000000000000004."""
    return float(f"{x:.12g}")
