"""What an importer hands over: one agent's LLM calls as the source tells them, before effects and token bookkeeping."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit


@dataclass(slots=True, kw_only=True)
class RawCall:
    """A tool call as recorded; times in seconds on the clock of the source."""

    name: str
    id: str | None = None
    arguments: object = None
    start_s: float | None = None
    end_s: float | None = None
    latency_s: float | None = None
    error: bool | None = None


@dataclass(slots=True, kw_only=True)
class RawStep:
    """An LLM call as recorded.

    `spoke` says whether text for the user came with it, `told` whether the source recorded the content at all.
    """

    where: str
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    thinking_tokens: int | None = None
    calls: list[RawCall] = field(default_factory=list)
    spoke: bool = False
    told: bool = True
    start_s: float | None = None
    end_s: float | None = None
    user_gap_s: float | None = None
    model: str | None = None


@dataclass(slots=True, kw_only=True)
class RawTrajectory:
    """One task as recorded; `declared` names the set of tool declarations that goes with the source.

    `numbered` says that the importer made the id from a running number, so that no other trajectory has it.
    """

    id: str
    domain: str | None = None
    task: str | None = None
    trial: int | None = None
    outcome: float | None = None
    declared: str | None = None
    numbered: bool = False
    steps: list[RawStep] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


_CALL = tuple(f.name for f in fields(RawCall))
_STEP = tuple(f.name for f in fields(RawStep))
_TRAJECTORY = tuple(f.name for f in fields(RawTrajectory))


def packed(raw: RawTrajectory) -> list[Any]:
    """A trajectory as plain values (see `unpacked`)."""
    row = [getattr(raw, name) for name in _TRAJECTORY]
    row[_TRAJECTORY.index("steps")] = [_packed_step(s) for s in raw.steps]
    return row


def _packed_step(step: RawStep) -> list[Any]:
    row = [getattr(step, name) for name in _STEP]
    row[_STEP.index("calls")] = [[getattr(c, k) for k in _CALL] for c in step.calls]
    return row


def unpacked(row: list[Any]) -> RawTrajectory:
    """The trajectory in plain values that `packed` made."""
    found = dict(zip(_TRAJECTORY, row, strict=True))
    found["steps"] = [_unpacked_step(s) for s in found["steps"]]
    return RawTrajectory(**found)


def _unpacked_step(row: list[Any]) -> RawStep:
    found = dict(zip(_STEP, row, strict=True))
    found["calls"] = [RawCall(**dict(zip(_CALL, call, strict=True))) for call in found["calls"]]
    return RawStep(**found)


class Warnings:
    """Collects what an importer noticed: one line per kind, with a count and the first place."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, str]] = {}

    def add(self, what: str, where: str = "") -> None:
        """Note `what` (a sentence that holds for every case) at the place `where`."""
        n, first = self._seen.get(what, (0, where))
        self._seen[what] = (n + 1, first)

    def lines(self) -> tuple[str, ...]:
        """The notes in the order they first came up."""
        return tuple(_line(what, n, first) for what, (n, first) in self._seen.items())

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines())


def _line(what: str, n: int, first: str) -> str:
    place = f" ({n} times, first at {first})" if n > 1 and first else f" ({first})" if first else ""
    return what + place


def parsed_arguments(value: object) -> object:
    """Tool arguments as a value: formats that write them as JSON text are parsed, other text stays text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def canonical(value: object) -> object:
    """A value in the form in which two calls are compared.

    Text is stripped and case-folded, white space in it is one blank, numbers and true/false become text, keys are
    sorted, null entries dropped and the parameters of addresses sorted, so that `{"n": 2.0, "zip": "AB "}` equals
    `{"zip": "ab", "n": "2"}` and `/Patient?b=2&a=1` equals `/Patient?a=1&b=2`. The order inside lists counts.
    """
    return _form(value, _loose)


def _form(value: object, words: Callable[[str], str]) -> object:
    if isinstance(value, dict):
        return {str(k): _form(v, words) for k, v in sorted(value.items(), key=lambda kv: str(kv[0])) if v is not None}
    if isinstance(value, list):
        return [_form(v, words) for v in value]
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**40 else hex(value)
    return words(str(value))


def _loose(value: str) -> str:
    found = " ".join(value.split()).casefold()
    if "?" in found and " " not in found and (found.startswith("/") or "://" in found):
        try:
            parts = urlsplit(found)
            return parts._replace(query=urlencode(sorted(parse_qsl(parts.query, keep_blank_values=True)))).geturl()
        except ValueError:
            return found
    return found


def argument_key(value: object) -> str:
    """Ten hex digits that are equal for two calls with the same canonical arguments.

    Where the arguments are not letter by letter in canonical form, a point and six digits of their own form follow
    (`loose_key` leaves them out).
    """
    given = {} if value is None else value
    form, own = _digits(canonical(given)), _digits(_form(given, str))
    return form[:10] if form == own else f"{form[:10]}.{own[:6]}"


def _digits(form: object) -> str:
    return hashlib.sha256(json.dumps(form, sort_keys=True, ensure_ascii=True).encode("ascii")).hexdigest()


def loose_key(key: str | None) -> str | None:
    """The part of an `argument_key` that stands for the canonical arguments."""
    return None if key is None else key.partition(".")[0]
