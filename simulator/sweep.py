"""Many scenarios: a design over parameters, each cell evaluated on its own and kept at once in a resumable study."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwprofiles.errors import InputError, unknown_name
from simulator.baseline import with_baseline
from simulator.memory import held
from simulator.pool import Pool
from simulator.scenario import Scenario
from simulator.scenario_file import load_scenario, to_document
from simulator.study import CellResult, Study
from simulator.sweep_cell import METHODS, CellTask, attempt, column_names
from simulator.sweep_design import cells_of

if TYPE_CHECKING:
    import pandas as pd

ENGINES = ("local", "dask")
FORMATS = (".csv", ".parquet")
_VERSIONED = ("numpy", "scipy", "pandas", "simpy", "distributed")
Progress = Callable[[int, int, int], None]
"""Told the cells that are done, that failed, and all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a sweep found; `records` are flat rows, one per cell and strategy."""

    scenario: Scenario
    varied: tuple[str, ...]
    cells: int
    done: int
    failed: tuple[dict[str, Any], ...]
    study: Path
    records: tuple[dict[str, Any], ...]

    def document(self) -> dict[str, Any]:
        """Everything but the rows, as plain values."""
        return {
            "scenario": to_document(self.scenario),
            "varied": list(self.varied),
            "cells": self.cells,
            "done": self.done,
            "failed": list(self.failed),
            "study": str(self.study),
        }

    def frame(self) -> pd.DataFrame:
        """The rows, in order of cell and strategy; NaN stands for what cannot be known."""
        return frame_of(self.records, self.varied)

    def export(self, path: str | Path) -> None:
        """Write the rows as CSV or parquet, by the name's ending; the same rows, the same bytes.

        Raises
        ------
        InputError
            Another ending, or the file cannot be written.
        """
        out = check_export(path)
        frame = self.frame()
        try:
            if out.suffix.lower() == ".csv":
                frame.to_csv(out, index=False, lineterminator="\n")
            else:
                import pyarrow as pa
                import pyarrow.parquet as pq

                table = pa.Table.from_pandas(_of_one_type(frame), preserve_index=False)
                pq.write_table(table.replace_schema_metadata(None), out)
        except OSError as error:
            raise InputError(f"{out}: cannot be written: {error.strerror or error}") from None


def frame_of(records: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> pd.DataFrame:
    """Rows of a sweep as a frame: cell, the varied parameters, strategy, method, results."""
    import pandas as pd

    columns = ["cell", *varied, *(c for c in column_names() if c not in varied)]
    frame = pd.DataFrame(list(records), columns=columns)
    numbers = [c for c in column_names() if c not in ("strategy", "method")]
    return frame.astype({"cell": "int64", **dict.fromkeys(numbers, "float64")})


def check_export(path: str | Path) -> Path:
    """The path of an export; raises `InputError` where its ending is neither .csv nor .parquet."""
    if Path(path).suffix.lower() not in FORMATS:
        raise InputError(f"{path}: results are written as {' or '.join(FORMATS)}")
    return Path(path)


def sweep(
    scenario: Scenario | str | Path,
    vary: Sequence[str],
    *,
    design: str = "grid",
    samples: int | None = None,
    seed: int | None = None,
    method: str = "auto",
    study: str | Path | None = None,
    engine: str = "local",
    scheduler: str | None = None,
    workers: int | None = None,
    retry: bool = False,
    progress: Progress | None = None,
) -> Sweep:
    """Evaluate a scenario at every cell of a design; go on where an earlier run of the same sweep was stopped.

    Parameters
    ----------
    scenario : Scenario, bundled name or path of a TOML file
    vary : texts `NAME=LO:HI:N` or `NAME=a,b,c`; a Latin hypercube takes `NAME=LO:HI` or `NAME=a,b,c`
    design, samples, seed : `grid`, or `lhs` with that many samples
    method : `expected` on idle engines, `simulated` at the load, `auto`: simulated where several agents share engines
    study : SQLite file; None: one in this folder whose name holds a digest of the sweep
    engine, scheduler : `local` (all cores of this machine), or `dask` with the address of a scheduler
    workers : local processes; None: one per core
    retry : evaluate failed cells again
    progress : told the counts after every cell

    Raises
    ------
    InputError
        A design, scenario or option that cannot be used, or a study of something else.
    """
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if (engine == "dask") != (scheduler is not None):
        raise InputError("a Dask scheduler needs its address, and only it: engine = 'dask' goes with scheduler")
    if engine == "dask" and workers is not None:
        raise InputError("workers has no effect on a Dask cluster")
    scenario = with_baseline(scenario if isinstance(scenario, Scenario) else load_scenario(scenario))
    cells = cells_of(scenario, vary, design=design, samples=samples, seed=seed)
    about = {"kind": design, "vary": list(vary), "samples": samples, "seed": seed}
    head = head_of(scenario, about, method)
    path = Path(study) if study is not None else Path(f"sweep-{_digest(head, cells)}.sqlite")
    with Study(path, head, cells) as found:
        if retry:
            found.forget_failed()
        tasks = _tasks(scenario, method, found.pending())
        tell = progress or (lambda done, failed, cells: None)
        tell(*found.counts(), len(cells))
        for result in _evaluated(tasks, scheduler, workers) if tasks else ():
            found.record(result)
            tell(*found.counts(), len(cells))
        return Sweep(
            scenario=scenario,
            varied=tuple(cells[0]),
            cells=len(cells),
            done=found.counts()[0],
            failed=tuple(found.failed()),
            study=path,
            records=tuple(found.rows()),
        )


def _evaluated(tasks: list[CellTask], scheduler: str | None, workers: int | None) -> Iterator[CellResult]:
    if scheduler is not None:
        from simulator.sweep_dask import run_on

        yield from (_result(task, found) for task, found in run_on(scheduler, tasks))
        return
    with Pool(attempt, workers) as pool:
        yield from (_result(task, found) for task, found in pool.run(tasks))


def _result(task: CellTask, found: CellResult | str) -> CellResult:
    return CellResult(cell=task.cell, reason=found) if isinstance(found, str) else found


def _tasks(scenario: Scenario, method: str, pending: Iterable[tuple[int, dict[str, Any]]]) -> list[CellTask]:
    document = to_document(scenario)
    memory = held(scenario.workload.trace or scenario.workload.law or "")
    return [
        CellTask(cell=cell, document=document, settings=settings, method=method, held=memory)
        for cell, settings in pending
    ]


def head_of(scenario: Scenario, design: dict[str, Any], method: str) -> dict[str, Any]:
    """What the study is about; the part that a resumed sweep must agree with is in `study._MUST_AGREE`."""
    versions = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    document = to_document(scenario)
    return {
        "scenario": document,
        "design": design,
        "method": method,
        "files": _files(document),
        "specroof": metadata.version("specroof"),
        "versions": versions,
    }


def _files(value: Any) -> dict[str, str]:
    """SHA-256 of every file that a scenario document names."""
    if isinstance(value, dict):
        return {name: digest for part in value.values() for name, digest in _files(part).items()}
    if isinstance(value, str) and Path(value).is_file():
        return {value: hashlib.sha256(Path(value).read_bytes()).hexdigest()}
    return {}


def _digest(head: dict[str, Any], cells: list[dict[str, Any]]) -> str:
    text = json.dumps([head["scenario"], head["design"], head["method"], cells], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _of_one_type(frame: pd.DataFrame) -> pd.DataFrame:
    """A varied column that mixes types (text and numbers) as text, which parquet needs."""
    mixed = [c for c in frame.columns if frame[c].dtype == object and frame[c].map(type).nunique() > 1]
    return frame.astype(dict.fromkeys(mixed, "str"))
