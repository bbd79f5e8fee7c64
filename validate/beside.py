"""Requests that go on beside others in a real run: asyncio tasks with tickets."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from costmodel.protocol import Done, Ticket


class Beside:
    """The requests of one round that run by themselves.

    Parameters
    ----------
    left : list of tasks
        Takes tools that nobody waits for any more: a call that has begun is never torn off.
    """

    def __init__(self, left: list[asyncio.Task[Any]]) -> None:
        self.running: dict[int, asyncio.Task[Any]] = {}
        self._can_be_cut: dict[int, bool] = {}
        self._left = left
        self._n = 0

    def start(self, work: Coroutine[Any, Any, Any], *, can_be_cut: bool) -> Ticket:
        """Begin a request and go on."""
        self._n += 1
        self.running[self._n] = asyncio.ensure_future(work)
        self._can_be_cut[self._n] = can_be_cut
        return Ticket(self._n)

    async def first(self, tickets: tuple[Ticket, ...]) -> Done:
        """The first to end, the one named first of several at once; raises what it raised.

        Raises
        ------
        ValueError
            A ticket of something that is not running.
        """
        if not tickets or any(t.number not in self.running for t in tickets):
            raise ValueError("a strategy waits for what is not running")
        await asyncio.wait([self.running[t.number] for t in tickets], return_when=asyncio.FIRST_COMPLETED)
        ticket = next(t for t in tickets if self.running[t.number].done())
        return Done(ticket, self.running.pop(ticket.number).result())

    async def cancel(self, ticket: Ticket) -> None:
        """Give a request up; what its model still does is its engine's affair. A tool goes on unheard."""
        task = self.running.pop(ticket.number, None)
        if task is not None:
            await self._give_up(ticket.number, task)

    async def drop(self) -> None:
        """Give up all that is left."""
        for number, task in list(self.running.items()):
            del self.running[number]
            await self._give_up(number, task)

    async def _give_up(self, number: int, task: asyncio.Task[Any]) -> None:
        if not self._can_be_cut[number]:
            self._left.append(task)
            return
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
