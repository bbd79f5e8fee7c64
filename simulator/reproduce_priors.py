"""The published figures and the priors of each setting, read from the product's own data file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from hwprofiles.errors import unknown_name
from simulator.uncertain import sample_positive, sample_share

Array = np.ndarray[Any, np.dtype[np.float64]]

_SHARES = frozenset({"acceptance", "detection", "recovery", "weak_success", "strong_success"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """An unknown of a setting: a band (5 and 95 % points) or equally likely `choices`."""

    name: str
    tier: str
    source: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()

    @property
    def is_share(self) -> bool:
        """Whether it is a probability."""
        return self.name in _SHARES

    def draw(self, uniform: Array) -> list[Any]:
        """Values at uniform numbers in (0, 1)."""
        if self.choices:
            return [self.choices[min(int(u * len(self.choices)), len(self.choices) - 1)] for u in uniform]
        from scipy.special import ndtri

        assert self.value is not None
        assert self.low is not None
        assert self.high is not None
        spread = sample_share if self.is_share else sample_positive
        z = ndtri(np.clip(uniform, 1e-9, 1 - 1e-9))
        return [float(v) for v in spread(z, self.value, self.low, self.high)]

    def document(self) -> dict[str, Any]:
        """The prior as plain values."""
        shape = (
            {"choices": list(self.choices)}
            if self.choices
            else {"value": self.value, "low": self.low, "high": self.high}
        )
        return {"name": self.name, **shape, "tier": self.tier, "source": self.source}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One published setting: models, workload, whether the models think, and its unknowns."""

    name: str
    title: str
    workload: str
    weak: str
    strong: str | None
    strong_api: str | None
    weak_hardware: str | None
    thinks: bool
    priors: Mapping[str, Prior]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published figure: `low` or `high` of None is open."""

    id: str
    metric: str
    quantity: str
    low: float | None
    high: float | None

    @property
    def setting(self) -> str:
        """Name of its setting."""
        return self.id.split(".")[0]

    def overlaps(self, low: float, high: float) -> bool:
        """Whether a predicted interval meets the published one."""
        return (self.high is None or low <= self.high) and (self.low is None or high >= self.low)

    def distance(self, values: Array) -> Array:
        """How far values lie outside the published interval."""
        below = np.zeros_like(values) if self.low is None else np.maximum(0.0, self.low - values)
        above = np.zeros_like(values) if self.high is None else np.maximum(0.0, values - self.high)
        return below + above


@cache
def published() -> tuple[str, tuple[Setting, ...], tuple[Figure, ...]]:
    """Source, settings and figures."""
    table = tomllib.loads(files("simulator").joinpath("data/reproduce.toml").read_text(encoding="utf-8"))
    shared = {name: _prior(name, row) for name, row in table["priors"].items()}
    settings = tuple(_setting(name, row, shared) for name, row in table["settings"].items())
    figures = tuple(
        Figure(
            id=row["id"],
            metric=row["metric"],
            quantity=row["quantity"],
            low=_end(row["published"][0]),
            high=_end(row["published"][1]),
        )
        for row in table["figures"]
    )
    return str(table["source"]), settings, figures


def setting(name: str) -> Setting:
    """A setting by name."""
    found = {s.name: s for s in published()[1]}
    if name not in found:
        raise unknown_name("setting", name, found)
    return found[name]


def _setting(name: str, row: Mapping[str, Any], shared: Mapping[str, Prior]) -> Setting:
    own = {k: _prior(k, v) for k, v in row["priors"].items()}
    return Setting(
        name=name,
        title=row["title"],
        workload=row["workload"],
        weak=row["weak"],
        strong=row.get("strong"),
        strong_api=row.get("strong_api"),
        weak_hardware=row.get("weak_hardware"),
        thinks=row["thinks"],
        priors={**shared, **own},
    )


def _prior(name: str, row: Mapping[str, Any]) -> Prior:
    values: dict[str, Any] = {k: tuple(v) if k == "choices" else v for k, v in row.items()}
    return Prior(name=name, **values)


def _end(value: Any) -> float | None:
    return None if value == "none" else float(value)
