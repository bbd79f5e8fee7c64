"""The errors every package raises for bad input, and how their messages are built."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something the user gave cannot be used; the message says what, where and what is allowed."""


class ProfileError(InputError):
    """A data file (device, model, engine, scenario, trace) is wrong at the place the message names."""


class CapacityError(InputError):
    """A model does not fit on its devices.

    Parameters
    ----------
    message : str
        What does not fit where.
    needed_bytes, available_bytes : float
        Bytes needed and bytes available, on one device.
    """

    def __init__(self, message: str, *, needed_bytes: float, available_bytes: float) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The closest of `choices` to `name`, ignoring case, or None when nothing is close."""
    by_fold = {c.casefold(): c for c in choices}
    hits = difflib.get_close_matches(name.casefold(), list(by_fold), n=1, cutoff=0.5)
    return by_fold[hits[0]] if hits else None


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> InputError:
    """An `InputError` for a name that is not among `choices`, with the nearest one that is."""
    known = sorted(choices)
    hint = nearest(name, known)
    tail = (
        f"did you mean {hint!r}?" if hint else f"known: {', '.join(known[:12])}" + (", ..." if len(known) > 12 else "")
    )
    shown = repr(name if len(name) <= 80 else f"{name[:77]}...")
    return InputError(f"unknown {kind} {shown}; {tail}")
