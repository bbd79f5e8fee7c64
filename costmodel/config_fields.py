"""Checked access to the keys of a parsed `config.json`; every failure is a `ProfileError` naming key and file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hwprofiles.errors import ProfileError, nearest

MAX_LAYERS = 2_000
MAX_DIMENSION = 100_000_000


class Fields:
    """One JSON object of a model configuration; `place` names file and object in messages.

    A null counts as absent. `used` collects the keys asked for, so that a data file can be cut down to them.
    """

    def __init__(self, document: Mapping[str, Any], place: str) -> None:
        if not isinstance(document, Mapping):
            raise ProfileError(f"{place}: expected a JSON object, got {type(document).__name__}")
        self._document = document
        self.place = place
        self.used: set[str] = set()
        self.children: dict[str, Fields] = {}

    def fail(self, key: str, problem: str) -> ProfileError:
        """The error for `key`, to be raised by the caller."""
        return ProfileError(f"{self.place}: key {key!r} {problem}")

    def get(self, key: str) -> Any:
        """The raw value of `key`, None when absent."""
        self.used.add(key)
        return self._document.get(key)

    def has(self, key: str) -> bool:
        """Whether `key` is there at all, a null included."""
        self.used.add(key)
        return key in self._document

    def integer(self, key: str, default: int | None = None, *, low: int = 1, high: int = MAX_DIMENSION) -> int:
        """An integer in [low, high]; without `default` the key is required."""
        value = self.get(key)
        if value is None:
            if default is None:
                raise self.fail(key, "is missing")
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.fail(key, f"must be an integer from {low} to {high}, got {value!r:.60}")
        return value

    def maybe_integer(self, key: str, *, low: int = 1) -> int | None:
        """An integer or None when the key is absent or null."""
        return None if self.get(key) is None else self.integer(key, low=low)

    def flag(self, key: str, default: bool) -> bool:
        """A true or false value."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(key, f"must be true or false, got {value!r:.60}")
        return value

    def text(self, key: str, choices: Collection[str], default: str | None = None) -> str:
        """One of `choices`; without `default` the key is required."""
        value = self.get(key)
        if value is None:
            if default is None:
                raise self.fail(key, "is missing")
            return default
        if not isinstance(value, str) or value not in choices:
            hint = nearest(value, choices) if isinstance(value, str) else None
            near = f"nearest: {hint}; " if hint else ""
            raise self.fail(key, f"has the unknown value {value!r:.60}; {near}known: {', '.join(sorted(choices))}")
        return value

    def list_of(self, key: str, kind: type[str] | type[int], length: int | None = None) -> list[Any] | None:
        """A list of `kind` with `length` items (any number when None); None when absent."""
        value = self.get(key)
        if value is None:
            return None
        noun = "names" if kind is str else "integers"
        if not isinstance(value, list) or any(not isinstance(v, kind) or isinstance(v, bool) for v in value):
            raise self.fail(key, f"must be a list of {noun}, got {value!r:.60}")
        if length is not None and len(value) != length:
            raise self.fail(key, f"must have {length} entries, one per layer, got {len(value)}")
        return value

    def child(self, key: str) -> Fields:
        """The object under `key`, which is required."""
        value = self.get(key)
        if value is None:
            raise self.fail(key, "is missing")
        if not isinstance(value, Mapping):
            raise self.fail(key, f"must be an object, got {value!r:.60}")
        return self.children.setdefault(key, Fields(value, f"{self.place}, {key}"))
