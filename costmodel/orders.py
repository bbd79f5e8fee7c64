"""What playing a round asks of whoever keeps the time.

=========== ============================== ================================================================
order       meaning                        answer
=========== ============================== ================================================================
`Work`      do it and wait                 the `RequestPlan` that the engine followed; None for tools
`Begin`     begin it and go on             None
`Await`     wait for the first to end      `Came`
`Halt`      give it up                     None
`Look`      what time is it                seconds since the task began
=========== ============================== ================================================================
"""

from __future__ import annotations

from typing import NamedTuple

from costmodel.request import RequestPlan
from costmodel.session import Work


class Begin(NamedTuple):
    """Begin `work`, known as `number`, and go on."""

    number: int
    work: Work


class Await(NamedTuple):
    """Wait for the first of these to end; of several at once, the one named first."""

    numbers: tuple[int, ...]


class Came(NamedTuple):
    """Work `number` has ended; `waited` is False where it had before anybody asked."""

    number: int
    waited: bool
    plan: RequestPlan | None


class Halt(NamedTuple):
    """Give a work up, wherever it is."""

    number: int


class Look(NamedTuple):
    """Ask for the time."""


Order = Work | Begin | Await | Halt | Look
