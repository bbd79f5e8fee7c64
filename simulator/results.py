"""A run as records: four flat frames and a `meta` document, the same for simulated and measured runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from costmodel.cost import COLUMNS
from hwprofiles.errors import InputError, ProfileError, unknown_name
from simulator.frames import Columns, Frames, Row, Sheet, Writer, columns_in, frame_of, read_columns
from simulator.metrics import serving_metrics
from simulator.result_schema import SCHEMA, SCHEMA_VERSION, STATUSES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCHEMA", "SCHEMA_VERSION", "STATUSES", "Recorder", "RunResult", "build", "load"]

_WASTED = ("wasted_output_tokens", "wasted_tool_calls", "wasted_energy_j", "wasted_busy_s", "wasted_usd")
_MEANS = ("queue_s", "traffic_bytes", *COLUMNS, "strong_output_tokens", "weak_output_tokens", "n_rounds")
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, eq=False)
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
        if not isinstance(self.frames, Frames):
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
    def requests(self) -> pd.DataFrame:
        """One row per request that an engine answered; priced APIs have none."""
        return self.frames["requests"]

    @property
    def phases(self) -> pd.DataFrame:
        """One row per part of a request or tool run: when, who, which phase, at what cost."""
        return self.frames["phases"]

    @property
    def engine(self) -> pd.DataFrame:
        """One row per engine iteration or run of iterations; empty unless the log was kept."""
        return self.frames["engine"]

    def columns(self, name: str) -> Columns:
        """The columns of a frame as arrays (lists of str), without making a frame of them."""
        return self.frames.columns(name) if isinstance(self.frames, Frames) else columns_in(name, self.frames[name])

    def counted(self) -> pd.DataFrame:
        """The finished trajectories that statistics are about: no warm-up, nothing unfinished."""
        frame = self.trajectories
        return frame[frame["counted"] & (frame["status"] == "finished")]

    def summary(self) -> dict[str, Any]:
        """Counts by status and, over counted trajectories, mean, median, p95 and p99 time, mean costs and waste.

        `wasted_per_step`: what discarded drafts cost, over steps committed. None where no trajectory finished.
        """
        return self._summary

    def serving(self, objectives: Mapping[str, float] | None = None) -> dict[str, dict[str, Any]]:
        """Serving metrics of each role's requests (`simulator.metrics`), cancelled ones and warm-up left out.

        Parameters
        ----------
        objectives : mapping from per-request metric to its limit, for the goodput
        """
        table, trajectories = self.columns("requests"), self.columns("trajectories")
        counted = np.isin(table["trajectory"], trajectories["trajectory"][trajectories["counted"]])
        role = np.array(table["role"], dtype=object)
        names = ("submit_s", "first_token_s", "finish_s", "prompt_tokens", "output_tokens")
        found = {}
        for one in dict.fromkeys(table["role"]):
            mine = counted & ~table["cancelled"] & (role == one)
            submit_s, first_token_s, finish_s, prompt, output = (table[name][mine] for name in names)
            found[one] = serving_metrics(submit_s, first_token_s, finish_s, prompt, output, objectives)
        return found

    @cached_property
    def _summary(self) -> dict[str, Any]:
        table = self.columns("trajectories")
        status = np.array(table["status"], dtype=object)
        done = table["counted"] & (status == "finished")
        n = int(done.sum())
        times = table["time_s"][done]
        n_steps = int(table["n_steps"][done].sum())
        return {
            "status_counts": {s: int((status == s).sum()) for s in STATUSES},
            "n_counted": n,
            "time_s": {
                "mean": _mean(times),
                **{name: float(np.quantile(times, q)) if n else None for name, q in _QUANTILES.items()},
            },
            "mean": {c: _mean(table[c][done]) for c in _MEANS},
            "wasted_per_step": {
                c.removeprefix("wasted_"): _number(table[c][done].sum() / n_steps) if n_steps else None for c in _WASTED
            },
        }

    def save(self, folder: str | Path) -> None:
        """Write `run.json` and one parquet file per frame; same run, same bytes."""
        out = Path(folder)
        document = {"schema_version": SCHEMA_VERSION, "meta": dict(self.meta), "summary": self.summary()}
        text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)
        out.mkdir(parents=True, exist_ok=True)
        for name in SCHEMA:
            path = out / f"{name}.parquet"
            if not (isinstance(self.frames, Frames) and self.frames.path(name) == path):
                writer = Writer(name, path)
                writer.write(self.columns(name))
                writer.close()
        (out / "run.json").write_text(text + "\n", encoding="utf-8")


class Taker(Protocol):
    """Takes rows."""

    def append(self, row: Row) -> None:
        """Take a row."""


class _Nobody:
    def append(self, row: Row) -> None:
        """Drop a row."""


class Recorder:
    """The rows of a run as it goes; `finish` makes a `RunResult` of them.

    Parameters
    ----------
    folder : Path or None
        Steps, phases and engine iterations are streamed to parquet files in it; only trajectories stay in memory.
    details : bool
        False leaves the frames of steps, requests and phases empty.
    """

    def __init__(self, folder: Path | None = None, *, details: bool = True) -> None:
        self.details = details
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "run.json").unlink(missing_ok=True)
        self._sheets = {name: Sheet(name, self._path(name)) for name in SCHEMA}
        self.trajectories, self.engine = self._sheets["trajectories"], self._sheets["engine"]
        self.steps: Taker = self._sheets["steps"] if details else _Nobody()
        self.phases: Taker = self._sheets["phases"] if details else _Nobody()
        self.requests: Taker = self._sheets["requests"] if details else _Nobody()

    def _path(self, name: str) -> Path | None:
        return None if self._folder is None or name == "trajectories" else self._folder / f"{name}.parquet"

    def finish(self, meta: Mapping[str, Any]) -> RunResult:
        """The run; in the folder it is complete with this call."""
        for sheet in self._sheets.values():
            sheet.close()
        run = RunResult(Frames(self._sheets), meta)
        if self._folder is not None:
            run.save(self._folder)
        return run


def build(meta: Mapping[str, Any], rows: Mapping[str, Iterable[Row]]) -> RunResult:
    """A run from rows (tuples in schema order) per frame; frames not named are empty."""
    sheets = {name: Sheet(name) for name in SCHEMA}
    for name, given in rows.items():
        if name not in SCHEMA:
            raise unknown_name("frame", name, SCHEMA)
        for row in given:
            sheets[name].append(row)
        sheets[name].close()
    return RunResult(Frames(sheets), meta)


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
    return RunResult(
        {name: frame_of(name, read_columns(path / f"{name}.parquet", name)) for name in SCHEMA}, document["meta"]
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


def _mean(values: Any) -> float | None:
    return _number(values.mean()) if len(values) else None


def _number(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
