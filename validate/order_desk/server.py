"""The desk as an MCP server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from validate.order_desk.catalogue import TOOLS
from validate.order_desk.desk import Desk, Reply
from validate.order_desk.faults import Fault, Faults, exit_now, lose_connection
from validate.wire import KEY, REPLAYED

_ABOUT = f"The order desk of a small shop. It keeps idempotency keys: _meta[{KEY!r}] of a call."


def desk_server(desk: Desk, faults: Faults | None = None, *, die: Callable[[], None] = lose_connection) -> Server[Any]:
    """An MCP server for an open desk; `die` is how a crash looks (in this process: a closed connection)."""
    at = faults.at if faults else {}

    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=_tools())

    async def call_tool(_: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        key = (params.meta or {}).get(KEY)
        key = key if isinstance(key, str) else None
        arguments = params.arguments or {}
        fault = at.get(desk.arrived()) if at else None
        if fault is Fault.ERROR:
            return _answer(desk.fail(params.name, arguments, key, f"{params.name}: try again later"))
        if fault is Fault.HANG_BEFORE:
            await anyio.sleep_forever()
        before_commit = die if fault is Fault.CRASH_BEFORE else _nothing
        reply = desk.call(params.name, arguments, key, before_commit=before_commit)
        if fault is Fault.CRASH_AFTER:
            die()
        if fault is Fault.HANG_AFTER:
            await anyio.sleep_forever()
        return _answer(reply)

    server: Server[Any] = Server(
        "order-desk", version="1", instructions=_ABOUT, on_list_tools=list_tools, on_call_tool=call_tool
    )
    server.extensions = {KEY: {}}
    return server


async def serve_stdio(desk: Desk, faults: Faults) -> None:
    """Serve one client over stdin and stdout until it hangs up; a crash ends the process."""
    server = desk_server(desk, faults, die=exit_now)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def desk_command(database: Path | str, faults: Faults | None = None) -> tuple[str, ...]:
    """The command that starts a desk over stdio with this Python."""
    faults = faults or Faults()
    words = [sys.executable, "-m", "validate.order_desk", "--database", str(database)]
    for number, fault in sorted(faults.at.items()):
        words += [f"--{fault.value.replace('_', '-')}", str(number)]
    if faults.max_pages is not None:
        words += ["--max-pages", str(faults.max_pages)]
    return tuple(words)


def _tools() -> list[Tool]:
    return [
        Tool(
            name=tool.name,
            description=tool.about,
            input_schema=tool.schema(),
            annotations=ToolAnnotations.model_validate(dict(tool.hints)) if tool.hints else None,
        )
        for tool in TOOLS.values()
    ]


def _answer(reply: Reply) -> CallToolResult:
    content = TextContent(type="text", text=reply.text)
    return CallToolResult(content=[content], is_error=reply.is_error, _meta={REPLAYED: reply.replayed})


def _nothing() -> None:
    pass
