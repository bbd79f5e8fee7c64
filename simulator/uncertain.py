"""A number with its 90 % band, tier and source, as scenarios hold them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, ConfigDict

from costmodel.acceptance import expit
from hwprofiles.hardware import Tier

Array = np.ndarray[Any, np.dtype[np.float64]]

Z95 = 1.6448536269514722
"""95 % point of the standard normal: `low` and `high` are the 5 % and 95 % points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertain:
    """`value` with 5 % and 95 % points `low` and `high`; a bare number in a scenario is exact and assumed."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    value: float
    low: float
    high: float
    tier: Tier = "assumed"
    source: str = "scenario"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and math.isfinite(self.low) and math.isfinite(self.high)):
            raise ValueError("must be finite")
        if self.value < 0 or self.low < 0:
            raise ValueError(f"must not be negative, got low = {self.low}, value = {self.value}")
        if not self.low <= self.value <= self.high:
            raise ValueError(f"must hold low <= value <= high, got {self.low}, {self.value}, {self.high}")

    @property
    def is_exact(self) -> bool:
        """True when the band has no width."""
        return self.low == self.high


def exact(value: float, source: str = "scenario") -> Uncertain:
    """A number without a band."""
    return Uncertain(value=value, low=value, high=value, source=source)


def _coerce(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError(f"must be a number or {{value, low, high, tier, source}}, got {repr(value)[:60]}")
    if not isinstance(value, int | float):
        return value
    try:
        return exact(float(value))
    except OverflowError:
        raise ValueError("must be finite") from None


Band = Annotated[Uncertain, BeforeValidator(_coerce)]
"""A scenario entry: a number, or a table with value, low, high, tier and source."""


def sample_positive(z: Array, value: float, low: float, high: float) -> Array:
    """Quantiles of a two-piece log-normal: value at z = 0, low at z = -Z95, high at z = Z95.

    A zero value or low end falls back to a two-piece normal, floored at zero.
    """
    if low == high:
        return np.full_like(z, value)
    if low <= 0:
        return np.maximum(0.0, np.where(z < 0, value + z / Z95 * (value - low), value + z / Z95 * (high - value)))
    down, up = math.log(value / low) / Z95, math.log(high / value) / Z95
    return np.asarray(value * np.exp(np.where(z < 0, down * z, up * z)))


def sample_share(z: Array, value: float, low: float, high: float) -> Array:
    """The same on the logit scale, for probabilities and efficiency shares; ends at 0 or 1 are moved in by 1e-6."""
    if low == high:
        return np.full_like(z, value)
    v, lo, hi = (min(max(x, 1e-6), 1 - 1e-6) for x in (value, low, high))
    at = [math.log(x / (1 - x)) for x in (lo, v, hi)]
    return np.asarray(expit(at[1] + np.where(z < 0, (at[1] - at[0]) * z, (at[2] - at[1]) * z) / Z95))
