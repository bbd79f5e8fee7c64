"""Steps the simulated clock, and keeps Python's garbage collector out of the way meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import simpy

from hwprofiles.errors import InputError

_YOUNG_OBJECTS = 50_000
"""Objects between two looks for cycles: a run leaves few, and looking for them as often as Python does costs 7 %."""


def step_until(env: simpy.Environment, enough: simpy.Event, horizon_s: float | None = None) -> int:
    """Step the clock until `enough` has happened or the horizon is passed; returns the number of events.

    Raises
    ------
    InputError
        Nothing is left to happen, and there is no horizon.
    """
    n = 0
    step = env.step
    with _seldom_collecting():
        try:
            if horizon_s is None:
                while not enough.processed:
                    step()
                    n += 1
            else:
                while not enough.processed and env.peek() <= horizon_s:
                    step()
                    n += 1
        except simpy.core.EmptySchedule:
            if horizon_s is None:
                raise InputError(
                    "the simulation cannot progress: nothing is left to happen, yet trajectories wait"
                ) from None
    return n


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    usual = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS, 5, 2)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
