"""Steps as JSON: the schema that holds a model to well-formed calls, their strict reader, and messages for templates.

A step is one JSON object: `{"name": tool, "arguments": {...}}` calls a tool, `{"reply": text}` speaks to the user.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hwprofiles.errors import InputError
from validate.chat import Message, ToolSpec, ToolUse

LARGEST_NUMBER = 999_999_999
MOST_ITEMS = 8
_STRING_LIMITS = ("enum", "const", "pattern", "format")
_BRANCHES = ("anyOf", "oneOf", "allOf", "prefixItems")


@dataclass(frozen=True, slots=True)
class StepText:
    """What a step's text turned out to be: calls, or a reply (no calls)."""

    reply: str
    tool_uses: tuple[ToolUse, ...]


def step_schema(tools: Sequence[ToolSpec], longest_text: int) -> dict[str, Any]:
    """The JSON schema of one step over `tools`, with every length bounded, so that any model's output comes to an end.

    Parameters
    ----------
    longest_text : int
        Characters of a string that the tool's own schema leaves open, and of a reply.

    Raises
    ------
    InputError
        A tool's parameters are no JSON schema of an object.

    Limits
    ------
    Numbers left open are held to 9 digits, arrays to 8 items, objects that list properties to those. Objects that
    list none stay open: such a call may be cut at the token limit.
    """
    definitions: dict[str, Any] = {}
    branches: list[dict[str, Any]] = []
    for tool in tools:
        if tool.parameters.get("type", "object") != "object":
            raise InputError(f"tool {tool.name!r}: parameters must be a schema of type object, got {tool.parameters!r}")
        own = {f"{group}/{name}": f"{tool.name}.{name}" for group, name in _definitions(tool.parameters)}
        bounds = _Bounds(longest_text, own)
        for group, name in _definitions(tool.parameters):
            definitions[own[f"{group}/{name}"]] = bounds.of(tool.parameters[group][name])
        arguments = {key: value for key, value in tool.parameters.items() if key not in ("$defs", "definitions")}
        arguments = {"type": "object", "properties": {}} | arguments
        branches.append(_closed({"name": {"enum": [tool.name]}, "arguments": bounds.of(arguments)}))
    branches.append(_closed({"reply": {"type": "string", "maxLength": longest_text}}))
    schema: dict[str, Any] = {"anyOf": branches}
    return schema | {"$defs": definitions} if definitions else schema


def parse_step(text: str, names: Iterable[str], call_id: str) -> StepText | None:
    """The step that `text` is, or None where it is not exactly one well-formed call or reply over `names`."""
    match read_json(text):
        case {"reply": str(reply), **rest} if not rest and reply.strip():
            return StepText(reply, ())
        case {"name": str(name), "arguments": dict(arguments), **rest} if not rest and name in set(names):
            return StepText("", (ToolUse(id=call_id, name=name, arguments=arguments),))
    return None


def read_json(text: str) -> Any:
    """The value a text holds, or None: NaN and infinity are none.

    Control characters inside strings are taken as they are: engines' grammars let them through.
    """
    try:
        return json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def chat_message(message: Message, *, as_text: bool) -> dict[str, Any]:
    """A message as chat templates and servers take it; arguments as a JSON text (servers) or a mapping (templates)."""
    out: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.tool_uses:
        out["tool_calls"] = [
            {
                "id": use.id,
                "type": "function",
                "function": {
                    "name": use.name,
                    "arguments": json.dumps(use.arguments, ensure_ascii=False) if as_text else dict(use.arguments),
                },
            }
            for use in message.tool_uses
        ]
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    return out


def tool_document(tool: ToolSpec, **more: Any) -> dict[str, Any]:
    """A tool as chat templates and servers take it; `more` joins the function's own keys (`strict`)."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters), **more}
    return {"type": "function", "function": function}


def _definitions(schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(group, name) for group in ("$defs", "definitions") for name in schema.get(group, {})]


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class _Bounds:
    longest_text: int
    definitions: Mapping[str, str]

    def of(self, schema: Any) -> Any:
        """A copy of `schema` in which lengths are bounded and references point to the common definitions."""
        if not isinstance(schema, Mapping):
            return schema
        out = dict(schema)
        if "$ref" in out:
            place = str(out["$ref"]).removeprefix("#/")
            out["$ref"] = f"#/$defs/{self.definitions.get(place, place)}"
        for key in _BRANCHES:
            if key in out:
                out[key] = [self.of(branch) for branch in out[key]]
        kinds = out.get("type", ())
        kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        if "string" in kinds and not any(key in out for key in _STRING_LIMITS):
            out["maxLength"] = max(
                int(out.get("minLength", 0)), min(int(out.get("maxLength", 10**9)), self.longest_text)
            )
        if {"integer", "number"} & set(kinds) and "enum" not in out and "const" not in out:
            if "exclusiveMinimum" not in out:
                out.setdefault("minimum", -LARGEST_NUMBER)
            if "exclusiveMaximum" not in out:
                out.setdefault("maximum", LARGEST_NUMBER)
        if "array" in kinds:
            out["items"] = self.of(out.get("items", {}))
            out["maxItems"] = max(int(out.get("minItems", 0)), min(int(out.get("maxItems", MOST_ITEMS)), MOST_ITEMS))
        if "properties" in out:
            out["properties"] = {name: self.of(value) for name, value in out["properties"].items()}
            out.setdefault("additionalProperties", False)
        return out
