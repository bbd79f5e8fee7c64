"""Tools for a real run, reached through the Model Context Protocol (MCP) and nothing else.

A `ToolBox` is one tool server: what it offers, what each call does to the world, and the calls themselves. It says
apart what a runner must treat apart: a tool that answered with an error (`ToolResult.is_error`), a tool that did not
answer in time (`ToolTimeout`) and a server that is gone (`ToolServerGone`). After the last two nobody knows whether
the call happened; where the server keeps idempotency keys (`supports_keys`) the same key may be sent again.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from types import TracebackType
from typing import Any, Self, cast

from mcp import StdioServerParameters
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, CallToolResult, RequestParamsMeta
from pydantic import ValidationError

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError, unknown_name
from simulator.effects import EffectMap
from simulator.effects_file import tools_list_hints
from validate.chat import ToolSpec, ToolUse
from validate.link import Link, open_link
from validate.wire import KEY, REPLAYED, clipped, last_words, result_text, stderr_file, unsendable


class ToolFailure(RuntimeError):
    """No answer came; whether the call happened is not known. `connection` numbers the connection it was sent on."""

    def __init__(self, message: str, *, connection: int) -> None:
        super().__init__(message)
        self.connection = connection


class ToolTimeout(ToolFailure):
    """The tool did not answer in time; the server was told to cancel."""


class ToolServerGone(ToolFailure):
    """The server ended, or the connection to it did; `ToolBox.restart` starts it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool answered.

    Parameters
    ----------
    text : str
        As a model sees it; at most `validate.wire.MAX_RESULT_CHARS` and a line that says what was cut.
    is_error : bool
        The tool refused or failed; its own words are in `text`.
    seconds : float
        From sending to answer, as the client saw it.
    replayed : bool or None
        Whether the server answered from its memory of the key; None where it does not say.
    """

    text: str
    is_error: bool
    seconds: float
    replayed: bool | None


class ToolBox:
    """The tools of one MCP server; an async context manager, made by `ToolBox.stdio` or `ToolBox.in_memory`.

    Calls and restarts may come from any task of the event loop.

    Attributes
    ----------
    specs : tuple of ToolSpec
        The tools, in the server's order.
    supports_keys : bool
        Whether the server says (an extension, an experimental capability or its instructions) that it keeps
        idempotency keys; where it does not, a call without an answer must not be sent again.
    """

    def __init__(
        self, server: StdioServerParameters | Server[Any], *, effects: EffectMap | None, timeout_s: float, name: str
    ) -> None:
        if not 0 < timeout_s < float("inf"):
            raise InputError(f"timeout_s must be a finite number > 0, got {timeout_s}")
        self._server = server
        self._user_effects = effects or EffectMap()
        self._effects = self._user_effects
        self._timeout_s = timeout_s
        self._name = name
        self._link: Link | None = None
        self._links = 0
        self._lock = asyncio.Lock()
        self._errlog: TextIOWrapper | None = None
        self.specs: tuple[ToolSpec, ...] = ()
        self.supports_keys = False

    @classmethod
    def stdio(
        cls,
        command: Sequence[str],
        *,
        effects: EffectMap | None = None,
        timeout_s: float = 30.0,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """A server started as `command` and spoken to over its stdin and stdout; never through a shell.

        The server gets a short list of harmless environment variables and `env`, nothing else of this process's.

        Raises
        ------
        InputError
            If the command is empty; on entering, if it cannot be started.
        """
        if not command or not command[0]:
            raise InputError("the tool server's command is empty")
        server = StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(env or {}))
        return cls(server, effects=effects, timeout_s=timeout_s, name=shlex.join(command))

    @classmethod
    def in_memory(cls, server: Server[Any], *, effects: EffectMap | None = None, timeout_s: float = 30.0) -> Self:
        """A server in this process, without pipes: for quick runs and tests."""
        return cls(server, effects=effects, timeout_s=timeout_s, name=server.name)

    async def __aenter__(self) -> Self:
        if isinstance(self._server, StdioServerParameters):
            self._errlog = stderr_file()
        try:
            await self._connect()
        except BaseException:
            self._close_errlog()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._disconnect()
        self._close_errlog()

    def classify(self, name: str, arguments: Mapping[str, Any] | None = None) -> tuple[Effect, str]:
        """The effect of a call and where that is known from.

        The user's rules come first, then MCP tool lists (the user's exports before the server's own hints), then
        published declarations. A tool the server does not list is unknown whatever the map says.
        """
        if all(spec.name != name for spec in self.specs):
            return Effect.UNKNOWN, "the tool server lists no such tool: held"
        return self._effects.classify(name, dict(arguments or {}))

    def effect(self, name: str, arguments: Mapping[str, Any] | None = None) -> Effect:
        """The effect of a call (see `classify`)."""
        return self.classify(name, arguments)[0]

    async def call(self, use: ToolUse, *, key: str) -> ToolResult:
        """Call a tool once; `key` travels with the call, so that a server that keeps keys runs it at most once.

        A tool the server does not list, or arguments that are no JSON, are an error result, and nothing is sent.

        Raises
        ------
        ToolTimeout
            If no answer came within `timeout_s`.
        ToolServerGone
            If the server ended before it answered, or had ended before.
        """
        if not key:
            raise ValueError("a tool call needs an idempotency key")
        start_s = time.perf_counter()
        if all(spec.name != use.name for spec in self.specs):
            return _failed(str(unknown_name("tool", use.name, [s.name for s in self.specs])), start_s)
        if fault := unsendable(use.arguments):
            return _failed(f"{use.name}: {fault}", start_s)
        link = self._alive()
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await link.client.call_tool(
                    use.name,
                    dict(use.arguments),
                    read_timeout_seconds=self._timeout_s,
                    meta=cast(RequestParamsMeta, {KEY: key}),
                )
        except TimeoutError:
            raise self._timed_out(use.name, link) from None
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                raise self._timed_out(use.name, link) from None
            if error.code == CONNECTION_CLOSED:
                raise self._gone(link, f"while {use.name} was running") from None
            return _failed(f"{use.name}: {error.message}", start_s)
        except (RuntimeError, ValidationError) as error:
            return _failed(f"{use.name} answered what its own schema does not allow: {error}", start_s)
        return _result(answer, start_s)

    async def restart(self, after: ToolFailure | None = None) -> None:
        """Stop what is left of the server and start it again.

        With `after`, nothing is done where that failure's connection has already been replaced, so several tasks may
        ask at once.

        Raises
        ------
        InputError
            If the server comes back with other tools or other hints than before.
        ToolServerGone
            If it does not come back.
        """
        async with self._lock:
            if after is not None and after.connection != self._links:
                return
            await self._disconnect()
            await self._connect()

    async def _connect(self) -> None:
        self._links += 1
        try:
            link = await open_link(self._server, self._errlog, self._links)
        except OSError as error:
            raise InputError(f"cannot start the tool server {self._name!r}: {error.strerror or error}") from None
        except (MCPError, ValidationError) as error:
            raise self._gone(None, f"before it said what it offers ({error})") from None
        try:
            self._learn(link)
        except InputError:
            await link.close()
            raise
        self._link = link

    def _learn(self, link: Link) -> None:
        """Take in what the server offers; a server that comes back must offer the same."""
        specs = tuple(
            ToolSpec(name=t["name"], description=t.get("description", ""), parameters=t["inputSchema"])
            for t in link.tools
        )
        names = [spec.name for spec in specs]
        if not specs:
            raise InputError(f"the tool server {self._name!r} lists no tools")
        if len(set(names)) != len(names):
            raise InputError(f"the tool server {self._name!r} lists a name twice: {', '.join(sorted(names))}")
        effects = EffectMap(hints=tools_list_hints(link.tools)).extended(self._user_effects)
        offer = specs, effects, link.supports_keys
        if self.specs and offer != (self.specs, self._effects, self.supports_keys):
            raise InputError(f"the tool server {self._name!r} came back with other tools or other hints than before")
        self.specs, self._effects, self.supports_keys = offer

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    def _alive(self) -> Link:
        link = self._link
        if link is None:
            raise ToolServerGone(f"the tool server {self._name!r} is not connected", connection=self._links)
        if not link.alive:
            raise self._gone(link, "before this call")
        return link

    def _timed_out(self, name: str, link: Link) -> ToolTimeout:
        return ToolTimeout(f"{name} did not answer within {self._timeout_s:g} s", connection=link.number)

    def _gone(self, link: Link | None, when: str) -> ToolServerGone:
        if link is not None:
            link.gone = True
        last = last_words(self._errlog)
        said = f"; its last words: {last}" if last else ""
        number = self._links if link is None else link.number
        return ToolServerGone(f"the tool server {self._name!r} ended {when}{said}", connection=number)

    def _close_errlog(self) -> None:
        if self._errlog is not None:
            self._errlog.close()
            self._errlog = None


def _failed(text: str, start_s: float) -> ToolResult:
    return ToolResult(text=clipped(text), is_error=True, seconds=time.perf_counter() - start_s, replayed=None)


def _result(answer: CallToolResult, start_s: float) -> ToolResult:
    flag = (answer.meta or {}).get(REPLAYED)
    return ToolResult(
        text=result_text(answer),
        is_error=answer.is_error,
        seconds=time.perf_counter() - start_s,
        replayed=flag if isinstance(flag, bool) else None,
    )
