"""Fits a deployment's device and engine factors to measured times: least squares on log time under the bundled prior.

    minimise  sum over points of rho((log t(z) - log measured)^2 / sigma^2) + |L^-1 (z - mean)|^2,   L L^T = prior

rho grows linearly beyond a few sigma, so that one disturbed point moves little. Intervals are quantiles of draws from
the same density (`validate.calibrate_sample`), with the points' noise scaled up where they scatter more than stated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwprofiles.efficiency import factor_range
from hwprofiles.errors import InputError
from validate.calibrate_prior import Prior
from validate.calibrate_sample import draws
from validate.design import STEP
from validate.fit_layout import Array, from_scale

IDENTIFIED = 0.7
"""A factor counts as measured where its standard deviation has come down to this share of the prior's."""
_SOFT = 3.0
"""Sigmas from which a point's pull stops growing."""

Seconds = Callable[[Mapping[str, Any]], Any]
"""Seconds (n,) or (k, n) under factors that are numbers or arrays (k, 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Measured times and how they are priced.

    Parameters
    ----------
    seconds : callable
    measured_s, sigma : arrays (n,)
        Seconds, and their log noise.
    labels : tuple of str
    """

    seconds: Seconds
    measured_s: Array
    sigma: Array
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One factor: value, 90 % interval, and how much of the prior's standard deviation is left."""

    value: float
    low: float
    high: float
    left: float

    @property
    def identified(self) -> bool:
        """Whether the measurements say something of it."""
        return self.left <= IDENTIFIED


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A calibration: `prior` of the factors that the deployment feels, and their most probable point `z` on the scales.

    `draws` (n_draws, n_factors) are points of the posterior; `predicted_s` the seconds of every measured point at `z`;
    `misfit` the scatter over the stated noise, at least 1.
    """

    prior: Prior
    z: Array
    draws: Array
    evidence: tuple[Evidence, ...]
    predicted_s: Array
    misfit: float

    @property
    def n(self) -> int:
        """Measured points."""
        return len(self.predicted_s)

    @property
    def covariance(self) -> Array:
        """Of the posterior, on the scales."""
        found: Array = np.cov(self.draws.T).reshape(len(self.z), len(self.z))
        return found

    def estimates(self, level: float = 0.9) -> dict[str, Estimate]:
        """Every factor that the deployment feels, by name, each with its own interval of that level."""
        tails = (1.0 - level) / 2
        low, high = np.quantile(self.draws, (tails, 1.0 - tails), axis=0)
        left = self.draws.std(axis=0) / np.sqrt(np.diag(self.prior.covariance))
        found = {}
        for i, (name, scale) in enumerate(zip(self.prior.names, self.prior.scales, strict=True)):
            floor, ceiling = factor_range(name)
            ends = np.array([min(low[i], self.z[i]), self.z[i], max(high[i], self.z[i])])
            a, value, b = (float(np.clip(v, floor, ceiling)) for v in from_scale(ends, scale))
            found[name] = Estimate(value=value, low=a, high=b, left=float(left[i]))
        return found

    def residuals(self) -> list[dict[str, Any]]:
        """What was measured beside what the fit makes of it."""
        labels = [label for e in self.evidence for label in e.labels]
        measured = np.concatenate([e.measured_s for e in self.evidence])
        return [
            {"point": label, "measured_s": float(m), "predicted_s": float(p), "error": float(p / m - 1.0)}
            for label, m, p in zip(labels, measured, self.predicted_s, strict=True)
        ]


def felt(prior: Prior, seconds: Sequence[Seconds]) -> Prior:
    """The part of a prior that moves any of these times at all."""
    grad = np.vstack([_slopes(prior, prior.mean, one)[1] for one in seconds])
    return prior.only(np.flatnonzero(np.abs(grad).max(axis=0) > 1e-9).tolist())


def fit(prior: Prior, evidence: Sequence[Evidence], max_evaluations: int = 40) -> Fitted:
    """The most probable factors given some measured times.

    Parameters
    ----------
    prior : Prior
        Of the factors that may move; the pricers keep the others.

    Raises
    ------
    InputError
        No measured time, or one that is no finite number above 0.
    """
    from scipy.optimize import least_squares

    measured = np.concatenate([e.measured_s for e in evidence]) if evidence else np.zeros(0)
    if not len(measured) or not np.all(np.isfinite(measured) & (measured > 0)):
        raise InputError("a calibration needs at least one measured time, each a finite number of seconds above 0")
    logs, sigma = np.log(measured), np.concatenate([e.sigma for e in evidence])
    root = np.linalg.cholesky(prior.covariance)
    n = len(measured)

    def residuals(u: Array) -> Array:
        z = prior.mean + root @ u
        factors = prior.values(z)
        predicted = np.concatenate([np.log(np.asarray(e.seconds(factors))) for e in evidence])
        return np.concatenate([(predicted - logs) / sigma, u])

    def jacobian(u: Array) -> Array:
        z = prior.mean + root @ u
        grad = np.vstack([_slopes(prior, z, e.seconds)[1] for e in evidence])
        return np.vstack([grad @ root / sigma[:, None], np.eye(len(u))])

    found = least_squares(
        residuals,
        np.zeros(len(prior.names)),
        jac=jacobian,
        loss=lambda square: _robust(square, n),  # type: ignore[arg-type]  # the stubs know one shape of the answer
        max_nfev=max_evaluations,
    )
    errors, slope = residuals(found.x)[:n], jacobian(found.x)[:n]
    weight = _robust(errors**2, n)[1]
    misfit = max(1.0, float(np.sqrt(np.sum(weight * errors**2) / n)))
    curvature = np.eye(len(found.x)) + (slope * weight[:, None]).T @ slope / misfit**2
    z = prior.mean + root @ found.x
    inverse = np.linalg.inv(root)

    def cost(at: Array) -> Array:
        factors = prior.values(at)
        predicted = np.hstack([np.broadcast_to(np.log(e.seconds(factors)), (len(at), len(e.labels))) for e in evidence])
        scaled = ((predicted - logs) / (sigma * misfit)) ** 2
        total: Array = 0.5 * _robust(scaled.T, n)[0].sum(axis=0) + 0.5 * (((at - prior.mean) @ inverse.T) ** 2).sum(
            axis=1
        )
        return total

    return Fitted(
        prior=prior,
        z=z,
        draws=draws(cost, z, root @ np.linalg.inv(curvature) @ root.T),
        evidence=tuple(evidence),
        predicted_s=measured * np.exp(errors * sigma),
        misfit=misfit,
    )


def _slopes(prior: Prior, z: Array, seconds: Seconds) -> tuple[Array, Array]:
    """log t (n,) and its derivatives by the factors' scales, (n, n_factors)."""
    at = np.vstack([z, z + STEP * np.eye(len(z))])
    logs = np.log(np.asarray(seconds(prior.values(at))))
    logs = np.broadcast_to(logs, (len(at), logs.shape[-1]))
    return logs[0], ((logs[1:] - logs[0]) / STEP).T


def _robust(square: Array, n: int) -> Array:
    """Value and two derivatives of the loss: soft L1 of the first `n` squares, the square itself of the prior's."""
    out = np.stack([square, np.ones_like(square), np.zeros_like(square)])
    scaled = 1.0 + square[:n] / _SOFT**2
    out[0, :n] = 2.0 * _SOFT**2 * (np.sqrt(scaled) - 1.0)
    out[1, :n] = scaled**-0.5
    out[2, :n] = -0.5 * scaled**-1.5 / _SOFT**2
    return out
