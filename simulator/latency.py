"""Laws of a waiting time as multiples of its mean: constant, lognormal, bounded Pareto, empirical.

Every law has mean 1, so a time is `mean_s * law.quantile(u)` with `u` uniform on [0, 1): one uniform per time, which
makes times of different scenarios rise and fall together.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from statistics import NormalDist

from hwprofiles.errors import InputError

MAX_VALUES = 1_000_000
MAX_FILE_BYTES = 32 * 2**20
_NORMAL = NormalDist()
_LEAST = 2.0**-54


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the mean."""

    def quantile(self, u: float) -> float:
        """1, whatever `u`."""
        return 1.0

    def mean_below(self, most: float) -> float:
        """E[min(Y, most)]."""
        return min(1.0, most)

    def beyond(self, most: float) -> float:
        """P(Y > most)."""
        return float(most < 1.0)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """ln Y ~ N(-sigma^2 / 2, sigma^2), sigma > 0."""

    sigma: float

    def __post_init__(self) -> None:
        if not 0 < self.sigma <= 5:
            raise InputError(f"sigma of a lognormal law must be over 0 and at most 5, got {self.sigma:g}")

    def quantile(self, u: float) -> float:
        """exp(sigma z - sigma^2 / 2), z the normal quantile of `u`."""
        return math.exp(self.sigma * _NORMAL.inv_cdf(max(u, _LEAST)) - self.sigma**2 / 2)

    def mean_below(self, most: float) -> float:
        """E[min(Y, t)] = Phi((ln t - sigma^2/2) / sigma) + t (1 - Phi((ln t + sigma^2/2) / sigma))."""
        if most <= 0:
            return 0.0
        if math.isinf(most):
            return 1.0
        return _NORMAL.cdf((math.log(most) - self.sigma**2 / 2) / self.sigma) + most * self.beyond(most)

    def beyond(self, most: float) -> float:
        """P(Y > t) = Phi(-(ln t + sigma^2/2) / sigma)."""
        return 1.0 if most <= 0 else _NORMAL.cdf(-(math.log(most) + self.sigma**2 / 2) / self.sigma)


@dataclass(frozen=True, slots=True)
class Pareto:
    """Bounded Pareto: density proportional to y^(-shape - 1) from `least` to `least * spread`.

    The bound keeps every mean finite; `least` follows from the mean of 1. A shape of 1 to 2 is heavy-tailed.
    """

    shape: float
    spread: float

    def __post_init__(self) -> None:
        if not 0.1 <= self.shape <= 20:
            raise InputError(f"shape of a Pareto law must be 0.1 to 20, got {self.shape:g}")
        if not 1 < self.spread <= 1e9:
            raise InputError(f"spread of a Pareto law must be over 1 and at most 1e9, got {self.spread:g}")

    @property
    def least(self) -> float:
        """Shortest time over the mean: 1 / (1 + integral of P(Y > y) from 1 to spread, in units of `least`)."""
        return 1.0 / (1.0 + self._area(self.spread))

    def quantile(self, u: float) -> float:
        """least * (1 - u (1 - spread^-shape))^(-1/shape)."""
        kept = 1.0 + u * math.expm1(-self.shape * math.log(self.spread))
        return self.least * math.exp(-math.log(kept) / self.shape)

    def mean_below(self, most: float) -> float:
        """E[min(Y, t)] = least * (1 + integral of P(Y / least > x) from 1 to t / least)."""
        least = self.least
        if most <= least:
            return max(0.0, most)
        return least * (1.0 + self._area(min(most / least, self.spread)))

    def beyond(self, most: float) -> float:
        """P(Y > t) = ((least / t)^shape - spread^-shape) / (1 - spread^-shape)."""
        x = most / self.least
        if x <= 1:
            return 1.0
        end = math.exp(-self.shape * math.log(self.spread))
        return 0.0 if x >= self.spread else (math.exp(-self.shape * math.log(x)) - end) / (1.0 - end)

    def _area(self, x: float) -> float:
        """Integral from 1 to `x` of P(Y / least > y)."""
        end, over = math.exp(-self.shape * math.log(self.spread)), self.shape - 1.0
        log = math.log(x)
        powers = log if abs(over * log) < 1e-12 else -math.expm1(-over * log) / over
        return (powers - end * (x - 1.0)) / (1.0 - end)


@dataclass(frozen=True, slots=True)
class Empirical:
    """Recorded values over their mean, each as likely as any other; sorted."""

    values: tuple[float, ...]
    sums: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sums", tuple(accumulate(self.values, initial=0.0)))

    def quantile(self, u: float) -> float:
        """The value at rank floor(u n)."""
        return self.values[min(int(u * len(self.values)), len(self.values) - 1)]

    def mean_below(self, most: float) -> float:
        """Mean of min(value, most)."""
        n = len(self.values)
        k = bisect_right(self.values, most)
        return self.sums[k] / n + (most * (n - k) / n if k < n else 0.0)

    def beyond(self, most: float) -> float:
        """Share of values over `most`."""
        return 1.0 - bisect_right(self.values, most) / len(self.values)


Law = Constant | Lognormal | Pareto | Empirical
"""A law of mean 1."""


def empirical(seconds: Sequence[float], where: str) -> tuple[Empirical, float]:
    """A law of recorded times, and their mean in seconds.

    Raises
    ------
    InputError
        No times, or times that are all zero.
    """
    if not seconds:
        raise InputError(f"{where}: holds no times")
    mean = math.fsum(seconds) / len(seconds)
    if mean <= 0:
        raise InputError(f"{where}: all times are 0, so they have no law")
    return Empirical(tuple(sorted(s / mean for s in seconds))), mean


def read_times(path: str | Path) -> tuple[float, ...]:
    """Seconds from a text file, one number a line; blank lines and lines that begin with `#` do not count.

    Raises
    ------
    InputError
        The file cannot be read, is too long, or a line is no number >= 0; the message names file and line.
    """
    file = Path(path)
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{file.name}: larger than {MAX_FILE_BYTES >> 20} MiB")
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{file.name}: not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    found = []
    for n, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"{file.name}, line {n}: must be a number of seconds, got {text[:40]!r}") from None
        if not 0 <= value <= 1e9:
            raise InputError(f"{file.name}, line {n}: must be 0 to 1e9 seconds, got {text[:40]}")
        found.append(value)
    if not found or len(found) > MAX_VALUES:
        raise InputError(f"{file.name}: must hold 1 to {MAX_VALUES} times, got {len(found)}")
    return tuple(found)
