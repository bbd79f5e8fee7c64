"""One life of a tool server: connected, asked what it offers, and closed again."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass
from io import TextIOWrapper
from typing import Any

from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.server import Server

from hwprofiles.errors import InputError
from validate.wire import KEY, leaf

CONNECT_TIMEOUT_S = 60.0
"""How long a server may take for each message of its greeting."""

_MAX_PAGES = 100


@dataclass(slots=True, kw_only=True)
class Link:
    """A connection and the task that owns it; `gone` once it is known to have ended.

    Parameters
    ----------
    number : int
        1 for a tool box's first connection, 2 after its first restart.
    tools : list of dict
        The server's tool list as it stands on the wire.
    supports_keys : bool
        Whether the server says that it keeps idempotency keys.
    """

    number: int
    client: Client
    tools: list[dict[str, Any]]
    supports_keys: bool
    gone: bool = False
    _task: asyncio.Task[None]
    _stop: asyncio.Event

    @property
    def alive(self) -> bool:
        """Whether a call can be sent, as far as is known."""
        return not (self.gone or self._task.done())

    async def close(self) -> None:
        """End the connection, and the server with it."""
        self._stop.set()
        await asyncio.wait([self._task])


async def open_link(server: StdioServerParameters | Server[Any], errlog: TextIOWrapper | None, number: int) -> Link:
    """Connect to a server; its stderr goes to `errlog`.

    The transport's cancel scopes must be left by the task that entered them, so a task of its own owns the connection;
    any task may then call and close.

    Raises
    ------
    OSError
        If the command cannot be started.
    MCPError, pydantic.ValidationError
        If the server ends or talks nonsense before it has said what it offers.
    """
    ready: asyncio.Future[tuple[Client, list[dict[str, Any]]]] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    task = asyncio.create_task(_own(server, errlog, ready, stop), name=f"tool server {number}")
    try:
        client, tools = await asyncio.shield(ready)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
    offered = client.server_capabilities
    keys = {*(offered.experimental or {}), *(offered.extensions or {})}
    supports_keys = KEY in keys or KEY in (client.instructions or "")
    return Link(number=number, client=client, tools=tools, supports_keys=supports_keys, _task=task, _stop=stop)


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


async def _own(
    server: StdioServerParameters | Server[Any],
    errlog: TextIOWrapper | None,
    ready: asyncio.Future[tuple[Client, list[dict[str, Any]]]],
    stop: asyncio.Event,
) -> None:
    """Owns one connection from its start to its end."""
    target: Any = server
    if isinstance(server, StdioServerParameters) and errlog is not None:
        target = stdio_client(server, errlog=errlog)
    try:
        async with Client(target, read_timeout_seconds=CONNECT_TIMEOUT_S, cache=None) as client:
            ready.set_result((client, await _all_tools(client)))
            await stop.wait()
    except Exception as error:
        if not ready.done():
            ready.set_exception(leaf(error))
    except asyncio.CancelledError:
        ready.cancel()
        raise


async def _all_tools(client: Client) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools
