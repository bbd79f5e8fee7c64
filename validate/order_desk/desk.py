"""The desk itself: one call is one transaction, in which the change, its journal line and its answer stand or fall."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hwprofiles.errors import unknown_name
from validate.order_desk.actions import Refused
from validate.order_desk.catalogue import TOOLS
from validate.order_desk.schema import connect

_MAX_KEY_CHARS = 200
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the desk answers to a call; `replayed` where it answered from its memory of the key."""

    text: str
    is_error: bool = False
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One line of the desk's journal.

    Parameters
    ----------
    changed_state : bool
        Whether the world differs for it.
    replay : bool
        Whether the key was known, so that nothing ran.
    error : str or None
        What the tool refused with.
    """

    sequence: int
    tool: str
    arguments: Mapping[str, Any]
    idempotency_key: str | None
    changed_state: bool
    replay: bool
    error: str | None
    result_hash: str


class Desk:
    """An open desk. Its final answers (done, or refused on the arguments) are kept by key and given again."""

    def __init__(self, database: Path | str, *, max_pages: int | None = None) -> None:
        self.db = connect(database, max_pages=max_pages)

    def close(self) -> None:
        """Close the database."""
        self.db.close()

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        key: str | None = None,
        *,
        before_commit: Callable[[], None] = lambda: None,
    ) -> Reply:
        """Run one call.

        A known key gives the stored answer and changes nothing; a known key with another call is refused. A full disk
        is an error that changes nothing and is not kept, so the call may be sent again with its key. `before_commit`
        runs inside the transaction when all is written.
        """
        given = json.dumps(dict(arguments), ensure_ascii=False, sort_keys=True)
        try:
            return self._transaction(lambda: self._run(tool, arguments, given, key), before_commit)
        except sqlite3.DatabaseError as error:
            return self._lost(tool, given, key, f"{tool}: the desk cannot write: {error}")

    def fail(self, tool: str, arguments: Mapping[str, Any], key: str | None, text: str) -> Reply:
        """Answer with an error that is journaled but not kept by key: the next try may succeed."""
        return self._lost(tool, json.dumps(dict(arguments), ensure_ascii=False, sort_keys=True), key, text)

    def arrived(self) -> int:
        """Count one more arrival, over all lives of the server, and say which it is."""

        def count() -> int:
            self.db.execute("UPDATE arrivals SET n = n + 1")
            return int(self.db.execute("SELECT n FROM arrivals").fetchone()[0])

        return self._transaction(count)

    def _run(self, tool: str, arguments: Mapping[str, Any], given: str, key: str | None) -> Reply:
        if key is not None and len(key) > _MAX_KEY_CHARS:
            return self._journal(tool, given, None, Reply(text="the idempotency key is too long", is_error=True))
        stored = self.db.execute("SELECT * FROM answers WHERE idempotency_key = ?", (key,)).fetchone()
        if stored is not None and (stored["tool"], stored["arguments"]) != (tool, given):
            text = f"{tool}: the idempotency key was used for another call of {stored['tool']}"
            return self._journal(tool, given, key, Reply(text=text, is_error=True))
        if stored is not None:
            reply = Reply(text=stored["text"], is_error=bool(stored["is_error"]), replayed=True)
            return self._journal(tool, given, key, reply)
        before = self.db.total_changes
        try:
            reply = Reply(text=json.dumps(self._act(tool, arguments), ensure_ascii=False))
        except Refused as refusal:
            reply = Reply(text=str(refusal), is_error=True)
        changed = self.db.total_changes > before
        if key is not None:
            row = key, tool, given, reply.text, reply.is_error
            self.db.execute("INSERT INTO answers VALUES (?,?,?,?,?)", row)
        return self._journal(tool, given, key, reply, changed=changed)

    def _act(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if tool not in TOOLS:
            raise Refused(str(unknown_name("tool", tool, TOOLS)))
        TOOLS[tool].check(arguments)
        return TOOLS[tool].run(self.db, arguments)

    def _lost(self, tool: str, given: str, key: str | None, text: str) -> Reply:
        """An error that is not kept by key; where even its journal line finds no room it goes without."""
        reply = Reply(text=text, is_error=True)
        try:
            return self._transaction(lambda: self._journal(tool, given, key, reply))
        except sqlite3.DatabaseError:
            return reply

    def _journal(self, tool: str, given: str, key: str | None, reply: Reply, *, changed: bool = False) -> Reply:
        digest = hashlib.sha256(reply.text.encode()).hexdigest()
        error = reply.text if reply.is_error else None
        row = tool, given, key, changed, reply.replayed, error, digest
        self.db.execute(
            "INSERT INTO calls (tool, arguments, idempotency_key, changed_state, replay, error, result_hash)"
            " VALUES (?,?,?,?,?,?,?)",
            row,
        )
        return reply

    def _transaction(self, work: Callable[[], _T], before_commit: Callable[[], None] = lambda: None) -> _T:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            result = work()
            before_commit()
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise
        return result


def read_calls(database: Path | str | sqlite3.Connection) -> tuple[Call, ...]:
    """The desk's journal, oldest call first."""
    db = database if isinstance(database, sqlite3.Connection) else connect(database)
    try:
        rows = db.execute("SELECT * FROM calls ORDER BY sequence").fetchall()
    finally:
        if db is not database:
            db.close()
    return tuple(
        Call(
            sequence=row["sequence"],
            tool=row["tool"],
            arguments=json.loads(row["arguments"]),
            idempotency_key=row["idempotency_key"],
            changed_state=bool(row["changed_state"]),
            replay=bool(row["replay"]),
            error=row["error"],
            result_hash=row["result_hash"],
        )
        for row in rows
    )
