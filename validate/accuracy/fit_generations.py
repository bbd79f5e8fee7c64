"""Fits engine generations of measured whole steps and static batches: host time, and what their kernels reach.

Per generation and device, on log(predicted / measured) with the device factors of the bundled fit held: least squares,
soft-L1 loss, every factor bounded and pulled to its first value (normal in the logarithm, spread `SPREAD`). Rows that
`odd` marks are left out.

Command: `python -m validate.accuracy.fit_generations TABLE.csv... -o FILE.toml`
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from validate.accuracy import calibration
from validate.accuracy.factors import FactorTable
from validate.accuracy.fit_covariance import covariance_lines
from validate.accuracy.fit_logs import Array, Found, Solved, solve, start, write
from validate.accuracy.kinds import Subject
from validate.accuracy.predict import Prepared, prepare
from validate.accuracy.score import odd_share
from validate.accuracy.tables import Row, load_rows

FIRST: Mapping[str, tuple[float, float, float, float]] = {
    "host_step_s": (1e-3, 0.02e-3, 50e-3, 1.5),
    "host_seq_s": (0.08e-3, 0.001e-3, 1e-3, 1.0),
    "host_tp_s": (0.1e-3, 0.001e-3, 10e-3, 1.5),
    "layer_floor_s": (100e-6, 1e-6, 1e-3, 3.0),
    "compute_scale": (0.8, 0.02, 1.2, 0.5),
    "memory_scale": (1.0, 0.02, 1.1, 0.1),
    "link_scale": (0.6, 0.05, 1.5, 0.5),
    "allreduce_s": (10e-6, 1e-6, 200e-6, 0.4),
    "expert_correlation": (0.6, 0.002, 1.0, 1.5),
}
"""First value, least, most, and spread of the logarithm."""
_LOOSE_MEMORY_SPREAD = 0.7
"""Spread of `memory_scale` on a device without fitted factors of its own."""
_ROW_SD = 0.1
_FLOORS_S = (50e-6, 150e-6, 320e-6)
_KINDS = ("batch", "decode", "prefill")
_YEARS = ("-2023", "-2024")


def taken(row: Row, subject: Subject | None, floor_share: float) -> bool:
    """Whether a row takes part: a whole step or batch of an engine of 2023 or 2024, not odd."""
    if subject is None or subject.kind not in _KINDS or not subject.generation.endswith(_YEARS):
        return False
    return not subject.generation.startswith("llama.cpp") and not odd_share(row, floor_share)


def fit(rows: Sequence[Row], factors: FactorTable, generations: FactorTable) -> Found:
    """`fitted`, and of it the factors."""
    return {key: one.factors for key, one in fitted(rows, factors, generations).items()}


def fitted(rows: Sequence[Row], factors: FactorTable, generations: FactorTable) -> dict[str, Solved]:
    """Fit every `GENERATION/DEVICE` among some rows.

    Parameters
    ----------
    rows : sequence of Row
        Rows of any kind.
    factors, generations : mappings
        Held device factors; what other generations state.
    """
    first = prepare(rows)
    keyed: dict[str, list[int]] = {}
    for i, (row, subject) in enumerate(zip(rows, first.subjects, strict=True)):
        if taken(row, subject, first.floor_share[i]):
            assert subject is not None
            keyed.setdefault(f"{subject.generation}/{subject.device.name}", []).append(i)
    return {
        key: _fit_one(key, prepare([rows[i] for i in places]), factors, generations) for key, places in keyed.items()
    }


def _fit_one(key: str, prepared: Prepared, factors: FactorTable, generations: FactorTable) -> Solved:
    name, device = key.split("/")
    known = device in {own.partition("/")[0] for own in factors}
    loose = {} if known else {"memory_scale": (*FIRST["memory_scale"][:3], _LOOSE_MEMORY_SPREAD)}
    begin = start({**FIRST, **loose})
    measured = np.array([row.value for row in prepared.rows])
    rest = {other: table for other, table in generations.items() if other.partition("/")[0] != name}

    def values(own: Mapping[str, Any]) -> Array:
        return prepared.values(factors, {**rest, key: own})

    # below every device step a floor has no slope, so it is tried from above too
    tried = [solve(values, measured, begin, _ROW_SD, 60, {"layer_floor_s": floor_s}) for floor_s in _FLOORS_S]
    return min(tried, key=lambda result: result.cost)


def main(argv: Sequence[str] | None = None) -> None:
    """Fit from the command line, and write factors with the covariance of their logarithms."""
    parser = argparse.ArgumentParser(prog="python -m validate.accuracy.fit_generations", description=__doc__)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(argv)
    found = fitted(load_rows(given.tables), *calibration.bundled())
    factors = {key: one.factors for key, one in found.items()}
    write(given.output, "validate.accuracy.fit_generations", given.tables, "generations", factors)
    lines = [line for key in sorted(found) for line in covariance_lines(key, list(factors[key]), found[key].covariance)]
    given.output.write_text("\n".join([given.output.read_text(encoding="utf-8"), *lines]), encoding="utf-8")


if __name__ == "__main__":
    main()
