"""Widths of the bands of measured steps and batches, from rows whose model was left out of the fits.

The models of some tables are dealt into folds; for each fold the edge and generation fits run without its
models and predict them. Widths are the 90 % quantiles of |log(predicted / measured)|, by kind and engine generation,
place or group of the device (`validate.accuracy.bands`).

Command: `python -m validate.accuracy.fit_widths TABLE.csv... -o FILE.toml` (some minutes; kinds that no table has are
kept from the file written over)
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from validate.accuracy import calibration, fit_edge, fit_generations
from validate.accuracy.bands import group, place
from validate.accuracy.kinds import OPERATORS, SERVING
from validate.accuracy.predict import prepare
from validate.accuracy.score import odd_share
from validate.accuracy.tables import Row, load_rows

Array = np.ndarray[Any, np.dtype[np.float64]]
FOLDS = 3
_FEWEST = 10
"""Rows a width of its own needs."""
_ELSEWHERE = OPERATORS | SERVING
"""Kinds whose widths come from other fits."""


def left_out_errors(rows: Sequence[Row]) -> Array:
    """log(predicted / measured) of every row under fits that have not seen its model; NaN where there is none."""
    prepared = prepare(rows)
    names = sorted({s.model.name for s in prepared.subjects if s is not None and s.model is not None})
    fold_of = {name: i % FOLDS for i, name in enumerate(names)}
    folds = np.array(
        [fold_of[s.model.name] if s is not None and s.model is not None else -1 for s in prepared.subjects]
    )
    measured = np.log([row.value if row.value > 0 else np.nan for row in rows])
    errors = np.full(len(rows), np.nan)
    for fold in range(FOLDS):
        seen = [row for row, f in zip(rows, folds, strict=True) if f not in (fold, -1)]
        factors, generations = calibration.bundled()
        edge = fit_edge.fit(seen)
        kept = {key: table for key, table in factors.items() if key not in edge}
        merged = {**kept, **edge}
        hosts = {**generations, **fit_generations.fit(seen, merged, generations)}
        out = np.flatnonzero(folds == fold)
        errors[out] = np.log(prepare([rows[int(i)] for i in out]).values(merged, hosts)) - measured[out]
        sys.stderr.write(f"fold {fold + 1} of {FOLDS}\n")
    return errors


def widths(rows: Sequence[Row], errors: Array) -> dict[str, dict[str, float]]:
    """Half widths by `KIND/GENERATION` (batches also `/DEVICE`), `KIND/PLACE`, `KIND/GROUP`, with enough rows."""
    prepared = prepare(rows)
    cells: dict[str, list[float]] = {}
    for i, (row, s) in enumerate(zip(rows, prepared.subjects, strict=True)):
        if s is None or s.kind in _ELSEWHERE or not np.isfinite(errors[i]) or odd_share(row, prepared.floor_share[i]):
            continue
        if not group(s):
            continue
        names = [f"{s.kind}/{s.generation}"] if s.kind == "batch" else []
        names += [f"batch/{s.generation}/{s.device.name}"] if s.kind == "batch" else []
        names += [f"{s.kind}/{place(s)}"] if place(s) else []
        for name in (*names, f"{s.kind}/{group(s)}"):
            cells.setdefault(name, []).append(abs(float(errors[i])))
    return {
        name: {"default": float(np.quantile(values, 0.9))} for name, values in cells.items() if len(values) >= _FEWEST
    }


def kept(path: Path, rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Widths in an existing file of kinds that none of the rows has."""
    if not path.exists():
        return {}
    own = {s.kind for s in prepare(rows).subjects if s is not None}
    old: dict[str, dict[str, float]] = tomllib.loads(path.read_text(encoding="utf-8")).get("bands", {})
    return {name: table for name, table in old.items() if name.split("/")[0] not in own | SERVING}


def main(argv: Sequence[str] | None = None) -> None:
    """Widths from the command line."""
    parser = argparse.ArgumentParser(prog="python -m validate.accuracy.fit_widths", description=__doc__)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(argv)
    rows = load_rows(given.tables)
    found = {**kept(given.output, rows), **widths(rows, left_out_errors(rows))}
    source = "python -m validate.accuracy.fit_widths on " + ", ".join(sorted(path.name for path in given.tables))
    lines = [f"# {source}", f'[provenance]\nsource = "{source}"', ""]
    for name in sorted(found):
        lines.append(f'[bands."{name}"]')
        lines += [f"{key} = {value:.3g}" for key, value in found[name].items()] + [""]
    given.output.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
