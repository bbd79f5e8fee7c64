"""Saved results of `specroof sweep`: a study (SQLite), or the rows it was written as (CSV, parquet)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dashboards.swept import METRICS
from hwprofiles.errors import InputError, ProfileError
from simulator.study import read_study
from simulator.sweep import frame_of
from simulator.sweep_cell import column_names

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".sqlite", ".csv", ".parquet")
MOST_ROWS = 200_000
_MOST_BYTES = 256_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSweep:
    """Rows per cell and strategy, what was `varied`; the `scenario` and what is missing, where a study tells."""

    label: str
    varied: tuple[str, ...]
    frame: pd.DataFrame = field(repr=False)
    scenario: Mapping[str, Any] | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()


def read_sweep(path: Path) -> SavedSweep:
    """Read a study, or exported rows.

    Raises
    ------
    InputError
        The file is too large, holds no rows, or a sweep writes to it now.
    ProfileError
        The file is nothing that a sweep wrote.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror or error}") from None
    if size > _MOST_BYTES:
        raise InputError(f"{path}: larger than {_MOST_BYTES:,} bytes")
    found = _of_study(path) if path.suffix.lower() == ".sqlite" else _of_rows(path)
    if found.frame.empty or not found.varied:
        raise InputError(f"{path}: no cell of this sweep is done")
    if not found.frame[[c for c in column_names() if c in METRICS]].notna().any(axis=None):
        raise InputError(f"{path}: no cell of this sweep has a figure")
    if len(found.frame) > MOST_ROWS:
        raise InputError(f"{path}: {len(found.frame):,} rows; at most {MOST_ROWS:,} are shown")
    return found


def _of_study(path: Path) -> SavedSweep:
    kept = read_study(path)
    known = {"cell", *column_names()}
    varied = tuple(dict.fromkeys(k for row in kept.rows for k in row if k not in known))
    notes = [f"{n:,} cells {what}" for n, what in ((kept.failed, "failed"), (kept.pending, "are not done yet")) if n]
    try:
        frame = frame_of(kept.rows, varied)
    except (TypeError, ValueError) as error:
        raise ProfileError(f"{path}: not a study: {error}") from None
    return SavedSweep(
        label=path.name, varied=varied, frame=frame, scenario=kept.head.get("scenario"), notes=tuple(notes)
    )


def _of_rows(path: Path) -> SavedSweep:
    import pandas as pd
    import pyarrow as pa

    try:
        frame = pd.read_csv(path) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ProfileError(f"{path}: cannot be read: {error}") from None
    missing = {"cell", *column_names()} - set(frame.columns)
    if missing:
        raise ProfileError(f"{path}: not what `specroof sweep -o` writes: it lacks {', '.join(sorted(missing)[:3])}")
    numbers = [c for c in column_names() if c not in ("strategy", "method")]
    try:
        frame = frame.astype(dict.fromkeys(numbers, "float64"))
    except ValueError as error:
        raise ProfileError(f"{path}: not what `specroof sweep -o` writes: {error}") from None
    columns = [str(c) for c in frame.columns]
    between = columns[columns.index("cell") + 1 : columns.index("strategy")]
    return SavedSweep(label=path.name, varied=tuple(c for c in between if c not in column_names()), frame=frame)
