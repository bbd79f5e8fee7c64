"""Strict reading of small TOML files: known keys only, numbers in range, every error with file and dotted place."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hwprofiles.errors import ProfileError, nearest
from hwprofiles.hardware import TIERS, Tier

MAX_FILE_BYTES = 1_000_000
SHOWN_CHARACTERS = 60


class Table:
    """One table of a TOML file, which knows its file and its dotted place and refuses what it does not know.

    Parameters
    ----------
    file : str
        What the messages call the file, for example `hardware file 'mine.toml'`.
    place : str
        Dotted place of this table in the file; empty at the top.
    keys : iterable of str
        Every key that may stand here.

    Raises
    ------
    ProfileError
        A key is not among `keys`; the message gives the nearest one that is.
    """

    def __init__(self, data: dict[str, Any], file: str, place: str, keys: Iterable[str]) -> None:
        self.data, self.file, self.place = data, file, place
        known = tuple(keys)
        for key in data:
            if key not in known:
                hint = nearest(key, known)
                tail = f"did you mean {hint!r}?" if hint else f"known: {', '.join(known)}"
                where = f" in {place}" if place else ""
                raise ProfileError(f"{file}: unknown key {_shown(key)}{where}; {tail}")

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def at(self, key: str) -> str:
        """Dotted place of `key` in the file."""
        return f"{self.place}.{key}" if self.place else key

    def wrong(self, key: str, allowed: str) -> ProfileError:
        """The error for a value that is not `allowed`, or that is missing."""
        if key not in self.data:
            return ProfileError(f"{self.file}: {self.at(key)} is missing; it must be {allowed}")
        return ProfileError(f"{self.file}: {self.at(key)} must be {allowed}, got {_shown(self.data[key])}")

    def table(self, key: str, keys: Iterable[str]) -> Table:
        """The table under `key`, holding no key but `keys`."""
        inner = self.data.get(key)
        if not isinstance(inner, dict):
            raise self.wrong(key, "a table")
        return Table(inner, self.file, self.at(key), keys)

    def text(self, key: str) -> str:
        """A string that is not blank and has no control characters."""
        value = self.data.get(key)
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise self.wrong(key, "a string of one line, not empty")
        return value

    def choice(self, key: str, choices: Iterable[str]) -> str:
        """One of a few strings."""
        known, value = tuple(choices), self.data.get(key)
        if not isinstance(value, str) or value not in known:
            hint = nearest(value, known) if isinstance(value, str) else None
            raise self.wrong(key, "one of " + ", ".join(known) + (f" (did you mean {hint!r}?)" if hint else ""))
        return value

    def number(self, key: str, *, low: float = 0.0, high: float = math.inf, unit: str = "") -> float:
        """A finite number above 0, not below `low` and not above `high`; integers are taken, booleans are not."""
        allowed = "a finite number " + (f">= {low:g}" if low > 0 else "> 0")
        allowed += (f" and <= {high:g}" if high < math.inf else "") + (f" ({unit})" if unit else "")
        value = self.data.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, allowed)
        try:
            number = float(value)
        except OverflowError:
            raise self.wrong(key, allowed) from None
        if not (math.isfinite(number) and number > 0 and low <= number <= high):
            raise self.wrong(key, allowed)
        return number

    def tier(self) -> Tier:
        """The key `tier`, one of the four."""
        value = self.choice("tier", TIERS)
        return next(tier for tier in TIERS if tier == value)


def read_toml(path: Path, kind: str) -> tuple[dict[str, Any], str]:
    """The parsed file, and what messages call it.

    Parameters
    ----------
    path : Path
        A TOML file in UTF-8, at most `MAX_FILE_BYTES`.
    kind : str
        What the file is, for messages: `hardware file`.

    Raises
    ------
    ProfileError
        The file is absent, no file, too large, empty, not UTF-8 or not TOML.
    """
    file = f"{kind} {_shown(str(path), 300)}"
    try:
        if not path.is_file():
            raise ProfileError(f"{file}: " + ("not a file" if path.exists() else "no such file"))
        with path.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, ProfileError):
            raise
        raise ProfileError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise ProfileError(f"{file}: larger than {MAX_FILE_BYTES:,} bytes")
    if not raw.strip():
        raise ProfileError(f"{file}: the file is empty")
    try:
        return tomllib.loads(raw.decode("utf-8")), file
    except UnicodeDecodeError as error:
        raise ProfileError(f"{file}: not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise ProfileError(f"{file}: not TOML: nested too deeply") from None
    except ValueError as error:
        raise ProfileError(f"{file}: not TOML: {_one_line(str(error))}") from None


def _shown(value: object, limit: int = SHOWN_CHARACTERS) -> str:
    """A value as messages show it: one line, cut when long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or tables nested too deeply to print
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _one_line(text: str) -> str:
    return " ".join(text.split())
