"""Measurement tables: strict reading of the CSV columns, and the predictions written back beside them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hwprofiles.errors import InputError, nearest

COLUMNS: tuple[str, ...] = (
    "source", "hardware", "n_devices", "model", "weight_dtype", "kv_dtype", "engine", "phase", "batch",
    "input_tokens", "context_tokens", "output_tokens", "metric", "value", "unit", "kind", "note",
)  # fmt: skip
MORE_THAN_LIMIT = "more sequences at once than its limit"
"""Key that the notes of a run get whose figures contradict the most sequences that its engine was started with."""
_RUNNING = ("e2e_mean_ms", "ttft_mean_ms", "output_tok_s")
_ROUNDING = 1.02
PREDICTED = ("predicted", "low", "high", "status")
"""Columns that a predictions file has after those of its input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured figure; counts that the table leaves empty are None.

    `note` holds the `key=value` details, and every detail without `=` as a key with the value `""`; `text` holds all
    cells of the input line as they stand there.
    """

    table: str
    line: int
    source: str
    hardware: str
    n_devices: int
    model: str
    weight_dtype: str
    kv_dtype: str
    engine: str
    phase: str
    batch: float | None
    input_tokens: float | None
    context_tokens: float | None
    output_tokens: float | None
    metric: str
    value: float
    unit: str
    kind: str
    note: Mapping[str, str]
    text: Mapping[str, str]


def load_rows(paths: Iterable[str | Path]) -> list[Row]:
    """All rows of some tables, in order; runs that contradict themselves have `MORE_THAN_LIMIT` in their notes.

    Parameters
    ----------
    paths : iterable of str or Path
        CSV files in UTF-8 with the columns of `COLUMNS`; more columns are kept and otherwise ignored.

    Raises
    ------
    InputError
        A file that cannot be read, a missing column, a cell that is no number; the message names file and line.
    """
    return _marked([row for path in paths for row in read_table(path)])


def _marked(rows: Sequence[Row]) -> list[Row]:
    runs: dict[tuple[str, ...], list[int]] = {}
    for i, row in enumerate(rows):
        if row.note.get("max_num_seqs"):
            settings = (v for k, v in row.text.items() if k not in ("metric", "value", "unit"))
            runs.setdefault((row.table, *settings), []).append(i)
    found = list(rows)
    for places in runs.values():
        if _over_its_limit([rows[i] for i in places]):
            for i in places:
                found[i] = replace(rows[i], note={**rows[i].note, MORE_THAN_LIMIT: ""})
    return found


def _over_its_limit(run: Sequence[Row]) -> bool:
    """Little's law: running = (mean e2e - mean time to first token) * output rate / output tokens > max_num_seqs."""
    figures = {row.metric: row.value for row in run}
    try:
        limit = float(run[0].note["max_num_seqs"])
    except ValueError:
        return False
    if not run[0].output_tokens or any(name not in figures for name in _RUNNING):
        return False
    e2e_ms, first_ms, tokens_per_s = (figures[name] for name in _RUNNING)
    return (e2e_ms - first_ms) * 1e-3 * tokens_per_s / run[0].output_tokens > _ROUNDING * limit


def read_table(path: str | Path) -> Iterator[Row]:
    """The rows of one table, one at a time; errors as in `load_rows`."""
    file = Path(path)
    place = f"table {str(path)!r}"
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            header = next(reader, None)
            if header is None:
                raise InputError(f"{place}: the file is empty")
            _check_header(header, place)
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    where = f"{place}, line {reader.line_num}"
                    raise InputError(f"{where}: {len(cells)} cells, the header has {len(header)}")
                yield _row(dict(zip(header, cells, strict=True)), file.stem, reader.line_num, place)
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: not UTF-8 (byte {error.start})") from None
    except csv.Error as error:
        raise InputError(f"{place}: not CSV: {error}") from None
    except OSError as error:
        raise InputError(f"{place}: cannot be read: {error.strerror or error}") from None


def _check_header(header: Sequence[str], place: str) -> None:
    if len(set(header)) != len(header):
        raise InputError(f"{place}: a column stands twice in the header")
    for column in COLUMNS:
        if column not in header:
            hint = nearest(column, [h for h in header if h not in COLUMNS])
            raise InputError(f"{place}: column {column!r} is missing" + (f"; is it {hint!r}?" if hint else ""))


def _row(cells: dict[str, str], table: str, line: int, place: str) -> Row:
    where = f"{place}, line {line}"
    devices = _number(cells, "n_devices", where)
    value = _number(cells, "value", where)
    if devices is None or devices < 1 or devices != int(devices):
        raise InputError(f"{where}: n_devices must be a whole number >= 1, got {cells['n_devices']!r:.40}")
    if value is None:
        raise InputError(f"{where}: value is empty")
    batch = None if cells["batch"] == "max" else _number(cells, "batch", where)
    return Row(
        table=table,
        line=line,
        source=cells["source"].strip(),
        hardware=cells["hardware"].strip(),
        n_devices=int(devices),
        model=cells["model"].strip(),
        weight_dtype=cells["weight_dtype"].strip(),
        kv_dtype=cells["kv_dtype"].strip(),
        engine=cells["engine"].strip(),
        phase=cells["phase"].strip(),
        batch=batch,
        input_tokens=_number(cells, "input_tokens", where),
        context_tokens=_number(cells, "context_tokens", where),
        output_tokens=_number(cells, "output_tokens", where),
        metric=cells["metric"].strip(),
        value=value,
        unit=cells["unit"].strip(),
        kind=cells["kind"].strip(),
        note=parse_note(cells["note"]),
        text=cells,
    )


def _number(cells: Mapping[str, str], key: str, where: str) -> float | None:
    text = cells[key].strip()
    if text in ("", "-"):
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{where}: {key} must be a finite number >= 0 or empty, got {text!r:.40}")
    return value


def parse_note(text: str) -> dict[str, str]:
    """`a=1;b=x;some words` as `{"a": "1", "b": "x", "some words": ""}`."""
    parts = (part.strip() for part in text.split(";"))
    pairs = (part.partition("=") for part in parts if part)
    return {key.strip(): value.strip() for key, _, value in pairs}


def write_predictions(path: str | Path, rows: Sequence[Row], predictions: Iterable[Sequence[str]]) -> None:
    """Every input row in order with `predicted`, `low`, `high` and `status` after its own columns.

    Parameters
    ----------
    predictions : iterable of four strings each
        In the order of `rows`; numbers are empty where the row was skipped.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row.text)) or list(COLUMNS)
    with Path(path).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*columns, *PREDICTED])
        for row, cells in zip(rows, predictions, strict=True):
            writer.writerow([*(row.text.get(column, "") for column in columns), *cells])
