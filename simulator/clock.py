"""Steps the simulated clock, and keeps Python's garbage collector out of the way meanwhile."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop
from typing import cast

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
    queue, until_s = env._queue, math.inf if horizon_s is None else horizon_s
    with _seldom_collecting():
        while enough.callbacks is not None:
            if not queue or queue[0][0] > until_s:
                break
            env._now, _, _, event = heappop(queue)  # what `simpy.Environment.step` does, without the call
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]  # as SimPy marks it done
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise cast(BaseException, event._value)
            n += 1
    if not enough.processed and horizon_s is None:
        raise InputError("the simulation cannot progress: nothing is left to happen, yet trajectories wait")
    return n


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    usual = gc.get_threshold()
    gc.set_threshold(max(_YOUNG_OBJECTS, usual[0]), max(5, usual[1]), max(2, usual[2]))
    try:
        yield
    finally:
        gc.set_threshold(*usual)
