"""What can go wrong at a step: probabilities of errors, reviews, recovery and holds, and how difficulty moves them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hwprofiles.errors import InputError

Array = np.ndarray[Any, np.dtype[np.float64]]

MOST_NODES = 64
"""Difficulties of a quadrature; more change no success or damage of up to 200 steps by more than 1e-9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazards:
    """Per-step probabilities, numbers or arrays that broadcast to one shape (..., n_points).

    Parameters
    ----------
    weak, strong : a step of that author is wrong
    detection, false_reject : a review rejects a wrong, a right step; or curves (K, K), (n_points, K, K) indexed
        [offset, length - 1], their ends holding beyond
    recovery_weak, recovery_strong : a tainted trajectory is mended by a committed step of that author
    irreversible : share of harmful writes that fail the trajectory at once
    hold_failure : a write is taken for a read
    sticky : hold failure is a property of a tool for the whole trajectory; False draws it anew per call
    immediate : recovery mends a wrong step when it is made, or never: S_N = (1 - q (1 - g))^N
    """

    weak: Any
    strong: Any
    detection: Any
    false_reject: Any
    recovery_weak: Any
    recovery_strong: Any
    irreversible: float = 0.0
    hold_failure: Any = 0.0
    sticky: bool = True
    immediate: bool = False

    def __post_init__(self) -> None:
        for name in (
            "weak",
            "strong",
            "detection",
            "false_reject",
            "recovery_weak",
            "recovery_strong",
            "irreversible",
            "hold_failure",
        ):
            values = np.asarray(getattr(self, name), dtype=float)
            if not np.all((values >= -1e-12) & (values <= 1 + 1e-12)):
                raise InputError(f"{name}: a probability must be from 0 to 1, got {values.min():g} to {values.max():g}")

    @property
    def is_flat(self) -> bool:
        """Whether reviews do not depend on the position in the segment."""
        return np.ndim(self.detection) < 2 and np.ndim(self.false_reject) < 2

    @property
    def shape(self) -> tuple[int, ...]:
        """What everything but hold failures broadcasts to."""
        curves = [np.shape(x)[:-2] if np.ndim(x) >= 2 else np.shape(x) for x in (self.detection, self.false_reject)]
        rest = (self.weak, self.strong, self.recovery_weak, self.recovery_strong)
        return np.broadcast_shapes(*curves, *map(np.shape, rest))

    def review(self, offset: Any, length: Any) -> tuple[Any, Any]:
        """Detection and false rejection at offsets (n,) of segments of some lengths (n,): (n, ...) or flat ones."""
        return self._at(self.detection, offset, length), self._at(self.false_reject, offset, length)

    @staticmethod
    def _at(x: Any, offset: Any, length: Any) -> Any:
        if np.ndim(x) < 2:
            return x
        k, n = np.shape(x)[-2:]
        return np.moveaxis(np.asarray(x)[..., np.minimum(offset, k - 1), np.minimum(length, n) - 1], -1, 0)


def difficulties(heterogeneity: float, n_steps: int) -> tuple[Array, Array]:
    """Nodes z in (0, 1) and weights of a symmetric Beta difficulty: Gauss-Jacobi, exact for polynomials of 3 n_steps.

    z ~ Beta(c, c), c = (1 - rho) / (2 rho), so Var z = rho / 4;   nodes: min(MOST_NODES, ceil((3 n_steps + 1) / 2))

    Parameters
    ----------
    heterogeneity : float
        rho, from 0 (all tasks alike) to below 1 (each task surely easy or surely hard).

    Raises
    ------
    InputError
        rho out of range.
    """
    if not 0 <= heterogeneity < 1:
        raise InputError(f"heterogeneity must be from 0 to below 1, got {heterogeneity:g}")
    if heterogeneity == 0:
        return np.array([0.5]), np.array([1.0])
    from scipy.special import roots_jacobi

    c = (1 - heterogeneity) / (2 * heterogeneity)
    x, weight = roots_jacobi(min(MOST_NODES, math.ceil((3 * n_steps + 1) / 2)), c - 1, c - 1)
    return (1 + x) / 2, weight / weight.sum()


def at_difficulty(h: Hazards, z: Array, correlation: float) -> Hazards:
    """Hazards of tasks of difficulty z (n_points,), linear in z, with the given ones at z = 1/2.

    w(z) = 2 z w,   u(z) = 2 z u,   d(z) = d - (2 z - 1) correlation min(d, 1 - d)

    Hard tasks are hard for all: drafter, author and, to the degree of `correlation`, the reviewer share blind spots.

    Raises
    ------
    InputError
        A hazard above 1/2, which would pass 1 at z = 1, with more than one difficulty.
    """
    if np.all(z == 0.5):
        return h
    for name in ("weak", "strong"):
        if np.max(getattr(h, name)) > 0.5:
            raise InputError(
                f"{name}: with heterogeneity a mean hazard must be <= 0.5, got {np.max(getattr(h, name)):g}"
            )
    d, f = (np.asarray(x, dtype=float) for x in (h.detection, h.false_reject))
    curve = (1, 1) if d.ndim >= 2 else ()
    shift = (2 * z - 1).reshape(-1, *curve) * correlation * np.minimum(d, 1 - d)
    return replace(
        h,
        weak=2 * z * h.weak,
        strong=2 * z * h.strong,
        detection=d - shift,
        false_reject=f if f.ndim < 2 else np.broadcast_to(f, (len(z), *f.shape[-2:])),
    )
