"""What is known of a deployment's factors before it is measured: the bundled fit as a normal distribution.

Factors live on the scales of `validate.fit_layout`, on which any real number is a possible value.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from costmodel.deployment import Deployment
from hwprofiles.calibration import BUNDLED
from hwprofiles.efficiency import Factor, factor_range
from validate.fit_layout import Array, Scale, from_scale, to_scale

Z90 = 1.645
_ENERGY = ("flop_j", "byte_j", "idle_w_share")
"""Factors that no clock can see."""
_LEAST_SD = 0.02
"""A band that is stated as a point still leaves this much on the factor's scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Normal prior of some factors on their scales.

    Parameters
    ----------
    names : tuple of str
        Device factors, then engine factors.
    scales : tuple of Scale
    mean : array (n,)
    covariance : array (n, n)
    """

    names: tuple[str, ...]
    scales: tuple[Scale, ...]
    mean: Array
    covariance: Array

    def only(self, places: Sequence[int]) -> Prior:
        """The prior of some of the factors, by place."""
        at = list(places)
        return Prior(
            names=tuple(self.names[i] for i in at),
            scales=tuple(self.scales[i] for i in at),
            mean=self.mean[at],
            covariance=self.covariance[np.ix_(at, at)],
        )

    def values(self, z: Array) -> dict[str, Any]:
        """Factor values at points on the scales: name -> number for z (n,), array (k, 1) for z (k, n)."""
        found: dict[str, Any] = {}
        for i, (name, scale) in enumerate(zip(self.names, self.scales, strict=True)):
            low, high = factor_range(name)
            value = np.clip(from_scale(z[..., i], scale), max(low, 1e-12), high)
            found[name] = float(value) if z.ndim == 1 else np.asarray(value)[:, None]
        return found


def prior(dep: Deployment) -> Prior:
    """The prior of a deployment's device and engine factors.

    mean = the factor on its scale;  sd = (high - low) / (2 * 1.645) of its 90 % band there;  correlations are those of
    the bundled fit where it has the device, else none.
    """
    factors: dict[str, Factor] = {k: f for k, f in dep.efficiency.factors.items() if k not in _ENERGY}
    factors |= dep.engine.factors
    names = tuple(factors)
    scales = tuple(scale_of(name) for name in names)
    pairs = list(zip(factors.values(), scales, strict=True))
    mean = np.array([float(to_scale(f.value, scale)) for f, scale in pairs])
    ends = [(float(to_scale(f.low, s)), float(to_scale(f.high, s))) for f, s in pairs]
    sd = np.array([max(_LEAST_SD, (high - low) / (2 * Z90)) for low, high in ends])
    covariance = np.outer(sd, sd) * _correlations(dep.hardware.name, names, sd)
    return Prior(names=names, scales=scales, mean=mean, covariance=covariance)


def scale_of(name: str) -> Scale:
    """The scale of a factor, by its unit: exponents, times and counts, shares."""
    if name.startswith("roof_exponent"):
        return "exponent"
    return "log" if name.endswith(("_s", "_k", "_n", "_tokens")) else "share"


def _correlations(device: str, names: Sequence[str], sd: Array) -> Array:
    """Correlations of the fit, less what its own covariance leaves of the band's width."""
    found = np.eye(len(names))
    table = _covariances().get(device)
    if table is None:
        return found
    listed = table["names"]
    lower = np.zeros((len(listed), len(listed)))
    lower[np.tril_indices(len(listed))] = table["lower"]
    whole = lower + lower.T - np.diag(np.diag(lower))
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            if i != j and a in listed and b in listed:
                found[i, j] = whole[listed.index(a), listed.index(b)] / (sd[i] * sd[j])
    values, vectors = np.linalg.eigh(found)
    fixed = (vectors * np.maximum(values, 1e-3)) @ vectors.T
    scale = np.sqrt(np.diag(fixed))
    positive: Array = fixed / np.outer(scale, scale)
    return positive


@cache
def _covariances() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = tomllib.loads(BUNDLED.read_text(encoding="utf-8")).get("covariance", {})
    return found
