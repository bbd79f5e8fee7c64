"""Fits what engine generations of serving tables add to the device: request time, bursts, host time per step.

Per generation, on log(predicted / measured) of mean time per output token (concurrency of at most 16, or a rate) and of
mean time to first token, with the device factors of the bundled fit held: least squares, soft-L1 loss, every factor
bounded and pulled weakly (a factor of e is one standard deviation) to its first value.

Command: `python -m validate.accuracy.fit_serving TABLE.csv... -o FILE.toml`
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from validate.accuracy import calibration
from validate.accuracy.factors import HOST, FactorTable
from validate.accuracy.kinds import SERVING
from validate.accuracy.predict import prepare
from validate.accuracy.tables import Row, load_rows

Array = np.ndarray[Any, np.dtype[np.float64]]

FIRST: Mapping[str, tuple[float, float, float]] = {
    "host_step_s": (0.5e-3, 0.05e-3, 4e-3),
    "host_seq_s": (0.01e-3, 0.001e-3, 0.1e-3),
    "request_s": (10e-3, 0.5e-3, 0.3),
    "burst_share": (0.1, 0.01, 1.0),
    "cached_share": (0.5, 0.01, 0.99),
    "gemm_8bit_s": (5e-6, 0.5e-6, 15e-6),
    "gemm_memory_8bit": (0.8, 0.5, 0.95),
    "expert_s": (20e-6, 2e-6, 60e-6),
    "expert_memory": (0.8, 0.4, 0.95),
}
"""First value, least and most of each fitted factor.

The 8-bit and expert factors are the engine's own kernels: those of the operator tables are slower at small batches than
what is served.
"""
_LIGHT = 16
_ROW_SD = 0.25


def fit(rows: Sequence[Row], factors: FactorTable, generations: FactorTable) -> dict[str, dict[str, float]]:
    """Host factors by generation.

    Parameters
    ----------
    rows : sequence of Row
        Rows of any kind; time per output token under a concurrency above 16 is left out.
    factors, generations : mappings
        Held: device factors, and what else the generations state.
    """
    from scipy.optimize import least_squares

    all_prepared = prepare(rows)
    by_generation: dict[str, list[int]] = {}
    for i, subject in enumerate(all_prepared.subjects):
        if subject is None or subject.kind not in SERVING or subject.kind == "e2e":
            continue
        if subject.kind == "tpot" and (rows[i].batch or 0) > _LIGHT:
            continue
        by_generation.setdefault(subject.generation, []).append(i)
    names = list(FIRST)
    first, low, high = (np.log([FIRST[name][j] for name in names]) for j in range(3))
    found = {}
    for generation, places in by_generation.items():
        prepared = prepare([rows[i] for i in places])
        measured = np.log([row.value for row in prepared.rows])
        own = {key: table for key, table in generations.items() if key.split("/")[0] != generation}

        def host(x: Array, name: str = generation, rest: FactorTable = own) -> FactorTable:
            values = np.exp(x)
            table = {n: (values[..., j, None] if x.ndim == 2 else float(values[j])) for j, n in enumerate(names)}
            return {**rest, name: {**HOST, **table}}

        def residuals(x: Array, p: Any = prepared, y: Array = measured, host: Any = host) -> Array:
            errors = (np.log(p.values(factors, host(x))) - y) / _ROW_SD
            return np.concatenate([np.nan_to_num(errors), x - first])

        def jacobian(x: Array, p: Any = prepared, host: Any = host) -> Array:
            step = 1e-4
            moved = np.log(p.values(factors, host(np.vstack([x, x + step * np.eye(len(x))]))))
            return np.vstack([np.nan_to_num((moved[1:] - moved[0]) / (step * _ROW_SD)).T, np.eye(len(x))])

        best = least_squares(residuals, first, jac=jacobian, bounds=(low, high), loss="soft_l1", max_nfev=25)
        found[generation] = dict(zip(names, np.exp(best.x).tolist(), strict=True))
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Fit from the command line."""
    parser = argparse.ArgumentParser(prog="python -m validate.accuracy.fit_serving", description=__doc__)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(argv)
    found = fit(load_rows(given.tables), *calibration.bundled())
    source = "python -m validate.accuracy.fit_serving on " + ", ".join(sorted(path.name for path in given.tables))
    lines = [f"# {source}", f'[provenance]\nsource = "{source}"', ""]
    for generation in sorted(found):
        lines.append(f'[generations."{generation}"]')
        lines += [f"{name} = {value:.4g}" for name, value in found[generation].items()] + [""]
    given.output.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
