"""Checked access to values of parsed files: every refusal names the place, the value and what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from hwprofiles.errors import InputError

MAX_TOKENS = 10**9
MAX_TEXT = 2_000
MAX_NUMBER = 1e15
MAX_SECONDS = 1e11
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,12})?")
_T = TypeVar("_T")


def shown(value: object) -> str:
    """A short printable form of any value, for messages."""
    form = ascii(value)
    return form if len(form) <= 60 else form[:57] + "..."


def bad(where: str, what: str, value: object) -> InputError:
    """The error for a value that is not what it should be."""
    return InputError(f"{where}: expected {what}, found {shown(value)}")


def words(value: object) -> str | None:
    """A name that somebody gave (a tool, an agent, a model): one printable line of at most 200 characters, or None."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 10**30 else None
    if not isinstance(value, str):
        return None
    kept = "".join(c for c in " ".join(value[:2_000].split()) if c.isprintable() and not "\ud800" <= c <= "\udfff")
    return kept.strip()[:200].strip() or None


def label(value: object, where: str) -> str:
    """The value as text: a whole number is written out (ids are numbers in some sources)."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**30:
        return str(value)
    return text(value, where)


def mapping(value: object, where: str) -> dict[str, object]:
    """The value as an object with text keys."""
    if not isinstance(value, dict):
        raise bad(where, "an object", value)
    return value


def items(value: object, where: str) -> list[object]:
    """The value as a list."""
    if not isinstance(value, list):
        raise bad(where, "a list", value)
    return value


def text(value: object, where: str) -> str:
    """The value as printable text of at most `MAX_TEXT` characters."""
    if not isinstance(value, str):
        raise bad(where, "text", value)
    if len(value) > MAX_TEXT:
        raise bad(where, f"text of at most {MAX_TEXT} characters", value)
    if not value.isprintable() or not _encodes(value):
        raise bad(where, "printable text", value)
    return value


def _encodes(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def number(value: object, where: str) -> float:
    """The value as a number of at most `MAX_NUMBER` in size."""
    result = _finite(value, where)
    if abs(result) > MAX_NUMBER:
        raise bad(where, f"a number of at most {MAX_NUMBER:g} in size", value)
    return result


def _finite(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad(where, "a number", value)
    try:
        result = float(value)
    except OverflowError:
        raise bad(where, "a finite number", value) from None
    if not math.isfinite(result):
        raise bad(where, "a finite number", value)
    return result


def count(value: object, where: str) -> int:
    """The value as a whole number from 0 to `MAX_TOKENS`; numbers written as text are read (OTLP does that)."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 12:
        value = int(value)
    result = number(value, where)
    if result < 0 or result > MAX_TOKENS or result != int(result):
        raise bad(where, f"a whole number from 0 to {MAX_TOKENS}", value)
    return int(result)


def seconds(value: object, where: str) -> float:
    """The value as a duration in seconds: not negative, at most `MAX_SECONDS`."""
    result = _finite(value, where)
    if not 0 <= result <= MAX_SECONDS:
        raise bad(where, f"seconds >= 0 and at most {MAX_SECONDS:g}", value)
    return result


def flag(value: object, where: str) -> bool:
    """The value as true or false."""
    if not isinstance(value, bool):
        raise bad(where, "true or false", value)
    return value


def first_count(where: str, tables: Sequence[object], *paths: str) -> int | None:
    """The first count found in the tables under one of the dotted paths; earlier tables come first."""
    for table in tables:
        for path in paths:
            value = table
            for key in path.split("."):
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None:
                return count(value, f"{where}: {path}")
    return None


def optional(read: Callable[[object, str], _T], value: object, where: str) -> _T | None:
    """`read` applied to the value, or None when there is none."""
    return None if value is None else read(value, where)


def moment(value: object, where: str) -> tuple[float, bool]:
    """A time as seconds since the epoch, and whether it named its zone: ISO text, or a number of s, ms, us or ns.

    Which unit a number has follows from its size: seconds reach 1e11 in the year 5138.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, str):
        return instant(value, where)
    found = _finite(value, where)
    if not 0 <= found < 1e20:
        raise bad(where, "a time", value)
    unit = 1.0 if found < 1e11 else 1e3 if found < 1e14 else 1e6 if found < 1e17 else 1e9
    return found / unit, True


def instant(value: object, where: str) -> tuple[float, bool]:
    """An ISO time as seconds since the epoch (a time without a zone is read as UTC), and whether it named its zone."""
    if not isinstance(value, str) or len(value) > 64:
        raise bad(where, "an ISO 8601 time", value)
    try:
        found = datetime.fromisoformat(value.strip().removesuffix(" UTC") + ("Z" if value.endswith(" UTC") else ""))
        zoned = found.tzinfo is not None
        return (found if zoned else found.replace(tzinfo=UTC)).timestamp(), zoned
    except (ValueError, OverflowError):
        raise bad(where, "an ISO 8601 time", value) from None
