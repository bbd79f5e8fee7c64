"""What an importer hands over: one agent's LLM calls as the source tells them, before effects and token bookkeeping."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field


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
    """One task as recorded; `declared` names the set of tool declarations that goes with the source."""

    id: str
    domain: str | None = None
    task: str | None = None
    trial: int | None = None
    outcome: float | None = None
    declared: str | None = None
    steps: list[RawStep] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


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
    except ValueError:
        return value


def canonical(value: object) -> object:
    """A value in the form in which two calls are compared.

    Text is stripped and case-folded, numbers and true/false become text, keys are sorted and null entries dropped, so
    that `{"n": 2.0, "zip": "AB "}` equals `{"zip": "ab", "n": "2"}`. The order inside lists counts.
    """
    if isinstance(value, dict):
        return {str(k): canonical(v) for k, v in sorted(value.items(), key=lambda kv: str(kv[0])) if v is not None}
    if isinstance(value, list):
        return [canonical(v) for v in value]
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip().casefold()


def argument_key(value: object) -> str:
    """Ten hex digits that are equal for two calls with the same canonical arguments."""
    form = json.dumps(canonical({} if value is None else value), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(form.encode("ascii")).hexdigest()[:10]
