"""What the app was given: scenarios, saved runs, sweeps and calibrations; and what was handed to it since.

A client names these by their place in a list or by a random word, never by a path.
"""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dashboards.sweeps import SUFFIXES, SavedSweep, read_sweep
from hwprofiles.errors import InputError, ProfileError
from simulator.result_schema import SCHEMA, SCHEMA_VERSION
from simulator.scenario import Scenario
from simulator.scenario_file import load_scenario, scenario_names

if TYPE_CHECKING:
    import pandas as pd

MOST_RUNS = 1000
_MOST_HANDED = 16
_DEPTH = 3
_MOST_JSON_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved run: its label, folder, and what `run.json` says."""

    label: str
    folder: Path
    meta: dict[str, Any] = field(repr=False)
    summary: dict[str, Any] = field(repr=False)

    @property
    def strategy(self) -> str:
        """The strategy that ran."""
        return str(self.meta.get("strategy", ""))


@dataclass(frozen=True, slots=True)
class Handed:
    """A scenario that was uploaded, or made around an uploaded trace; `trace` is that file's own name."""

    label: str
    scenario: Scenario
    trace: str = ""


class Shelf:
    """Scenarios by label, runs and calibrations by number, uploads by key.

    Parameters
    ----------
    given : sequence of str
        Bundled scenario names, scenario or calibration files (TOML), folders of saved runs or of studies, studies
        (.sqlite) and rows (.csv, .parquet) of `specroof sweep`, what `specroof validate --json` printed (.json).

    Raises
    ------
    InputError
        Something given is none of these.
    """

    def __init__(self, given: Sequence[str] = ()) -> None:
        self.scenarios: dict[str, Scenario] = {}
        self.runs: list[Saved] = []
        self.sweeps: list[SavedSweep] = []
        self.calibrations: list[tuple[str, Path]] = []
        self.validations: list[tuple[str, dict[str, Any]]] = []
        for name in given:
            self._take(name)
        self.first = next(iter(self.scenarios), "retail-h200")
        for name in scenario_names():
            self.scenarios.setdefault(name, load_scenario(name))
        self.handed: OrderedDict[str, Handed] = OrderedDict()
        self.folder = Path(tempfile.mkdtemp(prefix="specroof-dashboard-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def scenario(self, key: str) -> Scenario:
        """The scenario of a label or an upload's key; raises `InputError` where there is none."""
        if key in self.scenarios:
            return self.scenarios[key]
        if key in self.handed:
            return self.handed[key].scenario
        raise InputError("this scenario was uploaded to another session, or too long ago; upload it again")

    def labels(self) -> list[tuple[str, str]]:
        """Key and words of everything that can be explored, uploads last."""
        return [*((k, k) for k in self.scenarios), *((k, f"uploaded: {h.label}") for k, h in self.handed.items())]

    def hand(self, found: Handed) -> str:
        """Put an upload on the shelf; the oldest of more than sixteen goes. Returns its key."""
        key = f"upload-{secrets.token_urlsafe(9)}"
        self.handed[key] = found
        while len(self.handed) > _MOST_HANDED:
            self.handed.popitem(last=False)
        return key

    def run(self, number: object) -> Saved:
        """The run of a number in the list; raises `InputError` where there is none."""
        return self.runs[_counted(number, len(self.runs), "run")]

    def sweep(self, number: object) -> SavedSweep:
        """The sweep of a number in the list; raises `InputError` where there is none."""
        return self.sweeps[_counted(number, len(self.sweeps), "sweep")]

    def _take(self, name: str) -> None:
        path = Path(name)
        if path.is_dir():
            found = sorted({f.parent for depth in range(_DEPTH + 1) for f in path.glob("*/" * depth + "run.json")})
            studies = sorted(path.glob("*.sqlite"))
            if not found and not studies:
                raise InputError(f"{name}: holds no saved run (run.json) and no study (*.sqlite); "
                                 "`specroof simulate -o` and `specroof sweep --study` write some")  # fmt: skip
            self.runs += [_saved(folder, path) for folder in found]
            self.sweeps += [read_sweep(study) for study in studies]
            if len(self.runs) > MOST_RUNS:
                raise InputError(f"{name}: more than {MOST_RUNS} runs; give a folder with fewer")
        elif path.suffix.lower() in SUFFIXES:
            self.sweeps.append(read_sweep(path))
        elif path.suffix.lower() == ".json":
            self.validations.append((path.name, _validation(path)))
        elif name not in scenario_names() and path.suffix.lower() == ".toml" and _is_calibration(path):
            self.calibrations.append((path.name, path))
        else:
            self.scenarios[name] = load_scenario(name)


def _counted(number: object, n: int, what: str) -> int:
    """A number that a client sent, as a place in a list of `n`."""
    text = str(number)
    if not text.isascii() or not text.isdigit() or len(text) > 6 or int(text) >= n:
        raise InputError(f"there is no {what} of that number; {n} were given")
    return int(text)


def _is_calibration(path: Path) -> bool:
    import tomllib

    try:
        return "factors" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False


def _validation(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_JSON_BYTES:
            raise InputError(f"{path}: larger than {_MOST_JSON_BYTES:,} bytes")
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ProfileError(f"{path}: cannot be read: {error}") from None
    if not isinstance(document, dict) or not {"measured", "predicted", "errors", "strategies"} <= set(document):
        raise ProfileError(f"{path}: not what `specroof validate --json` prints")
    return document


def _saved(folder: Path, root: Path) -> Saved:
    try:
        document = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ProfileError(f"{folder / 'run.json'}: cannot be read: {error}") from None
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        raise ProfileError(f"{folder / 'run.json'}: not a run of schema version {SCHEMA_VERSION}")
    label = str(folder.relative_to(root)) if folder != root else root.resolve().name
    return Saved(label, folder, document["meta"], document["summary"])


def columns(folder: Path, frame: str, names: tuple[str, ...]) -> pd.DataFrame:
    """Some columns of a saved frame; the latest are kept until their file changes.

    Raises
    ------
    ProfileError
        The file is missing or broken.
    """
    path = folder / f"{frame}.parquet"
    return _columns(folder, frame, names, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=64)
def _columns(folder: Path, frame: str, names: tuple[str, ...], _changed_ns: int) -> pd.DataFrame:
    return _read(folder, frame, names, None)


def spans(folder: Path, trajectory: int, strategy: str) -> pd.DataFrame:
    """Spans of one trajectory on its own clock, in the layout of `dashboards.figures.timeline`."""
    names = ("kind", "step", "lane", "phase", "start_s", "end_s")
    frame = _read(folder, "phases", names, [("trajectory", "=", trajectory)])
    starts = columns(folder, "trajectories", ("trajectory", "arrival_s"))
    mine = starts.loc[starts["trajectory"] == trajectory, "arrival_s"]
    if mine.empty:
        raise InputError(f"the run has no trajectory {trajectory}; it has {len(starts)}")
    start_s = float(mine.iloc[0])
    return frame.assign(
        strategy=strategy,
        start_s=frame["start_s"] - start_s,
        end_s=frame["end_s"] - start_s,
        label=frame["kind"] + " " + frame["step"].astype(str),
    )


def _read(folder: Path, frame: str, names: tuple[str, ...], filters: Any) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"{frame}.parquet"
    unknown = set(names) - set(SCHEMA[frame])
    assert not unknown, unknown
    try:
        found: pd.DataFrame = pq.read_table(path, columns=list(names), filters=filters).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise ProfileError(f"{path.name} of {folder.name}: cannot be read: {error}") from None
    return found
