"""Checked access to values of parsed files: every refusal names the place, the value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from hwprofiles.errors import InputError

MAX_TOKENS = 10**9
MAX_TEXT = 2_000
_T = TypeVar("_T")


def shown(value: object) -> str:
    """A short printable form of any value, for messages."""
    form = ascii(value)
    return form if len(form) <= 60 else form[:57] + "..."


def bad(where: str, what: str, value: object) -> InputError:
    """The error for a value that is not what it should be."""
    return InputError(f"{where}: expected {what}, found {shown(value)}")


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
    """The value as a finite number."""
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
    """The value as a duration in seconds: finite and not negative."""
    result = number(value, where)
    if result < 0:
        raise bad(where, "seconds >= 0", value)
    return result


def flag(value: object, where: str) -> bool:
    """The value as true or false."""
    if not isinstance(value, bool):
        raise bad(where, "true or false", value)
    return value


def optional(read: Callable[[object, str], _T], value: object, where: str) -> _T | None:
    """`read` applied to the value, or None when there is none."""
    return None if value is None else read(value, where)


def instant(value: object, where: str) -> tuple[float, bool]:
    """An ISO time as seconds since the epoch (a time without a zone is read as UTC), and whether it named its zone."""
    if not isinstance(value, str) or len(value) > 64:
        raise bad(where, "an ISO 8601 time", value)
    try:
        moment = datetime.fromisoformat(value)
        zoned = moment.tzinfo is not None
        return (moment if zoned else moment.replace(tzinfo=UTC)).timestamp(), zoned
    except (ValueError, OverflowError):
        raise bad(where, "an ISO 8601 time", value) from None
