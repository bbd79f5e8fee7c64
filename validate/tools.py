"""Tools for a real run, reached through the Model Context Protocol (MCP) and nothing else.

A `ToolBox` is one connection to one tool server: what it offers, what each call does to the world, and the calls
themselves. It says apart what a runner must treat apart: a tool that answered with an error (`ToolResult.is_error`), a
tool that did not answer in time (`ToolTimeout`) and a server that is gone (`ToolServerGone`). After the last two nobody
knows whether the call happened; where the server keeps idempotency keys (`supports_keys`) the same key may be sent again.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from types import TracebackType
from typing import Any, Self

from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from pydantic import ValidationError

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError, unknown_name
from simulator.effects import EffectMap
from simulator.effects_file import tools_list_hints
from validate.chat import ToolSpec, ToolUse
from validate.wire import KEY, REPLAYED, clipped, last_words, leaf, result_text, stderr_file

CONNECT_TIMEOUT_S = 60.0
"""How long a server may take for each message of its greeting."""

_MAX_PAGES = 100


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
        As a model sees it.
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


@dataclass(slots=True, kw_only=True)
class _Connection:
    """One life of the server: the task that owns it, and whether it is known to have ended."""

    number: int
    client: Client
    task: asyncio.Task[None]
    stop: asyncio.Event
    gone: bool = False


class ToolBox:
    """The tools of one MCP server; an async context manager, made by `ToolBox.stdio` or `ToolBox.in_memory`.

    Calls, restarts and the end of the context may come from different tasks of one event loop: a task of its own owns
    each connection.
    """

    def __init__(
        self, server: StdioServerParameters | Server[Any], *, effects: EffectMap | None, timeout_s: float, name: str
    ) -> None:
        if not 0 < timeout_s < float("inf"):
            raise InputError(f"timeout_s must be a finite number > 0, got {timeout_s}")
        self._server = server
        self._user_effects = effects or EffectMap()
        self._timeout_s = timeout_s
        self._name = name
        self._effects = self._user_effects
        self._connection: _Connection | None = None
        self._count = 0
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
        if not command:
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

    @property
    def connection(self) -> int:
        """Number of the present connection: 1, 2 after the first restart, and so on."""
        return self._count

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

        Raises
        ------
        ToolTimeout
            If no answer came within `timeout_s`.
        ToolServerGone
            If the server ended before it answered, or had ended before.
        """
        if not key:
            raise ValueError("a tool call needs an idempotency key")
        if all(spec.name != use.name for spec in self.specs):
            text = str(unknown_name("tool", use.name, [s.name for s in self.specs]))
            return ToolResult(text=text, is_error=True, seconds=0.0, replayed=None)
        connection = self._alive()
        start_s = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await connection.client.call_tool(
                    use.name,
                    dict(use.arguments),
                    read_timeout_seconds=self._timeout_s,
                    meta={KEY: key},  # type: ignore[typeddict-unknown-key]
                )
        except TimeoutError:
            raise self._timed_out(use.name, connection) from None
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                raise self._timed_out(use.name, connection) from None
            if error.code == CONNECTION_CLOSED:
                raise self._gone(connection, f"while {use.name} was running") from None
            return self._result(f"{use.name}: {error.message}", True, start_s, None)
        except (RuntimeError, ValidationError) as error:  # the tool answered; the answer breaks its own schema
            return self._result(f"{use.name} answered what its schema does not allow: {error}", True, start_s, None)
        replayed = (answer.meta or {}).get(REPLAYED)
        flag = replayed if isinstance(replayed, bool) else None
        return self._result(result_text(answer), answer.is_error, start_s, flag)

    async def restart(self, after: ToolFailure | None = None) -> None:
        """Stop what is left of the server and start it again.

        With `after`, nothing is done where that failure's connection has already been replaced, so several tasks may
        ask at once.

        Raises
        ------
        InputError
            If the server comes back with other tools than before.
        ToolServerGone
            If it does not come back.
        """
        async with self._lock:
            if after is not None and after.connection != self._count:
                return
            await self._disconnect()
            await self._connect()

    async def _connect(self) -> None:
        self._count += 1
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Client] = loop.create_future()
        stop = asyncio.Event()
        task = asyncio.create_task(self._own(ready, stop), name=f"tool server {self._count}")
        try:
            client = await asyncio.shield(ready)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        except OSError as error:
            raise InputError(f"cannot start the tool server {self._name!r}: {error.strerror or error}") from None
        except (MCPError, ValidationError) as error:
            raise self._gone(None, f"before it said what it offers ({error})") from None
        self._connection = _Connection(number=self._count, client=client, task=task, stop=stop)

    async def _own(self, ready: asyncio.Future[Client], stop: asyncio.Event) -> None:
        """Owns one connection from its start to its end, in one task as the transport's scopes demand."""
        try:
            async with Client(self._transport(), read_timeout_seconds=CONNECT_TIMEOUT_S, cache=None) as client:
                await self._learn(client)
                if not ready.done():
                    ready.set_result(client)
                    await stop.wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(leaf(error))
        except asyncio.CancelledError:
            ready.cancel()
            raise

    def _transport(self) -> Any:
        if isinstance(self._server, StdioServerParameters) and self._errlog is not None:
            return stdio_client(self._server, errlog=self._errlog)
        return self._server

    async def _learn(self, client: Client) -> None:
        """Read what the server offers; a server that comes back must offer the same."""
        tools: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                break
        specs = tuple(
            ToolSpec(name=t["name"], description=t.get("description", ""), parameters=t["inputSchema"]) for t in tools
        )
        names = [spec.name for spec in specs]
        if not specs:
            raise InputError(f"the tool server {self._name!r} lists no tools")
        if len(set(names)) != len(names):
            raise InputError(f"the tool server {self._name!r} lists a name twice: {', '.join(sorted(names))}")
        effects = EffectMap(hints=tools_list_hints(tools)).extended(self._user_effects)
        if self.specs and (specs, effects) != (self.specs, self._effects):
            raise InputError(f"the tool server {self._name!r} came back with other tools or other hints than before")
        self.specs, self._effects = specs, effects
        offered = client.server_capabilities
        self.supports_keys = KEY in {**(offered.experimental or {}), **(offered.extensions or {})} or KEY in (
            client.instructions or ""
        )

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.stop.set()
            await asyncio.wait([connection.task])

    def _alive(self) -> _Connection:
        connection = self._connection
        if connection is None:
            raise ToolServerGone(f"the tool server {self._name!r} is not connected", connection=self._count)
        if connection.gone or connection.task.done():
            raise self._gone(connection, "before this call")
        return connection

    def _timed_out(self, name: str, connection: _Connection) -> ToolTimeout:
        return ToolTimeout(f"{name} did not answer within {self._timeout_s:g} s", connection=connection.number)

    def _gone(self, connection: _Connection | None, when: str) -> ToolServerGone:
        if connection is not None:
            connection.gone = True
        last = last_words(self._errlog)
        said = f"; its last words: {last}" if last else ""
        number = self._count if connection is None else connection.number
        return ToolServerGone(f"the tool server {self._name!r} ended {when}{said}", connection=number)

    @staticmethod
    def _result(text: str, is_error: bool, start_s: float, replayed: bool | None) -> ToolResult:
        return ToolResult(
            text=clipped(text), is_error=is_error, seconds=time.perf_counter() - start_s, replayed=replayed
        )

    def _close_errlog(self) -> None:
        if self._errlog is not None:
            self._errlog.close()
            self._errlog = None


def split_command(text: str) -> tuple[str, ...]:
    """The words of a command line, quotes as in a shell, nothing expanded.

    Raises
    ------
    InputError
        If a quote is not closed or there are no words.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"tool server command {text!r}: {str(error).lower()}") from None
    if not words:
        raise InputError("the tool server's command is empty")
    return words
