"""What a tool does to the world: the user's map first, then the tool list's own hints, then published declarations.

Precedence, best first:

1. the user's rule for these arguments (`"Bash(command=git log*)"`), 2. the user's rule for the exact name,
3. the user's glob with the most literal characters (equally literal: the strictest effect), 4. an MCP `tools/list`
export (`readOnlyHint: true` is a read, anything else may write), 5. published declarations (tau2-bench domains, Claude
Code's built-in tools). A name that none of them knows is `Effect.UNKNOWN`, which is held like a write.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path

from costmodel.trajectory import Effect, strictest
from hwprofiles.errors import InputError, unknown_name

_RULE = re.compile(r"(?P<name>[^()]+)\((?P<argument>[^()=]+)=(?P<glob>.*)\)", re.DOTALL)
_MCP_NAME = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)")
_SHELL = re.compile(r"[;&|<>$`\n]")
_MAX_FILE_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of a user's map: a tool name or glob, perhaps a condition on one argument, and the effect."""

    key: str
    name: str
    effect: Effect
    argument: str | None = None
    glob: str | None = None

    def literal(self) -> int:
        """How many characters of the name are literal; more is more specific."""
        return sum(c not in "*?[]" for c in self.name)

    def wild(self) -> bool:
        """Whether the name is a glob."""
        return any(c in self.name for c in "*?[")

    def matches(self, names: Iterable[str], arguments: object) -> bool:
        """Whether the rule speaks about a call."""
        if not any(n == self.name or (self.wild() and fnmatch.fnmatchcase(n, self.name)) for n in names):
            return False
        if self.argument is None or self.glob is None:
            return self.argument is None
        value = arguments.get(self.argument) if isinstance(arguments, dict) else None
        if not isinstance(value, str):
            return False
        return value == self.glob or (not _SHELL.search(value) and fnmatch.fnmatchcase(value, self.glob))


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectMap:
    """Everything known about what tools do; `classify` answers for one call.

    Parameters
    ----------
    rules : tuple of Rule
        The user's own lines.
    hints : mapping
        Tool name to (effect, why) from MCP tool lists.
    declared : tuple of str
        Published sets to use whatever the trace's format (`tau2:retail`, `tau2:airline`, `tau2:telecom`, `tau2:mock`,
        `claude-code`).
    """

    rules: tuple[Rule, ...] = ()
    hints: Mapping[str, tuple[Effect, str]] = field(default_factory=dict)
    declared: tuple[str, ...] = ()

    def classify(self, name: str, arguments: object = None, *, declared: str | None = None) -> tuple[Effect, str]:
        """The effect of a call and where that is known from.

        `declared` names the published set that goes with the trace. A name of the form `mcp__server__tool` is looked
        up whole and as `tool`. A glob on an argument never matches a value with a shell operator in it.
        """
        bare = _MCP_NAME.fullmatch(name)
        names = (name, bare["tool"]) if bare else (name,)
        hits = [r for r in self.rules if r.matches(names, arguments)]
        if hits:
            return _best(hits)
        for n in names:
            if n in self.hints:
                return self.hints[n]
        for set_name in (*self.declared, *((declared,) if declared else ())):
            tools, source = declared_tools(set_name)
            for n in names:
                if n in tools:
                    return tools[n], f"declared: {source}"
        return Effect.UNKNOWN, "not declared anywhere: held"

    def extended(self, other: EffectMap) -> EffectMap:
        """This map with `other`'s lines in front of its own."""
        return replace(
            self,
            rules=other.rules + self.rules,
            hints={**self.hints, **other.hints},
            declared=other.declared + self.declared,
        )


def _best(hits: list[Rule]) -> tuple[Effect, str]:
    def rank(rule: Rule) -> tuple[bool, bool, int]:
        return rule.argument is not None, not rule.wild(), rule.literal()

    top = max(rank(r) for r in hits)
    best = [r for r in hits if rank(r) == top]
    effect = strictest([r.effect for r in best])
    return effect, f"your map: {next(r.key for r in best if r.effect == effect)!r}"


@functools.cache
def _declarations() -> dict[str, dict[str, object]]:
    raw = files("simulator").joinpath("data/tool_effects.toml").read_text(encoding="utf-8")
    return tomllib.loads(raw)


def declared_sets() -> tuple[str, ...]:
    """Names of the published sets of tool declarations."""
    return tuple(_declarations())


@functools.cache
def declared_tools(set_name: str) -> tuple[dict[str, Effect], str]:
    """Tool name to effect in a published set, and the set's source."""
    table = _declarations().get(set_name)
    if table is None:
        raise unknown_name("set of declared tools", set_name, declared_sets())
    found: dict[str, Effect] = {}
    for effect in (Effect.READ, Effect.WRITE, Effect.REPLY):
        names = table.get(effect.value, [])
        if isinstance(names, list):
            found.update(dict.fromkeys(names, effect))
    generic = table.get("generic", {})
    if isinstance(generic, dict):
        found.update({name: Effect(value) for name, value in generic.items()})
    return found, str(table["source"])


def effect_of(value: object, where: str) -> Effect:
    """The effect a user wrote.

    Raises
    ------
    InputError
        If the value is no effect.
    """
    if not isinstance(value, str):
        raise InputError(f"{where}: expected one of {', '.join(Effect)}, found {ascii(value)[:60]}")
    try:
        return Effect(value)
    except ValueError:
        raise InputError(f"{where}: {unknown_name('effect', value, [e.value for e in Effect])}") from None


def effect_map(lines: Mapping[str, object], *, where: str = "effects") -> EffectMap:
    """A map from `{"get_*": "read", "update_order": "write", "Bash(command=ls*)": "read"}`.

    Raises
    ------
    InputError
        If a value is no effect or a key is empty or malformed.
    """
    rules = []
    for key, value in lines.items():
        place = f"{where}: {key!r}"
        effect = effect_of(value, place)
        conditional = _RULE.fullmatch(key)
        name = conditional["name"] if conditional else key
        if not name.strip() or (not conditional and "(" in key):
            raise InputError(f'{place}: expected a tool name, a glob, or NAME(ARGUMENT=GLOB) such as "Bash(command=ls*)"')
        rules.append(
            Rule(
                key=key,
                name=name,
                effect=effect,
                argument=conditional["argument"] if conditional else None,
                glob=conditional["glob"] if conditional else None,
            )
        )
    return EffectMap(rules=tuple(rules))


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
            hints[name] = Effect.READ, "MCP tools/list: readOnlyHint is true"
        elif hint is False:
            hints[name] = Effect.WRITE, "MCP tools/list: readOnlyHint is false"
        else:
            hints[name] = Effect.UNKNOWN, "MCP tools/list: no readOnlyHint, so it may write: held"
    return hints


def read_effects(path: Path | str) -> EffectMap:
    """The effects map in a file.

    A TOML file holds `name = "effect"` lines, at the top or under `[effects]`, and may name published sets with
    `declared = ["tau2:retail"]` and MCP tool lists with `tools_list = ["tools.json"]` (paths from the file's folder). A
    JSON file holds an MCP `tools/list` result, or an object of names and effects.

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


_READS = ("get", "list", "search", "find", "check", "read", "fetch", "lookup", "look_up", "query", "describe", "show",
          "count", "view", "retrieve", "status")  # fmt: skip
_PURES = ("calculate", "think", "compute", "convert", "format", "validate")
_WRITES = ("create", "update", "delete", "remove", "set", "add", "send", "post", "put", "patch", "cancel", "book",
           "modify", "write", "edit", "exchange", "return", "refund", "transfer", "pay", "submit", "insert", "execute",
           "run", "reset", "enable", "disable", "move", "rename", "upload", "approve")  # fmt: skip


def propose(name: str) -> tuple[Effect, str]:
    """A suggestion from a tool's name alone, to be confirmed by a person; never applied by an importer."""
    bare = _MCP_NAME.fullmatch(name)
    words = [w for w in re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", bare["tool"] if bare else name).lower()) if w]
    first = words[0] if words else ""
    for effect, verbs in ((Effect.WRITE, _WRITES), (Effect.PURE, _PURES), (Effect.READ, _READS)):
        if first in verbs:
            return effect, f"its name begins with {first!r}: please confirm"
    return Effect.UNKNOWN, "its name does not say: held until you do"
