"""Fits what engine generations of serving tables add to the device: host and request time, their own kernels.

On log(predicted / measured) of means and medians, with the device factors of the bundled fit held. First all closed
loops together, around the first values; then each generation by itself, closely around what all have in common, so that
a generation which has not served experts, or 8 bits, takes them from the others.

Command: `python -m validate.accuracy.fit_serving TABLE.csv... -o FILE.toml` (some minutes)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from validate.accuracy.factors import HOST, FactorTable
from validate.accuracy.fit_logs import Array, Found, Start, main, solve, start
from validate.accuracy.kinds import Subject
from validate.accuracy.predict import Prepared, prepare
from validate.accuracy.serving_load import Load, load_of
from validate.accuracy.tables import Row

FIRST: Mapping[str, tuple[float, float, float, float]] = {
    "host_step_s": (0.5e-3, 0.05e-3, 4e-3, 1.0),
    "host_seq_s": (0.01e-3, 0.001e-3, 0.1e-3, 1.0),
    "request_s": (20e-3, 0.5e-3, 0.3, 1.0),
    "gemm_8bit_s": (5e-6, 0.5e-6, 15e-6, 1.0),
    "gemm_memory_8bit": (0.8, 0.4, 0.98, 0.5),
    "expert_s": (20e-6, 2e-6, 100e-6, 1.0),
    "expert_memory": (0.7, 0.2, 0.95, 0.5),
}
"""Prior value, least, most of each fitted factor, and the spread of its logarithm.

The 8-bit and expert factors are the engine's own kernels: those of the operator tables are slower at small batches than
what is served.
"""
CLOSED: Mapping[str, tuple[float, float, float, float]] = {
    "burst_share": (0.1, 0.01, 1.0, 1.0),
    "admit_steps": (0.7, 0.3, 20.0, 1.0),
}
OPEN: Mapping[str, tuple[float, float, float, float]] = {"cached_share": (0.5, 0.01, 0.99, 1.0)}
"""What only a closed or an open loop shows."""

KINDS = ("tpot", "ttft", "e2e")
_ROW_SD = 0.2
_OWN = 0.3
"""Spread of a generation around what all closed loops have in common, as a part of the first spread."""
_FAR = 1.0
"""The same of a generation that was served in open loops only."""
_STEPS, _SIMULATED_STEPS = 12, 15
_SLOPE, _SIMULATED_SLOPE = 1e-4, 0.03
"""Steps of the solver and of its slopes, for closed forms and for simulations."""


def taken(row: Row, subject: Subject | None) -> Load | None:
    """The load of a row that takes part: a mean or median of a long run, at a load that the row itself states."""
    if subject is None or subject.kind not in KINDS or not (row.batch or "rate_req_s" in row.note):
        return None
    load = load_of(row, subject.library)
    return None if isinstance(load, str) or load.n_requests else load


def fit(rows: Sequence[Row], factors: FactorTable, generations: FactorTable) -> Found:
    """Host factors by generation.

    Parameters
    ----------
    rows : sequence of Row
        Rows of any kind.
    factors, generations : mappings
        Held: device factors, and what else the generations state.
    """
    closed: dict[str, list[Row]] = {}
    opened: dict[str, list[Row]] = {}
    for row, subject in zip(rows, prepare(rows).subjects, strict=True):
        load = taken(row, subject)
        if load is not None and subject is not None:
            (closed if load.clients else opened).setdefault(subject.generation, []).append(row)
    found: Found = {}
    common = {name: first for name, (first, *_) in FIRST.items()}
    if closed:
        everything = prepare([row for own in closed.values() for row in own])
        first = start({**FIRST, **CLOSED})
        all_closed = _solved(everything, first, list(closed), factors, generations)
        for name, own in closed.items():
            near = first.around(all_closed, _OWN)
            found[name] = _solved(prepare(own), near, [name], factors, generations)
        common = {name: all_closed[name] for name in FIRST}
    for name, own in opened.items():
        if name not in closed:
            first = start({**FIRST, **OPEN})
            near = first.around({**common, **{k: v[0] for k, v in OPEN.items()}}, _FAR)
            found[name] = _solved(prepare(own), near, [name], factors, generations, simulated=True)
    return found


def _solved(
    prepared: Prepared,
    begin: Start,
    names: Sequence[str],
    factors: FactorTable,
    generations: FactorTable,
    *,
    simulated: bool = False,
) -> dict[str, float]:
    rest = {key: table for key, table in generations.items() if key.split("/")[0] not in names}
    measured = np.array([row.value for row in prepared.rows])

    def values(own: Mapping[str, object]) -> Array:
        return prepared.values(factors, {**rest, **{name: {**HOST, **own} for name in names}})

    n_steps, slope = (_SIMULATED_STEPS, _SIMULATED_SLOPE) if simulated else (_STEPS, _SLOPE)
    # overloads make a simulation's cost jumpy, so it begins at the first values, where nothing piles up
    at = {name: first for name, (first, *_) in FIRST.items()} if simulated else None
    return solve(values, measured, begin, _ROW_SD, n_steps, at, slope).factors


if __name__ == "__main__":
    main("validate.accuracy.fit_serving", __doc__, fit)
