"""Least squares on log error: the rows of prepared tables against a layout of unknowns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from validate.accuracy.factors import HOST, FactorTable, row_factors
from validate.accuracy.kinds import Subject
from validate.accuracy.predict import Group, Prepared
from validate.fit_layout import Array, Index, Layout, Mask, from_scale

EFFECTIVE_SHARE = 0.1
"""Rows of one table are not independent: about one in ten counts (residuals cluster by model, devices and phase)."""
ROW_SIGMA = 0.05
SOFT = 0.1
"""Log error from which the soft-L1 loss grows linearly."""
_STEP = 1e-4
Cell = Callable[[Subject], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Task:
    """Rows of one group that are fitted, and what they feel."""

    group: Group
    places: Index
    log_measured: Array
    base: Mapping[str, Any]
    names: tuple[str, ...]
    cell: tuple[str, str]
    unknowns: tuple[tuple[int, ...], ...]
    weight: float


class Problem:
    """Residuals and Jacobian of some rows under a layout.

    Parameters
    ----------
    prepared : Prepared
    layout : Layout
    keep : bool array (n_rows,)
        Rows to fit.
    device_table, generations : mappings
        Factors that are not fitted here (`validate.accuracy.factors`).
    cell : callable Subject -> (device, library)
        Whose effects a row feels.
    names : callable Subject -> set of factor names
        The factors a kind of row depends on.
    weight : callable Subject -> float
        Weight of a row of this kind.
    """

    def __init__(
        self,
        prepared: Prepared,
        layout: Layout,
        keep: Mask,
        *,
        device_table: FactorTable,
        generations: FactorTable,
        cell: Cell,
        names: Callable[[Subject], frozenset[str]],
        weight: Callable[[Subject], float],
    ) -> None:
        self.layout = layout
        self.tasks: list[Task] = []
        measured = np.array([row.value for row in prepared.rows])
        seconds = np.where(prepared.tokens > 0, prepared.tokens / measured, measured / prepared.scale)
        for group in prepared.groups:
            kept = keep[group.places]
            if not kept.any():
                continue
            where = cell(group.subject)
            own = names(group.subject)
            used = tuple(n for n in layout.parameters if n in own)
            self.tasks.append(
                Task(
                    group,
                    np.flatnonzero(kept),
                    np.log(seconds[group.places[kept]]),
                    {**HOST, **row_factors(group.subject, device_table, generations)},
                    used,
                    where,
                    tuple(tuple(layout.places(n, *where)) for n in used),
                    weight(group.subject) * EFFECTIVE_SHARE**0.5 / ROW_SIGMA,
                )
            )
        self.n_rows = sum(len(t.places) for t in self.tasks)

    def errors(self, x: Array, jacobian: bool) -> tuple[Array, Array | None]:
        """Weighted log errors of all rows and, on request, their derivatives; priors come last."""
        n = self.layout.size
        found = np.empty(self.n_rows + n)
        slope = np.zeros((self.n_rows + n, n)) if jacobian else None
        at = 0
        for task in self.tasks:
            logs = self._logs(task, x, jacobian)
            rows = slice(at, at + len(task.places))
            found[rows] = task.weight * (logs[0] - task.log_measured)
            if slope is not None:
                for column, unknowns in enumerate(task.unknowns):
                    own = task.weight * (logs[1 + column] - logs[0]) / _STEP
                    for i in unknowns:
                        slope[rows, i] += own
            at += len(task.places)
        found[at:] = x / self.layout.spread
        if slope is not None:
            slope[at:, :] = np.diag(1.0 / self.layout.spread)
        return found, slope

    def slopes(self, task: Task, x: Array) -> Array:
        """Derivatives of the log of a task's rows by the scale of each of its factors, (n_factors, n_rows)."""
        logs = self._logs(task, x, True)
        found: Array = (logs[1:] - logs[0]) / _STEP
        return found

    def _logs(self, task: Task, x: Array, jacobian: bool) -> Array:
        factors = dict(task.base)
        count = 1 + (len(task.names) if jacobian else 0)
        for column, name in enumerate(task.names):
            z = np.full((count, 1), self.layout.z(x, name, *task.cell))
            if jacobian:
                z[1 + column] += _STEP
            factors[name] = from_scale(z, self.layout.parameters[name].scale)
        seconds = np.asarray(task.group.price(factors))
        whole = np.broadcast_to(seconds, (count, seconds.shape[-1]))
        found: Array = np.log(whole[:, task.places])
        return found


@dataclass(frozen=True, slots=True)
class Solution:
    """Unknowns, their covariance, and the number of rows behind them."""

    x: Array
    covariance: Array
    n_rows: int


def solve(problem: Problem, start: Array | None = None, max_evaluations: int = 25) -> Solution:
    """Fit with a robust loss; the covariance is the inverse curvature at the solution, priors included."""
    from scipy.optimize import least_squares

    def residuals(x: Array) -> Array:
        return problem.errors(x, False)[0]

    def jacobian(x: Array) -> Array:
        slope = problem.errors(x, True)[1]
        assert slope is not None
        return slope

    soft = SOFT * EFFECTIVE_SHARE**0.5 / ROW_SIGMA
    found = least_squares(
        residuals,
        np.zeros(problem.layout.size) if start is None else start,
        jac=jacobian,
        bounds=(-6.0, 6.0),
        loss="soft_l1",
        f_scale=soft,
        xtol=1e-5,
        ftol=1e-5,
        x_scale=problem.layout.spread,
        max_nfev=max_evaluations,
        method="trf",
        tr_solver="lsmr",
    )
    errors, slope = problem.errors(found.x, True)
    assert slope is not None
    weighted = slope / np.sqrt(1.0 + (errors / soft) ** 2)[:, None] ** 0.5
    return Solution(found.x, np.linalg.inv(weighted.T @ weighted), problem.n_rows)


def log_errors(prepared: Prepared, values: Array) -> Array:
    """log(predicted / measured) of every row on the scale of seconds; NaN where skipped."""
    measured = np.array([row.value for row in prepared.rows])
    ratio = np.where(prepared.tokens > 0, measured / values, values / measured)
    found: Array = np.log(np.where(ratio > 0, ratio, np.nan))
    return found


def summary(errors: Sequence[float]) -> tuple[int, float, float, float]:
    """Rows, median and 90th percentile of |exp(error) - 1| in percent, and the median error in percent."""
    e = np.asarray(errors, dtype=float)
    ape = 100.0 * np.abs(np.expm1(e))
    return len(e), float(np.median(ape)), float(np.quantile(ape, 0.9)), float(100.0 * np.median(e))
