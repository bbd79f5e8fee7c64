"""Covariance of a robust fit, and how a calibration file states it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


def curvature(residuals: Array, jacobian: Array) -> Array:
    """Covariance (n, n) at a solution under a soft-L1 loss of scale 1: the inverse of J' W J.

    Parameters
    ----------
    residuals : array (n_rows,)
        Weighted residuals, priors among them.
    jacobian : array (n_rows, n)
        With W = diag(1 / sqrt(1 + r^2)), the weight the loss gives a row.
    """
    weighted = jacobian / (1.0 + residuals**2)[:, None] ** 0.25
    return np.asarray(np.linalg.inv(weighted.T @ weighted), dtype=np.float64)


def covariance_lines(key: str, names: Sequence[str], matrix: Array) -> list[str]:
    """`[covariance."KEY"]`: names, and the lower triangle of the covariance of their logarithms, row by row."""
    lower = [f"{matrix[i, j]:.3g}" for i in range(len(names)) for j in range(i + 1)]
    listed = ", ".join(f'"{n}"' for n in names)
    return [f'[covariance."{key}"]', f"names = [{listed}]", f"lower = [{', '.join(lower)}]", ""]
