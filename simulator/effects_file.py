"""Effects maps in files: TOML maps, MCP `tools/list` exports."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from simulator.effects import EffectMap, declared_tools, effect_map

_MAX_FILE_BYTES = 16 * 2**20


def tools_list_hints(document: object, *, where: str = "tools/list") -> dict[str, tuple[Effect, str]]:
    """Effects from an MCP `tools/list` result: `annotations.readOnlyHint = true` is a read, anything else may write.

    `idempotentHint` and `destructiveHint: false` do not make a tool a read: it still changes something.

    Raises
    ------
    InputError
        If the document holds no list of tools.
    """
    while isinstance(document, dict) and "tools" not in document and isinstance(document.get("result"), dict):
        document = document["result"]
    tools = document.get("tools") if isinstance(document, dict) else document
    if not isinstance(tools, list):
        raise InputError(f'{where}: expected an MCP tools/list result with a list "tools"')
    hints: dict[str, tuple[Effect, str]] = {}
    for i, tool in enumerate(tools):
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name:
            raise InputError(f'{where}: tools[{i}] has no "name"')
        notes = tool.get("annotations")
        hint = notes.get("readOnlyHint") if isinstance(notes, dict) else None
        if hint is True:
            hints[name] = Effect.READ, "MCP tools/list: readOnlyHint is true (the server's own hint)"
        elif hint is False:
            hints[name] = Effect.WRITE, "MCP tools/list: readOnlyHint is false (the server's own hint)"
        else:
            hints[name] = Effect.UNKNOWN, "MCP tools/list: no readOnlyHint, so it may write: held"
    return hints


def read_effects(path: Path | str) -> EffectMap:
    """The effects map in a file.

    A TOML file holds `name = "effect"` lines (or `"name(argument)"` = `"http"`, `"sql"` or `"shell"`), at the top or
    under `[effects]`, and may name published sets with `declared = ["tau2:retail"]` and MCP tool lists with
    `tools_list = ["tools.json"]` (paths from the file's folder). A JSON file holds an MCP `tools/list` result, or an
    object of names and effects.

    Raises
    ------
    InputError
        If the file cannot be read or a line is wrong.
    """
    path = Path(path)
    where = path.name
    raw = _text(path)
    if path.suffix.lower() == ".json":
        document = _json(raw, where)
        if isinstance(document, dict) and document and all(isinstance(v, str) for v in document.values()):
            return effect_map(document, where=where)
        return EffectMap(hints=tools_list_hints(document, where=where))
    try:
        table: dict[str, object] = tomllib.loads(raw)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{where}: not valid TOML: {error}") from None
    return effects_from_table(table, where=where, folder=path.parent)


def effects_from_table(table: Mapping[str, object], *, where: str, folder: Path) -> EffectMap:
    """The effects map in a parsed TOML table (see `read_effects`)."""
    rest = dict(table)
    lines: dict[str, object] = {}
    if isinstance(rest.get("effects"), dict):
        lines.update(effect_lines(rest.pop("effects")))
    declared = _texts(rest.pop("declared"), f"{where}: declared") if isinstance(rest.get("declared"), list) else ()
    lists = _texts(rest.pop("tools_list"), f"{where}: tools_list") if isinstance(rest.get("tools_list"), list) else ()
    for key, value in rest.items():
        if key in lines:
            raise InputError(f"{where}: {key!r} is given twice, at the top and under [effects]")
        lines[key] = value
    for set_name in declared:
        declared_tools(set_name)
    hints: dict[str, tuple[Effect, str]] = {}
    for name in lists:
        hints.update(tools_list_hints(_json(_text(folder / name), name), where=name))
    return replace(effect_map(lines, where=where), hints=hints, declared=declared)


def effect_lines(value: object) -> dict[str, object]:
    """A table's entries with their keys as text."""
    return {str(k): v for k, v in value.items()} if isinstance(value, dict) else {}


def _texts(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise InputError(f"{where}: expected a list of texts")
    return tuple(value)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise InputError(f"{path.name}: larger than {_MAX_FILE_BYTES // 2**20} MiB")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path.name}: not UTF-8 text") from None


def _json(raw: str, where: str) -> object:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not valid JSON: {error}") from None
