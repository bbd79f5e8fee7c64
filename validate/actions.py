"""Runs the tools of steps: each action once, never before it may, journaled before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from costmodel.trajectory import RUNS_FREELY, Effect
from validate.chat import Message, ToolSpec, ToolUse
from validate.journal import Journal
from validate.steps import MALFORMED, RealStep
from validate.tools import ToolFailure, ToolResult, ToolServerGone, ToolTimeout

_TRIES = 3


class Unresolved(RuntimeError):
    """A held action was sent and nobody can say whether it ran; only a person can decide."""


class Clock(Protocol):
    """The run's clock."""

    def now_s(self) -> float:
        """Seconds since the run began."""


class Tools(Protocol):
    """What a run needs of a tool server; `validate.tools.ToolBox` is one."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools on offer."""

    @property
    def supports_keys(self) -> bool:
        """Whether a call may be sent again with the same key."""

    def effect(self, name: str, arguments: Mapping[str, Any] | None = None) -> Effect:
        """What a call does to the world."""

    async def call(self, use: ToolUse, *, key: str) -> ToolResult:
        """Call a tool."""

    async def restart(self, after: ToolFailure | None = None) -> None:
        """Start the server again."""


class ToolsAround:
    """Tools that pass everything on to others; what wraps them changes the calls."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools on offer."""
        return self.tools.specs

    @property
    def supports_keys(self) -> bool:
        """As the server says."""
        return self.tools.supports_keys

    def effect(self, name: str, arguments: Mapping[str, Any] | None = None) -> Effect:
        """As the server says."""
        return self.tools.effect(name, arguments)

    async def restart(self, after: ToolFailure | None = None) -> None:
        """Start the server again."""
        await self.tools.restart(after)


class Actions:
    """The tool calls of one task.

    An action has an idempotency key. A held one runs only when `authorise` has been journaled for it. After a cut, an
    action that was begun and has no recorded end is sent again with the same key where the server honours keys or the
    action runs freely; otherwise it is `unresolved` and the task stops. A server that does not come back ends the run
    with `ToolServerGone`; it can be resumed.
    """

    def __init__(self, task: str, tools: Tools, journal: Journal, clock: Clock) -> None:
        self.task, self.tools, self.journal, self.clock = task, tools, journal, clock

    def intend(self, round_: int, key: str, step: RealStep, i: int, origin: str, asked: str) -> Effect:
        """Journal that a step wants this action (a reply is an action too: it reaches the user).

        Returns the effect that the journal holds: that of the first time, should the tools say otherwise by now.
        """
        use = step.uses[i] if step.uses else None
        self.journal.record(
            self.task,
            round_,
            "intent",
            key,
            tool=use.name if use else "",
            arguments=dict(use.arguments) if use else {},
            effect=str(step.effect),
            offset=step.offset,
            origin=origin,
            asked=asked,
        )
        found = self.journal.find(self.task, round_, "intent", key)
        return step.effect if found is None else Effect(found["effect"])

    def announce_again(self, round_: int, key: str, step: RealStep, i: int, before: str) -> None:
        """Journal that a drafted step of the round before still wants its action, under a key of this round."""
        first = self.journal.find(self.task, round_ - 1, "intent", before) or {}
        use = step.uses[i] if step.uses else None
        self.journal.record(
            self.task,
            round_,
            "intent",
            key,
            tool=use.name if use else "",
            arguments=dict(use.arguments) if use else {},
            effect=str(step.effect),
            offset=step.offset,
            origin="d",
            asked=first.get("asked", ""),
            asked_in=first.get("asked_in", round_ - 1),
        )

    def authorise(self, round_: int, key: str, why: str, by: int) -> None:
        """Journal that the action may run, and the event that allows it."""
        self.journal.record(self.task, round_, "authorised", key, why=why, by=by)

    async def run(self, round_: int, step: RealStep) -> RealStep:
        """Run all actions of a step in order; returns it with what came of them."""
        if not step.uses:
            await self._deliver(round_, step)
            note = (Message(role="user", text=MALFORMED),) if step.malformed else ()
            return step.observed(note)
        seen = []
        for use, key in zip(step.uses, step.keys, strict=True):
            effect = await self._once(round_, key, use, step.effect)
            seen.append(Message(role="tool", text=effect["text"], tool_call_id=use.id))
        return step.observed(tuple(seen))

    async def _deliver(self, round_: int, step: RealStep) -> None:
        """A reply reaches the user, a malformed step nobody: both leave their mark."""
        key = step.keys[0]
        self._must_be_allowed(round_, key, step.effect)
        self.journal.record(self.task, round_, "executing", key, at_s=self.clock.now_s())
        self.journal.record(self.task, round_, "effect", key, text="", is_error=False, replayed=False)

    async def _once(self, round_: int, key: str, use: ToolUse, effect: Effect) -> dict[str, Any]:
        known = self.journal.find(self.task, round_, "effect", key)
        if known is not None:
            return known
        self._must_be_allowed(round_, key, effect)
        begun = self.journal.find(self.task, round_, "executing", key) is not None
        again = effect in RUNS_FREELY or self.tools.supports_keys
        if begun and not again:
            self._give_up(round_, key, f"{use.name} was begun before the run was cut")
        self.journal.record(self.task, round_, "executing", key, at_s=self.clock.now_s())
        found = await self._call(round_, key, use, effect, again=again)
        self.journal.record(self.task, round_, "effect", key, **found)
        return found

    async def _call(self, round_: int, key: str, use: ToolUse, effect: Effect, *, again: bool) -> dict[str, Any]:
        """Call a tool; an answer that never came is asked for again with the same key, where that is safe."""
        trouble = ""
        start_s = self.clock.now_s()
        for _ in range(_TRIES):
            self.journal.attempt(self.task, round_, key, keys_honoured=self.tools.supports_keys)
            try:
                result = await self.tools.call(use, key=key)
            except ToolTimeout as error:
                if trouble:  # asked twice and stuck: the server itself is to blame
                    await self.tools.restart(error)
                trouble = str(error)
            except ToolServerGone as error:
                trouble = str(error)
                if again:
                    await self.tools.restart(error)
            else:
                return {
                    "text": result.text,
                    "is_error": result.is_error,
                    "replayed": bool(result.replayed),
                    "start_s": start_s,
                    "end_s": self.clock.now_s(),
                }
            if not again:
                self._give_up(round_, key, f"{use.name}: {trouble}")
        if effect not in RUNS_FREELY:
            self._give_up(round_, key, f"{use.name}: {trouble}")
        times = {"start_s": start_s, "end_s": self.clock.now_s()}
        return {"text": f"tool error: {trouble}", "is_error": True, "replayed": False, **times}

    def _must_be_allowed(self, round_: int, key: str, effect: Effect) -> None:
        """The last gate before the world: a held action needs its authorisation on disk."""
        found = self.journal.find(self.task, round_, "authorised", key)
        if effect not in RUNS_FREELY and (found is None or found["why"] == "free"):
            raise RuntimeError(f"{key}: a held action has no verdict; this is a bug and nothing was run")

    def _give_up(self, round_: int, key: str, why: str) -> None:
        self.journal.record(self.task, round_, "unresolved", key, why=why)
        raise Unresolved(f"{key}: {why}; whether it ran is not known")
