"""The parameters of a fit: each factor is a common value and what a device, a kernel library or both add to it.

On a scale without ends, `z = common + library + device + device in library`; a share is a log value that levels off at
1, `log v = -log(1 + exp(-10 z)) / 10`; an exponent runs from 1 to 8; everything else is `log v = z`. Effects have
normal priors around zero: a device without rows has none, which is what "unseen" means.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Num = Any
Array = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Index = np.ndarray[Any, np.dtype[np.intp]]
Scale = Literal["share", "log", "exponent"]

COMMON = "common"
_SOFT = 10.0
_TOP_EXPONENT = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One factor to fit: start, its scale, and the standard deviations of its priors on that scale.

    `common_sd` is how far the common value may lie from `start`, `device_sd` and `library_sd` what one device or
    library adds; 0 leaves the effect out.
    """

    name: str
    start: float
    scale: Scale
    common_sd: float = 0.5
    device_sd: float = 0.1
    library_sd: float = 0.15


def share(name: str, start: float, device_sd: float = 0.12) -> Parameter:
    """A share of a datasheet figure, at most 1."""
    return Parameter(name=name, start=start, scale="share", device_sd=device_sd)


def amount(name: str, start: float, device_sd: float = 0.4) -> Parameter:
    """A positive time or count."""
    return Parameter(name=name, start=start, scale="log", common_sd=1.0, device_sd=device_sd, library_sd=0.4)


def exponent(name: str, start: float, device_sd: float = 0.3) -> Parameter:
    """The exponent of a smooth roof."""
    return Parameter(name=name, start=start, scale="exponent", device_sd=device_sd, library_sd=device_sd)


def to_scale(value: Num, scale: Scale) -> Num:
    """`z` of a value."""
    if scale == "share":
        return -np.log(np.maximum(np.expm1(-_SOFT * np.log(np.minimum(value, 0.999))), 1e-9)) / _SOFT
    if scale == "exponent":
        x = (value - 1.0) / (_TOP_EXPONENT - 1.0)
        return np.log(x / (1.0 - x))
    return np.log(value)


def from_scale(z: Num, scale: Scale) -> Num:
    """The value at `z`."""
    if scale == "share":
        return np.exp(-np.logaddexp(0.0, -_SOFT * z) / _SOFT)
    if scale == "exponent":
        return 1.0 + (_TOP_EXPONENT - 1.0) / (1.0 + np.exp(-z))
    return np.exp(z)


class Layout:
    """Where each effect stands in the vector of unknowns.

    Parameters
    ----------
    parameters : sequence of Parameter
    felt : mapping (device, library) -> set of factor names
        What the rows of each cell depend on; an effect that no row feels is left out.
    main_library : str
        The library the common values speak of; others add an effect to it.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        felt: Mapping[tuple[str, str], Collection[str]],
        main_library: str = "vllm",
    ) -> None:
        self.parameters = {p.name: p for p in parameters}
        self.main = main_library
        self.index: dict[tuple[str, str], int] = {}
        spreads: list[float] = []
        for p in parameters:
            cells = sorted(cell for cell, names in felt.items() if p.name in names)
            scopes = [(COMMON, p.common_sd)] if cells else []
            scopes += [(f"/{lib}", p.library_sd) for lib in sorted({lib for _, lib in cells} - {main_library})]
            scopes += [(dev, p.device_sd) for dev in sorted({dev for dev, _ in cells})]
            scopes += [(f"{dev}/{lib}", p.device_sd / 2) for dev, lib in cells if lib != main_library]
            for scope, sd in scopes:
                if sd > 0:
                    self.index[p.name, scope] = len(spreads)
                    spreads.append(sd)
        self.spread = np.array(spreads)
        self.starts = {p.name: float(to_scale(p.start, p.scale)) for p in parameters}

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return len(self.spread)

    def places(self, name: str, device: str, library: str) -> list[int]:
        """The unknowns that make up one factor of a device and library."""
        scopes = (COMMON, f"/{library}", device, f"{device}/{library}")
        return [self.index[name, s] for s in scopes if (name, s) in self.index]

    def z(self, x: Array, name: str, device: str, library: str) -> float:
        """A factor on its scale; every unknown is the distance from the start in its scope."""
        return self.starts[name] + float(sum(x[i] for i in self.places(name, device, library)))

    def values(self, x: Array, device: str, library: str) -> dict[str, float]:
        """All factors of one device and library; a device that has no effects gets the common values."""
        return {
            name: float(from_scale(self.z(x, name, device, library), p.scale)) for name, p in self.parameters.items()
        }

    def deviations(self, covariance: Array, device: str, library: str) -> Mapping[str, float]:
        """Standard deviation of each factor on its scale; where a device is not in the fit its prior adds to it."""
        found = {}
        for name, p in self.parameters.items():
            at = self.places(name, device, library)
            variance = float(covariance[np.ix_(at, at)].sum())
            if (name, device) not in self.index:
                variance += p.device_sd**2
            found[name] = variance**0.5
        return found
