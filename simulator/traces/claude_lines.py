"""Lines of Claude Code sessions without their bulk: text becomes its length."""

from __future__ import annotations

import json

_LINE = ("type", "timestamp", "uuid", "parentUuid", "isSidechain", "agentId", "sessionId", "entrypoint", "isMeta",
         "isCompactSummary", "isApiErrorMessage")  # fmt: skip
_MESSAGE = ("id", "model", "stop_reason", "usage")
_BLOCK = ("type", "id", "name", "tool_use_id", "is_error")


def slim(line: dict[str, object]) -> dict[str, object]:
    """A line with only what the importer reads; what has the wrong shape stays, so that it is refused by name."""
    found = {k: line[k] for k in _LINE if k in line}
    if "sessionId" not in found and "session_id" in line:  # the Agent SDK's stream of the same messages
        found["sessionId"] = line["session_id"]
    if isinstance(line.get("parent_tool_use_id"), str):
        found["isSidechain"], found["agentId"] = True, line["parent_tool_use_id"]
    message = line.get("message")
    if not isinstance(message, dict):
        return {**found, "message": message}
    kept: dict[str, object] = {k: message[k] for k in _MESSAGE if k in message}
    content = message.get("content")
    if isinstance(content, list):
        kept["content"] = [_block(b) for b in content]
    elif isinstance(content, str):
        kept["content"] = _shown(content) if line.get("type") == "user" else [_block({"type": "text", "text": content})]
    else:
        kept["content"] = [] if content is None else content
    if kept.get("id") is None:
        kept["id"] = line.get("requestId") or line.get("uuid")
    return {**found, "message": kept}


def _shown(content: str) -> str:
    return "x" if content.strip() else ""


def _block(block: object) -> object:
    """A content block; a trimmed copy may carry the original length as `<key>_chars`, else it is measured."""
    if not isinstance(block, dict):
        return block
    found = {k: block[k] for k in _BLOCK if k in block}
    for key in ("text", "thinking"):
        if isinstance(block.get(key), str):
            found[key] = _shown(block[key])
            found[f"{key}_chars"] = block.get(f"{key}_chars", len(block[key]))
    if "input" in block and block.get("type") == "tool_use":
        given = block["input"]
        found["input"] = given
        measured = len(given) if isinstance(given, str) else len(json.dumps(given)) if given is not None else 0
        found["input_chars"] = block.get("input_chars", measured)
    return found
