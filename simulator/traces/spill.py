"""Records gathered by key in constant memory: beyond a limit they wait in a temporary SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from hwprofiles.errors import InputError

IN_MEMORY_BYTES = 32 * 2**20
_BATCH = 2_000


class Spill:
    """Records (plain JSON values) by key; keys can be joined, groups come in the order of their first record."""

    def __init__(self) -> None:
        self._keys: dict[str, int] = {}
        self._above: list[int] = []
        self._waiting: list[tuple[int, str]] = []
        self._bytes = 0
        self._joined = False
        self._disk: sqlite3.Connection | None = None

    def add(self, key: str, record: Any) -> None:
        """Put a record under a key."""
        try:
            body = json.dumps(record, separators=(",", ":"))
        except (RecursionError, ValueError):
            raise InputError("nested too deep") from None
        self._waiting.append((self._index(key), body))
        self._bytes += len(body) + 100
        if self._disk is None:
            if self._bytes > IN_MEMORY_BYTES:
                self._disk = sqlite3.connect("")
                self._disk.execute("PRAGMA journal_mode = OFF")
                self._disk.execute("CREATE TABLE r (key INTEGER, body TEXT)")
                self._flush()
        elif len(self._waiting) >= _BATCH:
            self._flush()

    def join(self, one: str, other: str) -> None:
        """Let two keys be one group."""
        a, b = self._root(self._index(one)), self._root(self._index(other))
        self._above[max(a, b)] = min(a, b)
        self._joined = True

    def groups(self) -> Iterator[list[Any]]:
        """The records of each group, in the order in which they came."""
        if self._disk is None:
            yield from self._from_memory()
            return
        self._flush()
        self._disk.execute("CREATE INDEX IF NOT EXISTS by_key ON r (key)")
        for keys in self._members():
            rows: list[tuple[int, str]] = []
            for key in keys:
                rows.extend(self._disk.execute("SELECT rowid, body FROM r WHERE key = ? ORDER BY rowid", (key,)))
            if len(keys) > 1:
                rows.sort()
            if rows:
                yield [json.loads(body) for _, body in rows]

    def _members(self) -> Iterator[list[int]]:
        """The numbers of the keys of each group."""
        if not self._joined:
            yield from ([index] for index in range(len(self._above)))
            return
        members: dict[int, list[int]] = {}
        for index in range(len(self._above)):
            members.setdefault(self._root(index), []).append(index)
        yield from members.values()

    def _from_memory(self) -> Iterator[list[Any]]:
        found: dict[int, list[str]] = {}
        for key, body in self._waiting:
            found.setdefault(self._root(key), []).append(body)
        for bodies in found.values():
            yield [json.loads(body) for body in bodies]

    def _index(self, key: str) -> int:
        found = self._keys.get(key)
        if found is None:
            found = self._keys[key] = len(self._above)
            self._above.append(found)
        return found

    def _root(self, index: int) -> int:
        while self._above[index] != index:
            self._above[index] = self._above[self._above[index]]
            index = self._above[index]
        return index

    def _flush(self) -> None:
        assert self._disk is not None
        self._disk.executemany("INSERT INTO r VALUES (?, ?)", self._waiting)
        self._waiting.clear()
