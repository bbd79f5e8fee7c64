"""Fits the device factors to operators and device-only steps: one solution for all devices and kernel libraries.

Command: `python -m validate.fit FOLDER -o FILE.toml [--bands]`. `--bands` refits without each model and each device in
turn (some minutes) and writes the widths of the residuals; without it those of the file written over are kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwprofiles.errors import InputError
from validate.accuracy.factors import HOST, row_factors
from validate.accuracy.kinds import Subject
from validate.accuracy.predict import Prepared, prepare
from validate.accuracy.tables import load_rows
from validate.fit_factors import MAX_KV_SHARE, PARAMETERS, SOURCES, cell, felt
from validate.fit_layout import Array, Layout, Mask
from validate.fit_solve import Problem, Solution, log_errors, solve, summary

TABLES = ("aic_silicon_db_steps.csv", "aic_measured_ops.csv", "vidur_linear_ops.csv")
REFIT_EVALUATIONS = 12


@dataclass(frozen=True, slots=True)
class Fit:
    """A solved fit: the layout, the unknowns, and log(predicted / measured) of every row."""

    layout: Layout
    solution: Solution
    errors: Array
    problem: Problem


def load(folder: str | Path) -> Prepared:
    """The tables of operators and device-only steps in a folder, ready to price.

    Raises
    ------
    InputError
        The folder has none of the tables, or one of them is broken.
    """
    paths = [Path(folder) / name for name in TABLES if (Path(folder) / name).exists()]
    if not paths:
        raise InputError(f"{str(folder)!r} holds none of {', '.join(TABLES)}")
    return prepare(load_rows(paths))


def usable(prepared: Prepared) -> Mask:
    """Rows that are fitted: those without host time in them."""
    return marked(prepared, lambda s: s.generation in SOURCES)


def marked(prepared: Prepared, wanted: Callable[[Subject], bool]) -> Mask:
    """Rows whose subject is wanted."""
    return np.array([s is not None and wanted(s) for s in prepared.subjects])


def fit(prepared: Prepared, keep: Mask | None = None, max_evaluations: int = 25) -> Fit:
    """Fit all parameters of `validate.fit_factors` to some rows.

    Parameters
    ----------
    keep : bool array (n_rows,) or None
        Rows to fit; None: all that are `usable`.
    """
    rows = usable(prepared) if keep is None else keep & usable(prepared)
    names: dict[tuple[str, str], set[str]] = {}
    for group in prepared.groups:
        if rows[group.places].any():
            names.setdefault(cell(group.subject), set()).update(felt(group.subject))
    layout = Layout(PARAMETERS, names)
    problem = Problem(
        prepared, layout, rows, device_table={}, generations={}, cell=cell, names=felt, weight=lambda subject: 1.0
    )
    solution = solve(problem, max_evaluations=max_evaluations)
    return Fit(layout, solution, log_errors(prepared, values(prepared, layout, solution.x)), problem)


def values(prepared: Prepared, layout: Layout, x: Array) -> Array:
    """The figure of every row under a solution; NaN where skipped."""
    found = np.full(len(prepared.rows), np.nan)
    for group in prepared.groups:
        factors: dict[str, Any] = {**HOST, **row_factors(group.subject, {}, {})}
        factors.update(layout.values(x, *cell(group.subject)))
        found[group.places] = prepared.figures(group.places, np.asarray(group.price(factors)))
    return found


def lane(prepared: Prepared, i: int) -> str:
    """What kind of row this is; warm prefixes with a heavy KV read apart."""
    subject = prepared.subjects[i]
    assert subject is not None
    heavy = subject.kind == "warm" and not prepared.kv_share[i] < MAX_KV_SHARE
    return f"{subject.kind}{' (heavy KV)' if heavy else ''}"


def table(prepared: Prepared, errors: Array, rows: Mask) -> list[str]:
    """Lines of a report: rows, median, 90th percentile and bias in percent by kind and dtype."""
    groups: dict[tuple[str, str], list[float]] = {}
    for i in np.flatnonzero(rows & np.isfinite(errors)):
        subject = prepared.subjects[i]
        assert subject is not None
        groups.setdefault((lane(prepared, int(i)), subject.dtype), []).append(float(errors[i]))
    lines = [f"{'kind':18s} {'dtype':6s} {'rows':>6s} {'median':>7s} {'p90':>7s} {'bias':>7s}"]
    for (kind, dtype), found in sorted(groups.items()):
        n, median, p90, bias = summary(found)
        lines.append(f"{kind:18s} {dtype:6s} {n:6d} {median:7.1f} {p90:7.1f} {bias:7.1f}")
    return lines


def say(title: str, lines: Sequence[str]) -> None:
    """Write a report to the standard output."""
    sys.stdout.write("\n".join([title, *lines, ""]))


def main(argv: Sequence[str] | None = None) -> None:
    """Fit from the command line."""
    from validate import fit_bands, fit_file
    from validate.fit_left_out import left_out

    parser = argparse.ArgumentParser(prog="python -m validate.fit", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--bands", action="store_true")
    given = parser.parse_args(argv)
    try:
        prepared = load(given.folder)
        found = fit(prepared)
        everything = np.ones(len(prepared.rows), dtype=bool)
        say("All rows, in sample, percent:", table(prepared, found.errors, everything))
        bands = fit_file.kept_bands(given.output)
        if given.bands:
            bands = fit_bands.widths(prepared, found, left_out(prepared, found))
        given.output.write_text(fit_file.text(prepared, found, bands), encoding="utf-8")
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
