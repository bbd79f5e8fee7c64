"""The journal of a real run: a SQLite file, written synchronously, before and after everything that matters.

A driver that was killed reads its own journal and goes on: what was asked is not asked again, what was run is not run
again. The journal alone proves the hold: `Journal.proof`.

Events of a task, each at most once per slot:

=========== ============== =========================================================================================
kind        slot           data
=========== ============== =========================================================================================
task        ""             when it began
resumed     number         when a run that was cut went on with it
asked       sequence       the request's role and kind, and the whole answer
intent      action key     tool, arguments, effect, offset in the segment, origin (d or w), the request that wrote it
verdict     sequence       accepted, reviewed, garbled; `covers` are the action keys it lets run
authorised  action key     why: free, verdict or written; `by`, the event that allows it
executing   action key     written before the first call
attempt     key#number     written before every call; whether the server honours idempotency keys
effect      action key     what came back, whether it was an error, whether the server replayed it
unresolved  action key     a held action of which nobody can say whether it ran
reused      action key     a written read that takes over what ran for a guess; `by`, the guess's key
committed   ""             the round's steps as they entered the chat, and a plain memory of the strategy
finished    ""             status, seconds
=========== ============== =========================================================================================
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hwprofiles.errors import InputError
from validate.proof import Proof, prove

_SCHEMA = """
create table if not exists meta (name text primary key, value text not null);
create table if not exists events (
    id integer primary key autoincrement,
    task text not null, round integer not null, kind text not null, slot text not null,
    data text not null,
    unique (task, round, kind, slot)
);
"""
_VERSION = "specroof.journal/1"
_PATIENCE_S = 1.0
"""How long to wait for another run to let go of the journal."""


class JournalError(RuntimeError):
    """The journal cannot be written (disk full, read-only): nothing may happen that it would not know of."""


class Journal:
    """An append-only journal; every `record` is on disk when it returns, and nobody else can open it meanwhile.

    Parameters
    ----------
    path : Path
        Created if absent.
    meta : mapping, optional
        What the run is (scenario, strategy, seed); an existing journal must hold the same.

    Raises
    ------
    InputError
        Not a journal, one of another run, or one that another run has open.
    """

    def __init__(self, path: Path, meta: Mapping[str, Any] | None = None) -> None:
        self.path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=_PATIENCE_S)
        except sqlite3.Error as error:
            raise InputError(f"{path}: cannot be opened as a journal: {error}") from None
        try:
            self._open(dict(meta or {}))
        except sqlite3.Error as error:
            self._db.close()
            locked = "locked" in str(error)
            why = "another run has it open" if locked else f"not a usable journal: {error}"
            raise InputError(f"{path}: {why}") from None
        except (InputError, JournalError):
            self._db.close()
            raise

    def _open(self, meta: dict[str, Any]) -> None:
        self._db.execute("pragma locking_mode = exclusive")  # two drivers at once would do everything twice
        tables = {n for (n,) in self._db.execute("select name from sqlite_master where type = 'table'")}
        if tables and not {"meta", "events"} <= tables:
            raise InputError(f"{self.path}: not a journal: a database with the tables {', '.join(sorted(tables))}")
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.executescript(_SCHEMA)
        self._same("schema", self.keep("schema", _VERSION), _VERSION)
        if meta:
            wanted = json.loads(json.dumps(meta))
            stored = self.keep("about", wanted)
            for name in sorted({*stored, *wanted}):
                self._same(name, stored.get(name), wanted.get(name))

    def _same(self, name: str, stored: object, wanted: object) -> None:
        if stored != wanted:
            raise InputError(f"{self.path}: journal of another run: {name} is {stored!r}, not {wanted!r}")

    def keep(self, name: str, value: Any) -> Any:
        """Keep a value of the run under a name, unless there is one; returns the one that is kept."""
        self._db.execute("insert or ignore into meta values (?, ?)", (name, json.dumps(value)))
        return json.loads(self._rows("select value from meta where name = ?", (name,))[0][0])

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def record(self, task: str, round_: int, kind: str, slot: str = "", **data: Any) -> int:
        """Write an event unless its slot is taken, and return its id (of the first one written).

        Raises
        ------
        JournalError
            The disk does not take it; the caller must not act.
        """
        row = (task, round_, kind, slot, json.dumps(data))
        self._rows("insert or ignore into events (task, round, kind, slot, data) values (?, ?, ?, ?, ?)", row)
        found = self._rows("select id from events where task = ? and round = ? and kind = ? and slot = ?", row[:4])
        return int(found[0][0])

    def attempt(self, task: str, round_: int, key: str, *, keys_honoured: bool) -> None:
        """Write that a call is being sent, as often as it is."""
        sql = "select count(*) from events where task = ? and round = ? and kind = 'attempt' and substr(slot, 1, ?) = ?"
        n = self._rows(sql, (task, round_, len(key) + 1, f"{key}#"))[0][0]
        self.record(task, round_, "attempt", f"{key}#{n}", keys_honoured=keys_honoured)

    def resume(self, task: str, at_s: float) -> None:
        """Write that a run that was cut goes on with a task."""
        n = self.resumptions(task)
        self.record(task, 0, "resumed", str(n), at_s=at_s)

    def resumptions(self, task: str) -> int:
        """How often a cut run went on with a task."""
        return int(self._rows("select count(*) from events where task = ? and kind = 'resumed'", (task,))[0][0])

    def find(self, task: str, round_: int, kind: str, slot: str = "") -> dict[str, Any] | None:
        """An event's data, or None."""
        sql = "select data from events where task = ? and round = ? and kind = ? and slot = ?"
        rows = self._rows(sql, (task, round_, kind, slot))
        return json.loads(rows[0][0]) if rows else None

    def committed(self, task: str) -> list[dict[str, Any]]:
        """The committed rounds of a task, in order."""
        sql = "select data from events where task = ? and kind = 'committed' order by round"
        return [json.loads(r[0]) for r in self._rows(sql, (task,))]

    def finished(self, task: str) -> dict[str, Any] | None:
        """How a task ended, or None."""
        rows = self._rows("select data from events where task = ? and kind = 'finished'", (task,))
        return json.loads(rows[0][0]) if rows else None

    def events(self, kind: str | None = None) -> Iterator[dict[str, Any]]:
        """Events in the order they were written: id, task, round, kind, slot and their data."""
        sql = (
            "select id, task, round, kind, slot, data from events"
            + (" where kind = ?" if kind else "")
            + " order by id"
        )
        for id_, task, round_, name, slot, data in self._db.execute(sql, (kind,) if kind else ()):
            yield {"id": id_, "task": task, "round": round_, "kind": name, "slot": slot, **json.loads(data)}

    def last_s(self) -> float:
        """The latest time on the run's clock that any event tells; 0 for an empty journal."""
        times = (e.get(name) for e in self.events() for name in ("at_s", "done_s", "end_s"))
        return max((t for t in times if t is not None), default=0.0)

    def proof(self) -> Proof:
        """Count what became of every held action, from the journal alone."""
        return prove(self.events())

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise JournalError(f"{self.path}: cannot be written or read: {error}") from None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(sqlite3.Error):
            self.close()
