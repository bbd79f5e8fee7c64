"""Lanes of a replay: fake services on a virtual clock, and servers behind URLs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import simpy

from costmodel.deployment import Deployment
from validate.calibrate_probe import Target, Timed
from validate.serve_fake import FakeService, Live

T = TypeVar("T")
_TURNS = 24
"""Turns of the event loop after which everything that the last event set going has come to wait for another one."""


class Stage:
    """A virtual clock on which coroutines wait for events: it moves on whenever all of them wait."""

    def __init__(self) -> None:
        self.env = simpy.Environment()
        self._woken = True

    def event(self, event: simpy.Event) -> asyncio.Future[None]:
        """A future that is done when a SimPy event has happened."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def happened(_: simpy.Event) -> None:
            self._woken = True
            if not future.done():
                future.set_result(None)

        if event.callbacks is None:
            happened(event)
        else:
            event.callbacks.append(happened)
        return future

    async def play(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end.

        Raises
        ------
        RuntimeError
            It waits for something that will never happen.
        """
        task = asyncio.ensure_future(work)
        while not task.done():
            if self._woken:
                self._woken = False
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
            elif self.env.peek() == float("inf"):
                task.cancel()
                raise RuntimeError("a replay waits for nothing that will ever happen")
            else:
                self.env.step()
        return await task


class VirtualLane:
    """A fake service on a stage's clock."""

    def __init__(self, dep: Deployment, stage: Stage) -> None:
        self.service, self.stage = FakeService(dep, env=stage.env), stage

    def now_s(self) -> float:
        """The virtual clock."""
        return float(self.stage.env.now)

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await self.stage.event(self.stage.env.timeout(seconds))

    async def together(self, prompts: list[list[int]], output_tokens: int) -> list[Timed]:
        """Submit all now; a cancelled wait gives them up."""
        lives = [self.service.submit(prompt, output_tokens) for prompt in prompts]
        try:
            for live in lives:
                if live.result is None and live.ask is not None:
                    await self.stage.event(live.ask)
        except asyncio.CancelledError:
            for live in lives:
                self.service.cancel(live)
            raise
        return [_timed(live) for live in lives]


def _timed(live: Live) -> Timed:
    assert live.result is not None
    return Timed(
        sent_s=live.sent_s,
        piece_s=tuple(live.token_s),
        prompt_tokens=live.prompt_tokens,
        cached_tokens=live.result.cached_tokens,
        output_tokens=live.output_tokens,
    )


class HttpLane:
    """A server behind a URL, on the wall clock."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def now_s(self) -> float:
        """The wall clock."""
        return self.target.now_s()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def together(self, prompts: list[list[int]], output_tokens: int) -> list[Timed]:
        """Send prompts at once."""
        return await self.target.together(prompts, output_tokens)
