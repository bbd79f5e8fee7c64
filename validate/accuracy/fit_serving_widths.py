"""Widths of the bands of serving rows, half from rows that were fitted and half from rows whose model was left out.

The models of the tables are dealt into folds; for each fold the serving fit runs without its models and predicts them.
A width is the 90 % quantile of |log(predicted / measured)| over those errors and those of the fitted rows together, by
kind and engine generation: what a user asks for is now a deployment like a measured one, now a new model.

Command: `python -m validate.accuracy.fit_serving_widths TABLE.csv... -o FILE.toml` (some minutes)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from validate.accuracy import calibration, fit_serving
from validate.accuracy.bands import group
from validate.accuracy.factors import HOST, FactorTable
from validate.accuracy.fit_logs import Array, write
from validate.accuracy.kinds import SERVING
from validate.accuracy.predict import prepare
from validate.accuracy.score import odd_share
from validate.accuracy.tables import Row, load_rows

FOLDS = 3
_FEWEST = 10
"""Rows a width of its own needs."""


def left_out_errors(rows: Sequence[Row]) -> Array:
    """log(predicted / measured) of every row under fits that have not seen its model; NaN where there is none."""
    prepared = prepare(rows)
    names = [s.model.name if s is not None and s.model is not None else "" for s in prepared.subjects]
    known = sorted(set(names) - {""})
    folds = np.array([known.index(name) % FOLDS if name else -1 for name in names])
    factors, generations = calibration.bundled()
    errors = np.full(len(rows), np.nan)
    for fold in range(FOLDS):
        found = fit_serving.fit(
            [rows[int(i)] for i in np.flatnonzero((folds != fold) & (folds >= 0))], factors, generations
        )
        if not found:  # nothing to learn a serving engine from
            continue
        common = {key: float(np.exp(np.mean([np.log(t[key]) for t in found.values()]))) for key in fit_serving.FIRST}
        hosts = {**generations}
        for subject in prepared.subjects:
            if subject is not None and subject.kind in SERVING:
                hosts[subject.generation] = found.get(subject.generation, {**HOST, **common})
        errors[folds == fold] = _errors([rows[int(i)] for i in np.flatnonzero(folds == fold)], factors, hosts)
        sys.stderr.write(f"fold {fold + 1} of {FOLDS}\n")
    return errors


def _errors(rows: Sequence[Row], factors: FactorTable, hosts: FactorTable) -> Array:
    measured = np.log([row.value if row.value > 0 else np.nan for row in rows])
    found: Array = np.log(prepare(rows).values(factors, hosts)) - measured
    return found


def widths(rows: Sequence[Row], errors: Sequence[Array]) -> dict[str, dict[str, float]]:
    """Half widths by `KIND/GENERATION` where there are enough rows, and by `KIND/GROUP`."""
    cells: dict[str, list[float]] = {}
    for i, s in enumerate(prepare(rows).subjects):
        if s is None or s.kind not in SERVING or odd_share(rows[i], 0.0):
            continue
        for name in (f"{s.kind}/{s.generation}", f"{s.kind}/{group(s)}"):
            cells.setdefault(name, []).extend(abs(float(one[i])) for one in errors if np.isfinite(one[i]))
    return {
        name: {"default": float(np.quantile(values, 0.9))}
        for name, values in cells.items()
        if len(values) >= _FEWEST * len(errors)
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Widths from the command line."""
    parser = argparse.ArgumentParser(prog="python -m validate.accuracy.fit_serving_widths", description=__doc__)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(argv)
    rows = load_rows(given.tables)
    left_out = left_out_errors(rows)
    found = widths(rows, [left_out, _errors(rows, *calibration.bundled())])
    write(given.output, "validate.accuracy.fit_serving_widths", given.tables, "bands", found)


if __name__ == "__main__":
    main()
