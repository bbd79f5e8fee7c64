"""How every command speaks: one JSON document or one rendering on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwprofiles.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA_VERSION = 1
PIPED_WIDTH = 120
"""Columns of a table that goes to a file or a pipe, so that the same input gives the same bytes everywhere."""


class MissingError(RuntimeError):
    """Something a command needs is not installed or cannot be reached (exit 3); the message says how to get it."""


def emit(document: dict[str, object], as_json: bool, render: Callable[[Console], None]) -> None:
    """Write a command's answer to stdout: exactly one JSON document, or what `render` draws.

    Parameters
    ----------
    document : dict
        The answer; `schema_version` is put first. Arrays and numpy numbers become lists and numbers.
    as_json : bool
        Whether `--json` was given.
    render : callable
        Draws the answer on a rich console; texts of the user must be escaped (`rich.markup.escape`).

    Raises
    ------
    ValueError
        The document holds NaN or an infinity, which JSON does not have: a bug of the caller.
    """
    if as_json:
        full = {"schema_version": SCHEMA_VERSION, **document}
        sys.stdout.write(json.dumps(full, indent=2, allow_nan=False, default=_plain) + "\n")
    else:
        render(console())


def must_be_writable(path: Path | None) -> None:
    """Refuse a file that could not be written, before the work whose answer would be lost.

    Raises
    ------
    InputError
        Its folder does not exist, it is a folder itself, or permission is missing.
    """
    if path is None:
        return
    if not path.parent.is_dir():
        raise InputError(f"{path}: cannot be written: the folder {path.parent} does not exist")
    if path.is_dir():
        raise InputError(f"{path}: cannot be written: it is a folder")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{path}: cannot be written: permission denied")


def progress_line(line: str) -> None:
    """Show what goes on, in one line of a terminal on stderr; an empty line takes it away."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()


def console(*, stderr: bool = False) -> Console:
    """A rich console on stdout or stderr: as wide as the terminal, `PIPED_WIDTH` columns when it is none."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, emoji=False)


def warn(message: str) -> None:
    """Say something on stderr that the answer on stdout does not depend on."""
    say("warning", message, style="yellow")


def say(kind: str, message: str, *, style: str = "bold red") -> None:
    """Write `specroof: KIND: message` as one line on stderr, the kind in colour on a terminal."""
    line = " ".join(message.split())
    if sys.stderr.isatty():
        from rich.text import Text

        console(stderr=True).print(Text.assemble("specroof: ", (f"{kind}: ", style), line))
    else:
        sys.stderr.write(f"specroof: {kind}: {line}\n")


def _plain(value: Any) -> object:
    """What JSON can hold of a numpy number or array; anything else is a bug of the caller."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
