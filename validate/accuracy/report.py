"""The whole evaluation: tables in, one document out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from validate.accuracy import calibration as factors
from validate.accuracy.predict import Predicted, predict_rows
from validate.accuracy.score import columns, groups, lanes, score, skipped
from validate.accuracy.tables import Row, load_rows, write_predictions

BUNDLED_TABLE = "published.csv"


def evaluate(
    tables: Iterable[str | Path] | None,
    by: Iterable[str] = ("table", "row_kind"),
    *,
    calibration: str | Path | None = None,
    predictions: str | Path | None = None,
) -> dict[str, Any]:
    """Predict and score.

    Parameters
    ----------
    tables : iterable of paths or None
        None: the bundled table of published measurements.
    by : iterable of str
        Columns to group by (`validate.accuracy.score.DERIVED` or a table's own).
    calibration : path or None
        A calibration file in place of the bundled fit.
    predictions : path or None
        Where to write every row with `predicted`, `low`, `high`, `status`.

    Returns
    -------
    dict with `overall`, `groups`, `lanes` (warm prefix, experts, parallelism), `ttft_intercepts`, `skipped`.

    Raises
    ------
    InputError
        A wrong table, column or calibration file.
    """
    wanted = columns(by)
    device, generations = factors.bundled() if calibration is None else factors.read(calibration)
    rows = bundled_rows() if tables is None else load_rows(tables)
    found = predict_rows(rows, device, generations)
    if predictions is not None:
        write_predictions(predictions, rows, (_cells(p) for p in found))
    return {
        "rows": len(rows),
        "by": wanted,
        "overall": score(rows, found).document(),
        "groups": groups(rows, found, wanted),
        "lanes": lanes(rows, found),
        "ttft_intercepts": ttft_intercepts(rows, found),
        "skipped": skipped(found),
    }


def bundled_rows() -> list[Row]:
    """The table of published measurements that comes with the product."""
    with as_file(files("validate.accuracy") / "data" / BUNDLED_TABLE) as path:
        return load_rows([path])


def ttft_intercepts(rows: Sequence[Row], predictions: Sequence[Predicted]) -> list[dict[str, Any]]:
    """By engine generation: what first tokens take beyond the prediction where the load is light, quartiles in ms.

    Light: concurrency of at most 4, or a single batch. Predicted is request + prefill, so a fitted request time
    brings the median to zero.
    """
    by_generation: dict[str, list[float]] = {}
    for row, p in zip(rows, predictions, strict=True):
        if p.subject is None or not row.metric.startswith("ttft") or (row.batch or 0) > 4 or row.unit != "ms":
            continue
        by_generation.setdefault(p.subject.generation, []).append(row.value - p.value)
    lines = []
    for generation, values in sorted(by_generation.items()):
        low, median, high = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
        lines.append({"generation": generation, "n": len(values), "median_ms": median, "low_ms": low, "high_ms": high})
    return lines


def _cells(p: Predicted) -> tuple[str, str, str, str]:
    if p.status != "ok":
        return "", "", "", p.status
    return f"{p.value:.6g}", f"{p.low:.6g}", f"{p.high:.6g}", p.status
