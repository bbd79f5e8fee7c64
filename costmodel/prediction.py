"""A predicted number with its 90 % interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """`value` at the central inputs; `low` and `high` are the 5 % and 95 % points over the uncertain ones.

    `tiers` names the tiers of the inputs behind it, weakest last.
    """

    value: float
    low: float
    high: float
    tiers: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, float]:
        """The three numbers, for JSON."""
        return {"value": self.value, "low": self.low, "high": self.high}


def predict(central: float, samples: Any, tiers: tuple[str, ...] = ()) -> Prediction:
    """The central value with the 5 % and 95 % points of `samples`, widened to hold it."""
    low, high = np.quantile(np.asarray(samples, dtype=float), [0.05, 0.95])
    value = float(central)
    return Prediction(value=value, low=min(value, float(low)), high=max(value, float(high)), tiers=tiers)
