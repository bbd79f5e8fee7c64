"""The journal of a real run: a SQLite file, written synchronously, before and after everything that matters.

A driver that was killed reads its own journal and goes on: what was asked is not asked again, what was run is not run
again. The journal alone proves the hold: `Journal.proof`.

Events of a task, each at most once per slot:

=========== ============== =========================================================================================
kind        slot           data
=========== ============== =========================================================================================
task        ""             conversation, request text
asked       sequence       the request's role and kind, and the whole answer
intent      action key     tool, arguments, effect, offset in the segment, origin (draft or write)
verdict     sequence       accepted, reviewed, garbled; `covers` are the action keys it lets run
authorised  action key     why: free, verdict or written; `by`, the event that allows it
executing   action key     written before the first call
attempt     key#number     written before every call; whether the server honours idempotency keys
effect      action key     what came back, whether it was an error, whether the server replayed it
unresolved  action key     a held action of which nobody can say whether it ran
committed   ""             the round's steps as they entered the chat
finished    ""             status, seconds
=========== ============== =========================================================================================
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.trajectory import RUNS_FREELY
from hwprofiles.errors import InputError

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
_HELD = tuple(str(e) for e in ("write", "reply", "unknown"))
assert not {*_HELD} & {str(e) for e in RUNS_FREELY}


class JournalError(OSError):
    """The journal cannot be written (disk full, read-only): nothing may happen that it would not know of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a journal says about held actions.

    Parameters
    ----------
    held : actions that had to wait for a verdict or a repair
    accepted : of these, authorised
    executed : of these, run
    executed_before_verdict : run without an authorisation written before; must be 0
    lost : authorised in a finished task, never run and not reported; must be 0
    run_twice : sent again to a server that does not honour keys, so possibly run twice; must be 0
    unresolved : reported as of unknown fate
    """

    held: int
    accepted: int
    executed: int
    executed_before_verdict: int
    lost: int
    run_twice: int
    unresolved: int

    @property
    def clean(self) -> bool:
        """True when nothing ran before its verdict, nothing was lost, nothing ran twice."""
        return self.executed_before_verdict == self.lost == self.run_twice == 0


class Journal:
    """An append-only journal; every `record` is on disk when it returns.

    Parameters
    ----------
    path : Path
        Created if absent.
    meta : mapping, optional
        What the run is (scenario, strategy, seed); an existing journal must hold the same.

    Raises
    ------
    InputError
        Not a journal, or one of another run.
    """

    def __init__(self, path: Path, meta: Mapping[str, Any] | None = None) -> None:
        self.path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("pragma synchronous = full")
            self._db.executescript(_SCHEMA)
            self._check(dict(meta or {}))
        except sqlite3.DatabaseError as error:
            raise InputError(f"{path}: not a usable journal: {error}") from None

    def _check(self, meta: dict[str, Any]) -> None:
        wanted = {"schema": _VERSION, **meta}
        stored = {n: json.loads(v) for n, v in self._db.execute("select name, value from meta")}
        for name, value in wanted.items():
            if name in stored and stored[name] != json.loads(json.dumps(value)):
                raise InputError(f"{self.path}: journal of another run: {name} is {stored[name]!r}, not {value!r}")
            if name not in stored:
                self._db.execute("insert into meta values (?, ?)", (name, json.dumps(value)))

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
        row = (task, round_, kind, slot, json.dumps(data, sort_keys=True))
        try:
            self._db.execute("insert or ignore into events (task, round, kind, slot, data) values (?, ?, ?, ?, ?)", row)
            found = self._db.execute(
                "select id from events where task = ? and round = ? and kind = ? and slot = ?", row[:4]
            ).fetchone()
        except sqlite3.Error as error:
            raise JournalError(f"{self.path}: cannot be written: {error}") from None
        return int(found[0])

    def attempt(self, task: str, round_: int, key: str, *, keys_honoured: bool) -> None:
        """Write that a call is being sent, as often as it is."""
        n = self._db.execute(
            "select count(*) from events where task = ? and round = ? and kind = 'attempt' and slot like ?",
            (task, round_, f"{key}#%"),
        ).fetchone()[0]
        self.record(task, round_, "attempt", f"{key}#{n}", keys_honoured=keys_honoured)

    def find(self, task: str, round_: int, kind: str, slot: str = "") -> dict[str, Any] | None:
        """An event's data, or None."""
        row = self._db.execute(
            "select data from events where task = ? and round = ? and kind = ? and slot = ?", (task, round_, kind, slot)
        ).fetchone()
        return json.loads(row[0]) if row else None

    def committed(self, task: str) -> list[dict[str, Any]]:
        """The committed rounds of a task, in order."""
        rows = self._db.execute("select data from events where task = ? and kind = 'committed' order by round", (task,))
        return [json.loads(r[0]) for r in rows]

    def finished(self, task: str) -> dict[str, Any] | None:
        """How a task ended, or None."""
        row = self._db.execute("select data from events where task = ? and kind = 'finished'", (task,)).fetchone()
        return json.loads(row[0]) if row else None

    def events(self, kind: str | None = None) -> Iterator[dict[str, Any]]:
        """Events in the order they were written: id, task, round, kind, slot and their data."""
        sql = (
            "select id, task, round, kind, slot, data from events"
            + (" where kind = ?" if kind else "")
            + " order by id"
        )
        for id_, task, round_, name, slot, data in self._db.execute(sql, (kind,) if kind else ()):
            yield {"id": id_, "task": task, "round": round_, "kind": name, "slot": slot, **json.loads(data)}

    def proof(self) -> Proof:
        """Count what became of every held action, from the journal alone.

        An authorisation counts only if the event it names is a verdict that covers the action, or a request in which
        the strong model (or the only model) wrote the step, and was written before the call.
        """
        events = list(self.events())
        by_id = {e["id"]: e for e in events}
        held = {(e["task"], e["slot"]): e for e in events if e["kind"] == "intent" and e["effect"] in _HELD}
        found: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        for e in events:
            if e["kind"] in ("authorised", "executing", "effect", "unresolved"):
                found.setdefault(e["kind"], {})[e["task"], e["slot"]] = e
        allowed = {k: e for k, e in found.get("authorised", {}).items() if k in held and _valid(e, by_id)}
        running = {k: e for k, e in found.get("executing", {}).items() if k in held}
        early = [k for k, e in running.items() if k not in allowed or allowed[k]["id"] > e["id"]]
        ended = {e["task"] for e in events if e["kind"] == "finished"}
        done = found.get("effect", {})
        unresolved = [k for k in found.get("unresolved", {}) if k in held]
        lost = [k for k in allowed if k[0] in ended and k not in done and k not in unresolved]
        again = [
            e for e in events if e["kind"] == "attempt" and not e["slot"].endswith("#0") and not e["keys_honoured"]
        ]
        twice = {(e["task"], e["slot"].rpartition("#")[0]) for e in again} & set(held)
        return Proof(
            held=len(held),
            accepted=len(allowed),
            executed=sum(k in done for k in held),
            executed_before_verdict=len(early),
            lost=len(lost),
            run_twice=len(twice),
            unresolved=len(unresolved),
        )

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(sqlite3.Error):
            self.close()


def _valid(authorised: Mapping[str, Any], by_id: Mapping[int, Mapping[str, Any]]) -> bool:
    """Whether the event an authorisation names really allows this action."""
    source = by_id.get(authorised["by"])
    if source is None or source["id"] > authorised["id"]:
        return False
    if authorised["why"] == "verdict":
        return source["kind"] == "verdict" and authorised["slot"] in source["covers"]
    return authorised["why"] == "written" and source["kind"] == "asked" and source["ask"] in ("write", "repair")
