"""Neutral trajectories as Parquet: one row per step, the trajectory's columns beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hwprofiles.errors import InputError

_KEY = b"specroof"
_TOOL = pa.struct(
    [
        ("name", pa.string()),
        ("effect", pa.string()),
        ("latency_s", pa.float64()),
        ("error", pa.bool_()),
        ("arguments", pa.string()),
    ]
)
_TRAJECTORY = [
    ("id", pa.string()),
    ("source_format", pa.string()),
    ("domain", pa.string()),
    ("task", pa.string()),
    ("trial", pa.int64()),
    ("outcome", pa.float64()),
    ("missing", pa.list_(pa.string())),
]
_STEP = [
    ("index", pa.int64()),
    ("effect", pa.string()),
    ("prompt_tokens", pa.int64()),
    ("cached_prompt_tokens", pa.int64()),
    ("output_tokens", pa.int64()),
    ("visible_tokens", pa.int64()),
    ("observation_tokens", pa.int64()),
    ("tools", pa.list_(_TOOL)),
    ("tool_s", pa.float64()),
    ("start_s", pa.float64()),
    ("end_s", pa.float64()),
    ("user_gap_s", pa.float64()),
    ("model", pa.string()),
    ("valid", pa.bool_()),
]


_BATCH_ROWS = 20_000


@contextmanager
def rows(head: dict[str, Any], path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that writes a trajectory's document; one without a step has a row whose step columns are null."""
    schema = pa.schema([*_TRAJECTORY, *_STEP], metadata={_KEY: json.dumps(head)})
    waiting: list[dict[str, Any]] = []
    with pq.ParquetWriter(path, schema) as out:

        def flush() -> None:
            out.write_table(pa.Table.from_pylist(waiting, schema=schema))
            waiting.clear()

        def add(trajectory: dict[str, Any]) -> None:
            own = {k: v for k, v in trajectory.items() if k != "steps"}
            waiting.extend({**own, **step} for step in trajectory["steps"] or [{}])
            if len(waiting) >= _BATCH_ROWS:
                flush()

        yield add
        flush()


def read_head(path: Path) -> dict[str, Any]:
    """What a Parquet file that `rows` wrote says around its trajectories.

    Raises
    ------
    InputError
        If the file is no such file.
    """
    with _reading(path), pq.ParquetFile(path) as file:
        schema = file.schema_arrow
    head = (schema.metadata or {}).get(_KEY)
    if head is None or schema.names != [name for name, _ in (*_TRAJECTORY, *_STEP)]:
        raise InputError(f"{path.name}: not written by specroof (its columns or metadata differ)")
    try:
        found = json.loads(head)
    except ValueError:
        raise InputError(f"{path.name}: not written by specroof (its metadata is broken)") from None
    if not isinstance(found, dict):
        raise InputError(f"{path.name}: not written by specroof (its metadata is broken)")
    return found


def read_entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, document) of the trajectories of a Parquet file that `rows` wrote.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    entry: dict[str, Any] | None = None
    n = 0
    with _reading(path), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS):
            for row in batch.to_pylist():
                if entry is None or row["id"] != entry["id"]:
                    if entry is not None:
                        yield f"{path.name}: trajectories[{n}]", entry
                        n += 1
                    entry = {**{name: row[name] for name, _ in _TRAJECTORY if row[name] is not None}, "steps": []}
                    entry.setdefault("id", None)
                if row["index"] is not None:
                    entry["steps"].append(_without_none({name: row[name] for name, _ in _STEP}))
    if entry is not None:
        yield f"{path.name}: trajectories[{n}]", entry


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        said = ascii(str(error).splitlines()[0] if str(error) else "")[1:-1][:120]
        raise InputError(f"{path.name}: cannot be read as Parquet: {said}") from None


def _without_none(step: dict[str, Any]) -> dict[str, Any]:
    found = {k: v for k, v in step.items() if v is not None}
    if "tools" in found:
        found["tools"] = [{k: v for k, v in tool.items() if v is not None} for tool in found["tools"]]
    return found
