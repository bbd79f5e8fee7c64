"""Tasks for tools of one's own: JSON Lines with `id` and `request`, and an optional `system` message."""

from __future__ import annotations

import json
from pathlib import Path

from hwprofiles.errors import InputError, ProfileError, nearest
from validate.chat import Message
from validate.session import Job

_KEYS = ("id", "request", "system")
_MAX_BYTES = 10_000_000
_MAX_ID_CHARS = 120
"""A task's id is part of its actions' idempotency keys, which servers keep up to 200 characters of."""


def read_jobs(path: Path) -> tuple[Job, ...]:
    """Jobs of a task file; raises `ProfileError` naming file and line."""
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: not UTF-8 at byte {error.start}") from None
    if len(raw) > _MAX_BYTES:
        raise ProfileError(f"{path}: {len(raw)} bytes; a task file has at most {_MAX_BYTES}")
    jobs = [_job(f"{path}, line {i}", line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not jobs:
        raise ProfileError(f"{path}: holds no task")
    names = [j.name for j in jobs]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ProfileError(f"{path}: task id {twice!r} occurs twice")
    return tuple(jobs)


def _job(where: str, line: str) -> Job:
    try:
        found = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        raise ProfileError(f"{where}: not a JSON object") from None
    if not isinstance(found, dict):
        raise ProfileError(f"{where}: not a JSON object")
    for key in found:
        if key not in _KEYS:
            hint = nearest(key, _KEYS)
            raise ProfileError(f"{where}: unknown key {key!r}" + (f"; did you mean {hint!r}?" if hint else ""))
    for key in ("id", "request"):
        if not isinstance(found.get(key), str) or not found[key].strip():
            raise ProfileError(f"{where}: {key!r} must be a text, got {found.get(key)!r}")
    if len(found["id"]) > _MAX_ID_CHARS or not found["id"].isprintable():
        raise ProfileError(f"{where}: 'id' must be at most {_MAX_ID_CHARS} printable characters, got {found['id']!r}")
    if not isinstance(found.get("system", ""), str):
        raise ProfileError(f"{where}: 'system' must be a text, got {found['system']!r}")
    for key in _KEYS:
        if any("\ud800" <= c <= "\udfff" for c in found.get(key, "")):
            raise ProfileError(f"{where}: {key!r} holds half of a surrogate pair, which is no text")
    system = (Message(role="system", text=found["system"]),) if found.get("system") else ()
    return Job(name=found["id"], messages=(*system, Message(role="user", text=found["request"])))
