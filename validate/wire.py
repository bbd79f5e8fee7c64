"""Small print of the tool protocol: names of our `_meta` keys, texts of results, a server's last words."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from io import TextIOWrapper
from typing import Any

from mcp_types import CallToolResult, TextContent

KEY = "specroof/idempotency-key"
"""In a call's `_meta`: its idempotency key. As an extension, an experimental capability or a word in a server's
instructions: it keeps these keys, so a call sent twice with one key runs once."""

REPLAYED = "specroof/replayed"
"""In a result's `_meta`: true where the server answered from its memory of the key and did nothing."""

MAX_RESULT_CHARS = 20_000
"""Longest result handed to a model; the rest is cut and the cut is said."""

_TAIL_BYTES = 2_000


def result_text(answer: CallToolResult) -> str:
    """A result as one text of at most `MAX_RESULT_CHARS`; what is no text is named, not shown."""
    parts = [part.text if isinstance(part, TextContent) else f"[{part.type} not shown]" for part in answer.content]
    if not parts and answer.structured_content is not None:
        parts = [json.dumps(answer.structured_content, ensure_ascii=False)]
    return clipped("\n".join(parts))


def clipped(text: str) -> str:
    """A text cut to `MAX_RESULT_CHARS`, with a last line that says so."""
    if len(text) <= MAX_RESULT_CHARS:
        return text
    return f"{text[:MAX_RESULT_CHARS]}\n[cut: {MAX_RESULT_CHARS} of {len(text)} characters shown]"


def unsendable(arguments: Mapping[str, Any]) -> str | None:
    """Why arguments cannot travel as JSON in UTF-8 (half a surrogate pair, NaN, no JSON value); None if they can."""
    try:
        json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return f"the arguments are no JSON: {error}"
    return None


def leaf(error: BaseException) -> BaseException:
    """The first error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def stderr_file() -> TextIOWrapper:
    """A nameless file that takes a server's stderr."""
    return tempfile.TemporaryFile("w+", encoding="utf-8")


def last_words(errlog: TextIOWrapper | None) -> str:
    """The last line a server that has ended wrote to its stderr; empty if none."""
    if errlog is None or errlog.closed:
        return ""
    raw: Any = errlog.buffer
    size = raw.seek(0, os.SEEK_END)
    raw.seek(max(0, size - _TAIL_BYTES))
    lines = raw.read().decode("utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
