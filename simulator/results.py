"""A run as records: four flat frames and a `meta` document, the same for simulated and measured runs.

`SCHEMA` is the one table of columns: it builds and checks frames, labels axes and renders the docs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from costmodel.cost import COLUMNS
from hwprofiles.errors import InputError, ProfileError, unknown_name

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
STATUSES = ("finished", "unfinished", "rejected")


class Column(NamedTuple):
    """A column: `dtype` is int64, float64, bool or string; `unit` is "" for names and flags, "1" for counts."""

    dtype: str
    unit: str
    meaning: str


_COSTS = {
    "flops": Column("float64", "FLOP", "operations, all devices"),
    "weight_bytes": Column("float64", "B", "weights read, all devices"),
    "kv_bytes": Column("float64", "B", "KV cache read and written, all devices"),
    "state_bytes": Column("float64", "B", "recurrent state read and written, all devices"),
    "activation_bytes": Column("float64", "B", "activations, all devices"),
    "interconnect_bytes": Column("float64", "B", "collectives between devices"),
    "energy_j": Column("float64", "J", "energy of the work itself, idle power apart"),
    "busy_s": Column("float64", "s", "engine time, its share of shared iterations"),
    "api_usd": Column("float64", "USD", "bill of priced APIs"),
    "wall_s": Column("float64", "s", "agent time on the critical path"),
}
assert tuple(_COSTS) == COLUMNS

SCHEMA: dict[str, dict[str, Column]] = {
    "trajectories": {
        "trajectory": Column("int64", "", "number in order of start"),
        "task": Column("string", "", "trajectory id in the workload"),
        "status": Column("string", "", "finished, unfinished (the run ended first) or rejected (could never run)"),
        "reason": Column("string", "", "why it was rejected"),
        "counted": Column("bool", "", "False for warm-up, and for what kept the load up behind the last counted one"),
        "arrival_s": Column("float64", "s", "start on the run's clock"),
        "finish_s": Column("float64", "s", "end on the run's clock; NaN unless finished"),
        "time_s": Column("float64", "s", "agent time, finish - arrival; NaN unless finished"),
        "queue_s": Column("float64", "s", "part of it in engine queues or preempted"),
        "n_steps": Column("int64", "1", "steps committed"),
        "n_rounds": Column("int64", "1", "rounds ended"),
        "n_drafted": Column("int64", "1", "steps drafted"),
        "n_accepted": Column("int64", "1", "drafted steps committed"),
        "n_reviews": Column("int64", "1", "reviews"),
        "n_repairs": Column("int64", "1", "steps the reviewer wrote"),
        "n_preemptions": Column("int64", "1", "times a request lost its place for want of KV blocks"),
        "weak_output_tokens": Column("int64", "tokens", "decoded by the weak model"),
        "strong_output_tokens": Column("int64", "tokens", "decoded by the strong model"),
        "traffic_bytes": Column("float64", "B", "weight_bytes + kv_bytes + state_bytes"),
        **_COSTS,
    },
    "steps": {
        "trajectory": Column("int64", "", "number of the trajectory"),
        "round": Column("int64", "", "round in the trajectory"),
        "step": Column("int64", "", "index in the task"),
        "author": Column("string", "", "weak or strong"),
        "fate": Column("string", "", "written, accepted, repaired or discarded"),
        "effect": Column("string", "", "read, pure, write, reply or unknown"),
        "start_s": Column("float64", "s", "its request was sent"),
        "end_s": Column("float64", "s", "its answer was there"),
        "output_tokens": Column("int64", "tokens", "decoded for it, thinking included"),
    },
    "phases": {
        "trajectory": Column("int64", "", "number of the trajectory"),
        "round": Column("int64", "", "round in the trajectory"),
        "step": Column("int64", "", "index of the (first) step it is about"),
        "kind": Column("string", "", "write, draft, verify, repair or tool"),
        "lane": Column("string", "", "weak, strong, tools or network"),
        "phase": Column("string", "", "phase of the ledger"),
        "start_s": Column("float64", "s", "start on the run's clock; parts of one request are laid end to end"),
        "end_s": Column("float64", "s", "end on the run's clock"),
        **_COSTS,
    },
    "engine": {
        "role": Column("string", "", "weak or strong"),
        "replica": Column("int64", "", "number of the replica"),
        "start_s": Column("float64", "s", "start of the iteration, or run of equal ones"),
        "time_s": Column("float64", "s", "seconds of all of it"),
        "n_steps": Column("int64", "1", "iterations"),
        "n_prefill_tokens": Column("int64", "tokens", "prompt tokens computed"),
        "n_decode": Column("int64", "1", "sequences that decoded a token each iteration"),
        "kv_used_tokens": Column("int64", "tokens", "KV cache held by running sequences at its end"),
        "n_waiting": Column("int64", "1", "jobs queued at its end"),
    },
}


@dataclass(frozen=True, slots=True, eq=False)
class RunResult:
    """One run.

    Parameters
    ----------
    frames : mapping name -> pandas.DataFrame
        The frames of `SCHEMA`, all of them.
    meta : mapping
        JSON values only: kind (simulated, measured), strategy, seed, load, scenario, engines, events, versions.
    """

    frames: Mapping[str, pd.DataFrame]
    meta: Mapping[str, Any]

    def __post_init__(self) -> None:
        if set(self.frames) != set(SCHEMA):
            raise InputError(f"a run holds the frames {', '.join(SCHEMA)}, got {', '.join(self.frames) or 'none'}")
        for name, frame in self.frames.items():
            _check(name, frame)

    @property
    def trajectories(self) -> pd.DataFrame:
        """One row per trajectory started."""
        return self.frames["trajectories"]

    @property
    def steps(self) -> pd.DataFrame:
        """One row per step written, discarded ones included."""
        return self.frames["steps"]

    @property
    def phases(self) -> pd.DataFrame:
        """One row per part of a request or tool run: when, who, which phase, at what cost."""
        return self.frames["phases"]

    @property
    def engine(self) -> pd.DataFrame:
        """One row per engine iteration or run of iterations; empty unless the log was kept."""
        return self.frames["engine"]

    def counted(self) -> pd.DataFrame:
        """The finished trajectories that statistics are about: no warm-up, nothing unfinished."""
        frame = self.trajectories
        return frame[frame["counted"] & (frame["status"] == "finished")]

    def summary(self) -> dict[str, Any]:
        """Counts by status and, over counted trajectories, mean, median, p95 and p99 time and mean costs.

        None stands where no trajectory finished.
        """
        frame = self.trajectories
        done = self.counted()
        times = done["time_s"]
        costs = ("queue_s", "traffic_bytes", *COLUMNS, "strong_output_tokens", "weak_output_tokens", "n_rounds")
        quantiles = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
        return {
            "status_counts": {s: int((frame["status"] == s).sum()) for s in STATUSES},
            "n_counted": len(done),
            "time_s": {
                "mean": _number(times.mean()),
                **{name: _number(times.quantile(q)) if len(done) else None for name, q in quantiles.items()},
            },
            "mean": {c: _number(done[c].mean()) for c in costs},
        }

    def save(self, folder: str | Path) -> None:
        """Write `run.json` and one parquet file per frame; same run, same bytes."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        out = Path(folder)
        document = {"schema_version": SCHEMA_VERSION, "meta": dict(self.meta), "summary": self.summary()}
        text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)
        out.mkdir(parents=True, exist_ok=True)
        for name, frame in self.frames.items():
            table = pa.Table.from_pandas(frame, schema=_arrow_schema(name), preserve_index=False)
            pq.write_table(table.replace_schema_metadata(None), out / f"{name}.parquet")
        (out / "run.json").write_text(text + "\n", encoding="utf-8")


def build(meta: Mapping[str, Any], rows: Mapping[str, Sequence[tuple[Any, ...]]]) -> RunResult:
    """A run from rows (tuples in schema order) per frame; frames not named are empty."""
    for name in rows:
        if name not in SCHEMA:
            raise unknown_name("frame", name, SCHEMA)
    return RunResult({name: _frame(name, rows.get(name, ())) for name in SCHEMA}, meta)


def load(folder: str | Path) -> RunResult:
    """Read a run that `RunResult.save` wrote.

    Raises
    ------
    ProfileError
        Something is missing, broken, of another version, or not in the schema; the message names the file.
    """
    path = Path(folder)
    document = _read_json(path / "run.json")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise ProfileError(
            f"{path / 'run.json'}: schema_version must be {SCHEMA_VERSION}, got {document.get('schema_version')!r}"
        )
    if set(document) != {"schema_version", "meta", "summary"} or not isinstance(document["meta"], dict):
        raise ProfileError(f"{path / 'run.json'}: expected schema_version, meta (an object) and summary, no other keys")
    return RunResult({name: _read_parquet(path / f"{name}.parquet", name) for name in SCHEMA}, document["meta"])


def _frame(name: str, rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    import pandas as pd

    schema = SCHEMA[name]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    if len(columns) != len(schema):
        raise ValueError(f"a row of {name} has {len(schema)} values, got {len(columns)}")
    return pd.DataFrame(
        {key: pd.Series(list(values), dtype=schema[key].dtype) for key, values in zip(schema, columns, strict=True)}
    )


def _check(name: str, frame: pd.DataFrame) -> None:
    schema = SCHEMA[name]
    found = {str(column): str(dtype) for column, dtype in frame.dtypes.items()}
    for column in found:
        if column not in schema:
            raise unknown_name(f"column of {name}", column, schema)
    for column, spec in schema.items():
        if found.get(column) != spec.dtype:
            raise InputError(f"column {column!r} of {name} must be {spec.dtype}, got {found.get(column, 'nothing')}")
    if list(found) != list(schema):
        raise InputError(f"the columns of {name} must stand in the order of the schema")


def _arrow_schema(name: str) -> Any:
    import pyarrow as pa

    types = {"int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_(), "string": pa.string()}
    return pa.schema([pa.field(column, types[spec.dtype]) for column, spec in SCHEMA[name].items()])


def _read_parquet(path: Path, name: str) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ProfileError(f"{path}: cannot be read as parquet: {str(error).splitlines()[0]}") from None
    if not table.schema.equals(_arrow_schema(name)):
        raise ProfileError(f"{path}: columns must be {', '.join(SCHEMA[name])} of the schema's types")
    frame: pd.DataFrame = table.to_pandas()
    return frame.astype({column: spec.dtype for column, spec in SCHEMA[name].items()})


def _read_json(path: Path) -> dict[str, Any]:
    def refuse(token: str) -> Any:
        raise ValueError(f"{token} is not allowed")

    try:
        document = json.loads(path.read_bytes().decode("utf-8"), parse_constant=refuse)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"{path}: not a run document: {error}") from None
    if not isinstance(document, dict):
        raise ProfileError(f"{path}: expected an object, got {type(document).__name__}")
    return document


def _number(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
