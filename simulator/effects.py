"""What a tool does to the world: the user's map first, then the tool list's own hints, then published declarations.

Precedence, best first:

1. the user's rule for these arguments (`"Bash(command=git log*)" = "read"`), 2. the user's judge of an argument
(`"run_sql(query)" = "sql"`, see `simulator.judges`), 3. the user's rule for the exact name, 4. the user's glob with
the most literal characters (equally literal: the strictest effect), 5. an MCP `tools/list` export (`readOnlyHint: true`
is a read, anything else may write; these are the server's own hints, nobody checks them), 6. published declarations
(tau2-bench domains, built-in tools of common harnesses, whose shell tools are judged by their command). A name that
none of them knows is `Effect.UNKNOWN`, which is held like a write.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files

from costmodel.trajectory import Effect, strictest
from hwprofiles.errors import InputError, unknown_name
from simulator.judges import JUDGES

_RULE = re.compile(r"(?P<name>[^()]+)\((?P<argument>[^()=]+)=(?P<glob>.*)\)", re.DOTALL)
_JUDGED = re.compile(r"(?P<name>[^()]+)\((?P<argument>[^()=]+)\)")
_MCP_NAME = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)")
_SHELL = re.compile(r"[;&|<>$`\n]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of a user's map: a tool name or glob, perhaps a condition on one argument, and the effect.

    With a `judge` the effect is what the judge makes of the argument (a name, or a dotted path into the arguments).
    """

    key: str
    name: str
    effect: Effect
    argument: str | None = None
    glob: str | None = None
    judge: str | None = None

    @property
    def value(self) -> str:
        """What the line says: an effect or a judge."""
        return self.effect.value if self.judge is None else self.judge

    def verdict(self, arguments: object) -> Effect:
        """The effect of a call that the rule speaks about."""
        if self.judge is None or self.argument is None:
            return self.effect
        return JUDGES[self.judge](argument(arguments, self.argument))

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
        if self.judge is not None:
            return arguments is not None
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
        `claude-code`, `codex`, `swe-agent`, ...: `declared_sets()`).
    """

    rules: tuple[Rule, ...] = ()
    hints: Mapping[str, tuple[Effect, str]] = field(default_factory=dict)
    declared: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Whether the map says anything."""
        return bool(self.rules or self.hints or self.declared)

    def classify(self, name: str, arguments: object = None, *, declared: str | None = None) -> tuple[Effect, str]:
        """The effect of a call and where that is known from.

        `declared` names the published set that goes with the trace. A name of the form `mcp__server__tool` is looked
        up whole and as `tool`. A glob on an argument never matches a value with a shell operator in it.
        """
        names = tuple(dict.fromkeys((name, bare_name(name))))
        hits = [r for r in self.rules if r.matches(names, arguments)]
        if hits:
            return _best(hits, arguments)
        for n in names:
            if n in self.hints:
                return self.hints[n]
        for set_name in (*self.declared, *((declared,) if declared else ())):
            tools, source = declared_tools(set_name)
            judges = declared_judges(set_name)
            for n in names:
                if n in tools:
                    return tools[n], f"declared: {source}"
                if n in judges:
                    judge, where = judges[n]
                    return JUDGES[judge](argument(arguments, where)), f"judged by its {where} ({judge}): {source}"
        return Effect.UNKNOWN, "not declared anywhere: held"

    def extended(self, other: EffectMap) -> EffectMap:
        """This map with `other`'s lines in front of its own."""
        return replace(
            self,
            rules=other.rules + self.rules,
            hints={**self.hints, **other.hints},
            declared=other.declared + self.declared,
        )


def bare_name(name: str) -> str:
    """A tool's own name: `tool` of `mcp__server__tool`, else the name itself."""
    found = _MCP_NAME.fullmatch(name)
    return found["tool"] if found else name


def argument(arguments: object, path: str) -> object:
    """The argument of that name, or at a dotted path; None where there is none."""
    found = arguments
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _best(hits: list[Rule], arguments: object) -> tuple[Effect, str]:
    def rank(rule: Rule) -> tuple[bool, bool, bool, int]:
        return rule.glob is not None, rule.judge is not None, not rule.wild(), rule.literal()

    top = max(rank(r) for r in hits)
    best = [r for r in hits if rank(r) == top]
    verdicts = [r.verdict(arguments) for r in best]
    effect = strictest(verdicts)
    return effect, f"your map: {best[verdicts.index(effect)].key!r}"


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


@functools.cache
def declared_judges(set_name: str) -> dict[str, tuple[str, str]]:
    """Tool name to (judge, argument) in a published set: tools whose calls differ."""
    found = _declarations().get(set_name, {}).get("judged", {})
    if not isinstance(found, dict):
        return {}
    return {name: (str(how).partition(":")[0], str(how).partition(":")[2]) for name, how in found.items()}


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
    """A map from `{"get_*": "read", "Bash(command=ls*)": "read", "run_sql(query)": "sql"}`.

    Raises
    ------
    InputError
        If a value is no effect or a key is empty or malformed.
    """
    rules = []
    for key, value in lines.items():
        place = f"{where}: {key!r}"
        judged = _JUDGED.fullmatch(key)
        if judged and isinstance(value, str) and value in JUDGES:
            name = judged["name"]
            rules.append(Rule(key=key, name=name, effect=Effect.UNKNOWN, argument=judged["argument"], judge=str(value)))
            continue
        if isinstance(value, str) and value in JUDGES:
            raise InputError(f'{place}: {value!r} judges an argument: write "NAME(ARGUMENT)" = "{value}"')
        effect = effect_of(value, place)
        conditional = _RULE.fullmatch(key)
        name = conditional["name"] if conditional else key
        if not name.strip() or (not conditional and "(" in key):
            raise InputError(
                f'{place}: expected a tool name, a glob, or NAME(ARGUMENT=GLOB) such as "Bash(command=ls*)"'
            )
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


_READS = ("get", "list", "search", "find", "check", "read", "fetch", "lookup", "look_up", "query", "describe", "show",
          "count", "view", "retrieve", "status")  # fmt: skip
_PURES = ("calculate", "think", "compute", "convert", "format", "validate")
_WRITES = ("create", "update", "delete", "remove", "set", "add", "send", "post", "put", "patch", "cancel", "book",
           "modify", "write", "edit", "exchange", "return", "refund", "transfer", "pay", "submit", "insert", "execute",
           "run", "reset", "enable", "disable", "move", "rename", "upload", "approve")  # fmt: skip


def propose(name: str) -> tuple[Effect, str]:
    """A suggestion from a tool's name alone, to be confirmed by a person; never applied by an importer."""
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", bare_name(name)).lower()
    words = [w for w in re.split(r"[^a-z]+", snake) if w]
    first = words[0] if words else ""
    for effect, verbs in ((Effect.WRITE, _WRITES), (Effect.PURE, _PURES), (Effect.READ, _READS)):
        if first in verbs:
            return effect, f"its name begins with {first!r}: please confirm"
    return Effect.UNKNOWN, "its name does not say: held until you do"
