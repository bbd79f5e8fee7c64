"""Faults on demand, for tests: at the n-th arriving call the desk fails, hangs or dies."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED

CRASH_STATUS = 86
"""Exit status of a server that a fault killed."""


class Fault(StrEnum):
    """What goes wrong with a call; before and after are meant relative to the commit of its transaction."""

    ERROR = "error"
    HANG_BEFORE = "hang_before"
    HANG_AFTER = "hang_after"
    CRASH_BEFORE = "crash_before"
    CRASH_AFTER = "crash_after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Which calls go wrong, and how full the disk is.

    Parameters
    ----------
    at : mapping
        Number of the arriving call (1 for the first; counted in the database, over every life of the server, so each
        fault strikes once) to its fault.
    max_pages : int or None
        Most pages the database may have; None for no limit.
    """

    at: Mapping[int, Fault] = field(default_factory=dict)
    max_pages: int | None = None


def exit_now() -> None:
    """Die as a killed process does: nothing is cleaned up."""
    os._exit(CRASH_STATUS)


def lose_connection() -> None:
    """Death of a server that lives in the client's process: its caller sees the connection closed."""
    raise MCPError(code=CONNECTION_CLOSED, message="the desk was killed by a fault")
