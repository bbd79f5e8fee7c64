"""What the fits of engine generations share: least squares on logarithms, the fitted file, the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from validate.accuracy import calibration
from validate.accuracy.factors import FactorTable
from validate.accuracy.fit_covariance import curvature
from validate.accuracy.tables import Row, load_rows

Array = np.ndarray[Any, np.dtype[np.float64]]
Found = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Of each fitted factor: prior value, least, most, and spread of the logarithm around the prior."""

    names: tuple[str, ...]
    prior: Array
    low: Array
    high: Array
    spread: Array

    def around(self, values: Mapping[str, float], tighter: float) -> Start:
        """The same factors around other values, with `tighter` times the spread."""
        prior = np.clip([values[name] for name in self.names], self.low, self.high)
        return Start(names=self.names, prior=prior, low=self.low, high=self.high, spread=tighter * self.spread)


def start(first: Mapping[str, tuple[float, float, float, float]]) -> Start:
    """From a table of name -> prior, least, most, spread."""
    prior, low, high, spread = (np.array([row[j] for row in first.values()]) for j in range(4))
    return Start(names=tuple(first), prior=prior, low=low, high=high, spread=spread)


class Solved(NamedTuple):
    """The factors with the least robust cost, that cost, and the covariance (n, n) of the factors' logarithms."""

    factors: dict[str, float]
    cost: float
    covariance: Array


def solve(
    values: Callable[[Mapping[str, Any]], Array],
    measured: Array,
    begin: Start,
    row_sd: float,
    n_steps: int,
    at: Mapping[str, float] | None = None,
    step: float = 1e-4,
) -> Solved:
    """The factors with the least robust cost (soft L1).

    Minimises sum of (log(value / measured) / row_sd)^2 + (log(factor / prior) / spread)^2, every factor bounded.

    Parameters
    ----------
    values : callable
        Figures under some factors; given arrays (n_samples, 1) it returns (n_samples, n_rows).
    measured : array (n_rows,)
    at : mapping or None
        Where to begin in place of the prior, for some factors.
    step : float
        Of the logarithms for slopes; larger where the figures come from a simulation.
    """
    from scipy.optimize import least_squares

    low, high, prior = (np.log(x) for x in (begin.low, begin.high, begin.prior))
    inside = np.clip(prior, low + 1e-9, high - 1e-9)
    for name, value in (at or {}).items():
        inside[begin.names.index(name)] = np.log(value)
    wanted = np.log(measured)

    def logs(x: Array) -> Array:
        each = np.exp(x)
        own = {n: each[:, j, None] if x.ndim == 2 else float(each[j]) for j, n in enumerate(begin.names)}
        found: Array = np.log(values(own))
        return found

    def residuals(x: Array) -> Array:
        return np.concatenate([np.nan_to_num(logs(x) - wanted) / row_sd, (x - prior) / begin.spread])

    def jacobian(x: Array) -> Array:
        moved = logs(np.vstack([x, x + step * np.eye(len(x))]))
        return np.vstack([np.nan_to_num((moved[1:] - moved[0]) / (step * row_sd)).T, np.diag(1.0 / begin.spread)])

    best = least_squares(residuals, inside, jac=jacobian, bounds=(low, high), loss="soft_l1", max_nfev=n_steps)
    covariance = curvature(residuals(best.x), jacobian(best.x))
    return Solved(dict(zip(begin.names, np.exp(best.x).tolist(), strict=True)), float(best.cost), covariance)


def main(
    module: str, text: str | None, fit: Callable[[Sequence[Row], FactorTable, FactorTable], Found],
    argv: Sequence[str] | None = None,
) -> None:  # fmt: skip
    """Fit the generations of some tables from the command line and write them as TOML."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=text)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(argv)
    found = fit(load_rows(given.tables), *calibration.bundled())
    write(given.output, module, given.tables, "generations", found)


def write(
    output: Path, module: str, tables: Sequence[Path], section: str, found: Mapping[str, Mapping[str, float]]
) -> None:
    """Write fitted numbers with what they came from."""
    source = f"python -m {module} on " + ", ".join(sorted(path.name for path in tables))
    lines = [f"# {source}", f'[provenance]\nsource = "{source}"', ""]
    for key in sorted(found):
        lines.append(f'[{section}."{key}"]')
        lines += [f"{name} = {value:.4g}" for name, value in found[key].items()] + [""]
    output.write_text("\n".join(lines), encoding="utf-8")
