"""A study: the cells of a sweep and what became of each, in one SQLite file that outlives a killed process.

Every finished cell is one committed transaction (write-ahead log). One process writes at a time: it holds the file for
as long as it runs, and the operating system lets go of it when that process ends, however it ends.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from hwprofiles.errors import InputError, ProfileError

SCHEMA_VERSION = 1
_TABLES = """
CREATE TABLE head (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE cells (cell INTEGER PRIMARY KEY, settings TEXT NOT NULL);
CREATE TABLE results (
    cell INTEGER PRIMARY KEY REFERENCES cells (cell),
    status TEXT NOT NULL CHECK (status IN ('done', 'failed')),
    rows TEXT NOT NULL,
    reason TEXT NOT NULL,
    seconds REAL NOT NULL,
    finished_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
"""
_JOINED = "SELECT cell, settings, {what} FROM results JOIN cells USING (cell) WHERE status = '{status}' ORDER BY cell"
_MUST_AGREE = ("scenario", "design", "method", "files", "specroof")
_NAMES = {"files": "the files the scenario names", "specroof": "the version of specroof"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """What became of a cell: `rows`, one per strategy, or the `reason` why there are none; `seconds` it took."""

    cell: int
    rows: tuple[Mapping[str, Any], ...] = ()
    reason: str = ""
    seconds: float = 0.0

    @property
    def status(self) -> str:
        """`done` or `failed`."""
        return "failed" if self.reason else "done"


class Study:
    """An open study.

    Parameters
    ----------
    path : file to create, or to go on with
    head : mapping of JSON values
        What the sweep is about: scenario, design, method, digests of files, versions.
    cells : settings of every cell

    Raises
    ------
    InputError
        The file holds a study of something else (the message names the difference), or another process writes to it.
    ProfileError
        The file is no study.
    """

    def __init__(self, path: str | Path, head: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> None:
        self.path = Path(path)
        self._db = _connect(self.path)
        try:
            self._open(head, cells)
        except BaseException:
            self._db.close()
            raise

    def _open(self, head: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise InputError(f"{self.path}: {_why(error)}") from None
        except sqlite3.DatabaseError:
            raise ProfileError(f"{self.path}: not a study") from None
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            self._create(head, cells)
        else:
            self._compare(tables, head, cells)
        self._db.execute("COMMIT")

    def _create(self, head: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> None:
        for statement in _TABLES.split(";"):
            if statement.strip():
                self._db.execute(statement)
        whole = {"schema_version": SCHEMA_VERSION, **head}
        self._db.executemany("INSERT INTO head VALUES (?, ?)", [(k, _text(v)) for k, v in whole.items()])
        self._db.executemany("INSERT INTO cells VALUES (?, ?)", [(i, _text(c)) for i, c in enumerate(cells)])

    def _compare(self, tables: set[str], head: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> None:
        stored = _head(self._db, tables, self.path)
        for key in _MUST_AGREE:
            there, here = stored.get(key), json.loads(_text(head.get(key)))
            if there != here:
                raise InputError(f"{self.path}: the study differs in {_NAMES.get(key, key)}: {difference(there, here)}")
        if [c for _, c in self.settings()] != [json.loads(_text(c)) for c in cells]:
            raise InputError(f"{self.path}: the study has other cells; start another one with --study")

    def settings(self) -> list[tuple[int, dict[str, Any]]]:
        """Settings of every cell."""
        return [(cell, json.loads(text)) for cell, text in self._db.execute("SELECT * FROM cells ORDER BY cell")]

    def pending(self) -> list[tuple[int, dict[str, Any]]]:
        """Cells without a result."""
        ended = {cell for (cell,) in self._db.execute("SELECT cell FROM results")}
        return [(cell, settings) for cell, settings in self.settings() if cell not in ended]

    def record(self, result: CellResult) -> None:
        """Commit what became of a cell."""
        row = (result.cell, result.status, _text(list(result.rows)), result.reason, result.seconds)
        self._db.execute("INSERT INTO results (cell, status, rows, reason, seconds) VALUES (?, ?, ?, ?, ?)", row)

    def forget_failed(self) -> None:
        """Make failed cells pending again."""
        self._db.execute("DELETE FROM results WHERE status = 'failed'")

    def counts(self) -> tuple[int, int]:
        """Cells that are done and that failed."""
        found = dict(self._db.execute("SELECT status, count(*) FROM results GROUP BY status"))
        return found.get("done", 0), found.get("failed", 0)

    def failed(self) -> list[dict[str, Any]]:
        """Cell, settings and reason of every failed cell."""
        found = self._db.execute(_JOINED.format(what="reason", status="failed"))
        return [{"cell": cell, "settings": json.loads(text), "reason": reason} for cell, text, reason in found]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One flat row per cell and strategy, in order: cell, its settings, its results."""
        for cell, settings, rows in self._db.execute(_JOINED.format(what="rows", status="done")):
            for row in json.loads(rows):
                yield {"cell": cell, **json.loads(settings), **row}

    def close(self) -> None:
        """Fold the log into the file and let go of it."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a study holds: its `head`, one flat row per cell and strategy, and the cells that failed or are pending."""

    head: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    failed: int
    pending: int


def read_study(path: Path) -> Kept:
    """Read a study without writing to it.

    Raises
    ------
    InputError
        A sweep writes to it now, or it cannot be opened.
    ProfileError
        The file is no study.
    """
    at_rest = not path.with_name(f"{path.name}-wal").exists()
    try:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' * at_rest}", uri=True, timeout=0.0)
    except sqlite3.Error as error:
        raise InputError(f"{path}: cannot be opened: {error}") from None
    try:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        head = _head(db, tables, path)
        found = [
            {"cell": cell, **json.loads(settings), **row}
            for cell, settings, rows in db.execute(_JOINED.format(what="rows", status="done"))
            for row in json.loads(rows)
        ]
        counts = dict(db.execute("SELECT status, count(*) FROM results GROUP BY status"))
        (cells,) = db.execute("SELECT count(*) FROM cells").fetchone()
    except sqlite3.OperationalError as error:
        raise InputError(f"{path}: {_why(error)}") from None
    except (sqlite3.DatabaseError, TypeError, ValueError, RecursionError):
        raise ProfileError(f"{path}: not a study") from None
    finally:
        db.close()
    return Kept(head=head, rows=tuple(found), failed=counts.get("failed", 0), pending=cells - sum(counts.values()))


def difference(there: Any, here: Any, place: str = "") -> str:
    """The first place where two JSON values differ, in words."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in [*there, *(k for k in here if k not in there)]:
            if there.get(key) != here.get(key):
                return difference(there.get(key), here.get(key), f"{place}.{key}".lstrip("."))
    where = f"{place} is " if place else ""
    return f"{where}{_shown(there)} there and {_shown(here)} here; start another one with --study"


def _shown(value: Any) -> str:
    text = "unset" if value is None else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _connect(path: Path) -> sqlite3.Connection:
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"{path}: cannot be written: {'a folder' if path.is_dir() else 'its folder does not exist'}")
    try:
        return sqlite3.connect(path, timeout=0.0, isolation_level=None)
    except sqlite3.Error as error:
        raise InputError(f"{path}: cannot be opened: {error}") from None


def _why(error: sqlite3.OperationalError) -> str:
    busy = "locked" in str(error) or "busy" in str(error)
    return "another sweep writes to this study; wait for it, or name another file" if busy else str(error)


def _head(db: sqlite3.Connection, tables: set[str], path: Path) -> dict[str, Any]:
    if not {"head", "cells", "results"} <= tables:
        raise ProfileError(f"{path}: an SQLite file, but not a study")
    try:
        found = {key: json.loads(text) for key, text in db.execute("SELECT key, value FROM head")}
    except (sqlite3.Error, ValueError):
        raise ProfileError(f"{path}: an SQLite file, but not a study") from None
    if found.get("schema_version") != SCHEMA_VERSION:
        raise ProfileError(f"{path}: schema_version must be {SCHEMA_VERSION}, got {found.get('schema_version')!r}")
    return found


def _text(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)
