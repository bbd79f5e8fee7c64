"""Draws from what is known of the factors after a fit, where the normal approximation at its solution is too narrow.

A time that a host of half the size would hardly change bounds it on one side only; so intervals come from the posterior
itself, by a preconditioned Crank-Nicolson walk (Cotter et al. 2013, "MCMC methods for functions") whose reference is
the normal approximation: most proposals are accepted, and nothing has to be tuned.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from validate.fit_layout import Array

CHAINS = 96
STEPS = 90
BURN = 30
ROUNDS = 2
_STRIDE = 0.45
"""Share of a proposal that is new."""
_WIDER = 1.5
"""What the reference's covariance is multiplied by: a walk finds its way back from too far, not out of too near."""

Cost = Callable[[Array], Array]


def draws(cost: Cost, centre: Array, covariance: Array, seed: int = 0) -> Array:
    """Points of the density exp(-cost(z)), (n_draws, n).

    The walk is begun anew from its own mean and covariance, `ROUNDS` times in all; the last round's points count.

    Parameters
    ----------
    cost : callable (k, n) -> (k,)
        Minus the log density, up to a constant.
    centre, covariance : arrays (n,), (n, n)
        Its normal approximation.
    """
    rng = np.random.default_rng(seed)
    found = _walk(cost, centre, _WIDER * covariance, rng)
    for _ in range(ROUNDS - 1):
        found = _walk(cost, found.mean(axis=0), _WIDER * np.cov(found.T).reshape(covariance.shape), rng)
    return found


def _walk(cost: Cost, centre: Array, covariance: Array, rng: np.random.Generator) -> Array:
    root = np.linalg.cholesky(covariance)
    white = rng.standard_normal((CHAINS, len(centre)))

    def excess(at: Array) -> Array:
        found: Array = cost(centre + at @ root.T) - 0.5 * (at**2).sum(axis=1)
        return np.nan_to_num(found, nan=np.inf, posinf=np.inf)

    level = excess(white)
    kept = []
    for step in range(STEPS):
        moved = np.sqrt(1.0 - _STRIDE**2) * white + _STRIDE * rng.standard_normal(white.shape)
        new = excess(moved)
        taken = np.log(rng.random(CHAINS)) < level - new
        white, level = np.where(taken[:, None], moved, white), np.where(taken, new, level)
        if step >= BURN:
            kept.append(centre + white @ root.T)
    return np.concatenate(kept)
