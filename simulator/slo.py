"""Service-level objectives and rates as people write them: `p95 trajectory_s <= 60`, `2/s`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwprofiles.errors import InputError, unknown_name

Array = np.ndarray[Any, np.dtype[np.float64]]

METRICS = {"trajectory_s": "time_s", "queue_s": "queue_s"}
"""What an objective may bound, and its column in a run's frame `trajectories`."""

STATISTICS = {"mean": None, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_SLO = re.compile(r"\s*(\w+)\s+(\w+)\s*(\S+?)\s*([-+0-9.eE]+)\s*")
_RATE = re.compile(r"\s*([0-9.eE+-]+)\s*/\s*(s|min|h)\s*")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """`statistic` of `metric` must be at most `limit_s`."""

    statistic: str
    metric: str
    limit_s: float

    def __str__(self) -> str:
        return f"{self.statistic} {self.metric} <= {self.limit_s:g}"

    def of(self, values: Array) -> float:
        """The statistic of a sample; infinite when it is empty or reaches into what is: infinite times are failures."""
        share = STATISTICS[self.statistic]
        if not len(values):
            return math.inf
        if share is None:
            return float(values.mean())
        if np.isfinite(values).all():
            return float(np.quantile(values, share))
        place = share * (len(values) - 1)
        low, high = np.sort(values)[[math.floor(place), math.ceil(place)]]
        return math.inf if math.isinf(high) else float(low + (high - low) * (place - math.floor(place)))


def parse_slo(text: str) -> Slo:
    """Read `STATISTIC METRIC <= SECONDS`.

    Raises
    ------
    InputError
        Another form, an unknown statistic or metric, or a limit that is not a positive number.
    """
    found = _SLO.fullmatch(text)
    if found is None or found[3] != "<=":
        raise InputError(f"--slo {text!r}: expected 'STATISTIC METRIC <= SECONDS', such as 'p95 trajectory_s <= 60'")
    if found[1] not in STATISTICS:
        raise unknown_name("statistic of an SLO", found[1], STATISTICS)
    if found[2] not in METRICS:
        raise unknown_name("metric of an SLO", found[2], METRICS)
    return Slo(statistic=found[1], metric=found[2], limit_s=_positive(found[4], f"--slo {text!r}: the limit"))


def parse_slos(texts: Sequence[str]) -> tuple[Slo, ...]:
    """Several objectives, all of which must hold; none may stand twice."""
    found = tuple(parse_slo(text) for text in texts)
    if not found:
        raise InputError("a size needs an objective: --slo 'p95 trajectory_s <= 60'")
    if len({(s.statistic, s.metric) for s in found}) != len(found):
        raise InputError(f"--slo: one limit for each statistic and metric, got {', '.join(map(str, found))}")
    return found


def parse_rate(text: str) -> float:
    """Trajectories per second from `2/s`, `120/min` or `7200/h`."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise InputError(f"--rate {text!r}: expected a number per s, min or h, such as 2/s")
    return _positive(found[1], f"--rate {text!r}: the rate") / _SECONDS[found[2]]


def _positive(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{what} must be a positive number, got {text}")
    return value
