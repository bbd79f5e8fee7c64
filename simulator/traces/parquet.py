"""Neutral trajectories as Parquet: one row per step, the trajectory's columns beside it."""

from __future__ import annotations

import json
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


def write_parquet(document: dict[str, Any], path: Path) -> None:
    """Write a neutral document; trajectories without a step have one row whose step columns are null."""
    rows: list[dict[str, Any]] = []
    for trajectory in document["trajectories"]:
        own = {k: v for k, v in trajectory.items() if k != "steps"}
        rows.extend({**own, **step} for step in trajectory["steps"] or [{}])
    head = {k: v for k, v in document.items() if k != "trajectories"}
    schema = pa.schema([*_TRAJECTORY, *_STEP], metadata={_KEY: json.dumps(head)})
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def read_parquet(path: Path) -> dict[str, Any]:
    """The neutral document in a Parquet file that `write_parquet` wrote.

    Raises
    ------
    InputError
        If the file is no such file.
    """
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path.name}: cannot be read as Parquet: {str(error).splitlines()[0][:120]}") from None
    head = (table.schema.metadata or {}).get(_KEY)
    names = [name for name, _ in (*_TRAJECTORY, *_STEP)]
    if head is None or table.schema.names != names:
        raise InputError(f"{path.name}: not written by specroof (its columns or metadata differ)")
    document: dict[str, Any] = json.loads(head)
    trajectories: dict[str, dict[str, Any]] = {}
    for row in table.to_pylist():
        own = {name: row[name] for name, _ in _TRAJECTORY if row[name] is not None}
        entry = trajectories.setdefault(row["id"], {**own, "steps": []})
        if row["index"] is not None:
            entry["steps"].append(_without_none({name: row[name] for name, _ in _STEP}))
    return {**document, "trajectories": list(trajectories.values())}


def _without_none(step: dict[str, Any]) -> dict[str, Any]:
    found = {k: v for k, v in step.items() if v is not None}
    if "tools" in found:
        found["tools"] = [{k: v for k, v in tool.items() if v is not None} for tool in found["tools"]]
    return found
