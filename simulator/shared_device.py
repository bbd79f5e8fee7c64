"""Devices that two engines share: one iteration at a time, in turns while both have work.

An engine that has work while the other's iteration runs waits for its end, then runs one iteration of its own, and so
on. An iteration takes as long as it takes alone; what an engine waits for the other counts to the phase it waits in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol


class Sharer(Protocol):
    """What an engine must do for the other one."""

    def cut_short(self) -> None:
        """End a run of iterations at the end of the one in progress."""

    def resume(self) -> None:
        """Start the next iteration now."""


class SharedDevice:
    """Hands the devices from engine to engine.

    Limits
    ------
    No overlap: a device that runs two kernels at once, each slower, gains at most what one iteration leaves idle.
    """

    def __init__(self) -> None:
        self._holder: Sharer | None = None
        self._waiting: deque[Sharer] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether another engine waits, so that only one iteration may follow."""
        return bool(self._waiting)

    def take(self, engine: Sharer) -> bool:
        """Whether `engine` may start an iteration; if not, it is resumed when its turn comes."""
        if self._holder is None or self._holder is engine:
            self._holder = engine
            return True
        if engine not in self._waiting:
            self._waiting.append(engine)
        self._holder.cut_short()
        return False

    def give_up(self, engine: Sharer) -> None:
        """`engine` has ended an iteration, or has nothing to do: whoever waits is next."""
        if engine in self._waiting:
            self._waiting.remove(engine)
        if self._holder is engine:
            self._holder = self._waiting.popleft() if self._waiting else None
            if self._holder is not None:
                self._holder.resume()


def share_devices(engines: Iterable[Iterable[SharesDevice]]) -> None:
    """Let the engines of each group share the devices they stand on."""
    for group in engines:
        device = SharedDevice()
        for engine in group:
            engine.device = device


class SharesDevice(Sharer, Protocol):
    """An engine that asks before each iteration."""

    device: SharedDevice | None
