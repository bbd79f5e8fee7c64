"""Scenarios as files: strict reading with one-line errors, `--set`, the list of keys, bundled scenarios."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from hwprofiles.errors import InputError, ProfileError, nearest, unknown_name
from simulator import scenario as schema
from simulator import scenario_goals as goals
from simulator import scenario_world as world
from simulator.scenario import PARAMETERS, Scenario
from simulator.scenario_checks import check
from simulator.uncertain import Uncertain

_MAX_BYTES = 1_000_000
_SECTIONS = {
    "weak": schema.ModelSide,
    "strong": schema.ModelSide,
    "workload": schema.WorkloadSection,
    "protocol": schema.Protocol,
    "tools": world.Tools,
    "users": world.Users,
    "effects": schema.Effects,
    "link": world.LinkSection,
    "load": world.Load,
    "quality": goals.Quality,
    "objective": goals.Objective,
    "run": goals.Run,
}


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Scenario]:
    return TypeAdapter(Scenario)


def scenario_names() -> list[str]:
    """Names of the bundled scenarios."""
    folder = files("simulator") / "data" / "scenarios"
    return sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml"))


def load_scenario(name_or_path: str | Path, settings: Iterable[str] = (), calibration: Path | None = None) -> Scenario:
    """Read a scenario by bundled name or TOML path and apply `KEY=VALUE` settings; an empty VALUE unsets the key.

    Relative file names inside a scenario file are taken from the file's own folder.

    Raises
    ------
    ProfileError
        Unreadable, not UTF-8, not TOML, unknown or missing key, value out of range: one line that names the place.
    InputError
        No such scenario.
    """
    text, where, folder = _text(str(name_or_path))
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = "; a trace becomes a scenario with `specroof init --trace`" if text.lstrip()[:1] == "{" else ""
        raise ProfileError(f"{where}: not valid TOML: {error}{hint}") from None
    except RecursionError:
        raise ProfileError(f"{where}: nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits, a date that is none
        raise ProfileError(f"{where}: not valid TOML: {error}") from None
    if folder is not None:
        _anchor(document, folder)
    for setting in settings:
        key, value = parse_setting(setting)
        set_key(document, key, value if setting.partition("=")[2].strip() else None)
    if calibration is not None:
        if "calibration" in document.get("run", {}):
            raise InputError(f"--calibration {calibration} and run.calibration are two sources for one thing; give one")
        set_key(document, "run.calibration", str(calibration))
    return from_document(document, where)


def _text(name: str) -> tuple[str, str, Path | None]:
    if name in scenario_names():
        bundled = files("simulator") / "data" / "scenarios" / f"{name}.toml"
        return bundled.read_text(encoding="utf-8"), name, None
    path = Path(name)
    if path.suffix.lower() != ".toml" and not path.is_file():
        raise unknown_name("scenario", name, scenario_names())
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{name}: cannot be read: {error.strerror or error}") from None
    if len(raw) > _MAX_BYTES:
        raise ProfileError(f"{name}: {len(raw)} bytes; a scenario file has at most {_MAX_BYTES}")
    if not raw.strip():
        raise ProfileError(f"{name}: the file is empty")
    try:
        return raw.decode("utf-8"), name, path.parent
    except UnicodeDecodeError as error:
        raise ProfileError(f"{name}: not UTF-8 at byte {error.start}") from None


_FILES = (
    ("run", "calibration"),
    ("workload", "trace"),
    ("effects", "mcp_tools"),
    ("tools", "latency_file"),
    ("users", "gap_file"),
    ("load", "arrivals"),
    ("quality", "judgements"),
    *((r, k) for r in ("weak", "strong") for k in ("model", "hardware")),
)


def _anchor(document: dict[str, Any], folder: Path) -> None:
    """Make file names inside the scenario relative to its folder, where such a file exists."""
    tables = [(document.get(section), key) for section, key in _FILES]
    tools = document.get("tools")
    for section in ("by_effect", "by_tool"):
        found = tools.get(section) if isinstance(tools, dict) else None
        tables += [(t, "latency_file") for t in found.values()] if isinstance(found, dict) else []
    sides = [document.get(role) for role in ("weak", "strong")]
    tables += [(side.get("decode"), "draft_model") for side in sides if isinstance(side, dict)]
    for part, key in tables:
        value = part.get(key) if isinstance(part, dict) else None
        if isinstance(value, str) and not Path(value).is_absolute() and (folder / value).exists():
            part[key] = str(folder / value)  # type: ignore[index]  # part is a dict when value is a str


def parse_setting(setting: str) -> tuple[str, Any]:
    """Split `KEY=VALUE`; the value is TOML (number, bool, list, inline table) or else plain text."""
    key, mark, text = setting.partition("=")
    if not mark or not key.strip():
        raise InputError(f"--set {setting!r}: expected KEY=VALUE")
    try:
        parsed = tomllib.loads(f"v = {text.strip()}")
        value = parsed["v"] if set(parsed) == {"v"} else text
    except (ValueError, RecursionError):
        value = text.strip()
    return key.strip(), value


def set_key(document: dict[str, Any], key: str, value: Any) -> None:
    """Set a parameter or dotted key in a scenario document; a value of None unsets it."""
    dotted = PARAMETERS.get(key, key)
    known = [*all_keys(), *PARAMETERS]
    section = dotted.split(".")[0]
    if dotted not in known and not dotted.startswith("effects.map.") and section not in (*_SECTIONS, "title"):
        raise unknown_name("scenario key", key, known)
    if dotted not in known and not dotted.startswith(("effects.map.", *(f"{k}." for k in all_keys()))):
        raise unknown_name("scenario key", key, known)
    *path, last = dotted.split(".", 2 if dotted.startswith("effects.map.") else -1)
    tables = [document]
    for name in path:
        found = tables[-1].setdefault(name, {})
        if not isinstance(found, dict):
            raise InputError(f"{key}: {name} is not a table")
        tables.append(found)
    if value is not None:
        tables[-1][last] = value
        return
    tables[-1].pop(last, None)
    for name, outer, inner in zip(reversed(path), reversed(tables[:-1]), reversed(tables[1:]), strict=True):
        if not inner:  # a table without keys is no table, which matters for [link]
            del outer[name]


def from_document(document: Mapping[str, Any], where: str) -> Scenario:
    """Validate a document into a scenario; one line names the first fault."""
    try:
        scenario = _adapter().validate_python(document)
    except ValidationError as error:
        raise ProfileError(f"{where}: {_first(error)}") from None
    try:
        check(scenario)
    except InputError as error:
        raise ProfileError(f"{where}: {error}") from None
    return scenario


_PLAIN = {
    "tuple_type": "must be a list",
    "too_short": "must not be empty",
    "dict_type": "must be a table",
    "dataclass_type": "must be a table",
}
"""Faults whose messages name Python's types."""


def _first(error: ValidationError) -> str:
    """The first fault in one line: place, what is wrong, nearest key."""
    fault = error.errors(include_url=False)[0]
    place = ".".join(str(p) for p in fault["loc"] if p != "[key]" and not str(p).startswith("function-"))
    kind = fault["type"]
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        parent, _, key = place.rpartition(".")
        hint = nearest(key, (k.removeprefix(f"{parent}.") for k in all_keys() if k.startswith(parent)))
        return f"unknown key {place!r}" + (f"; did you mean {hint!r}?" if hint else "")
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return f"missing key {place!r}"
    message = fault["msg"].removeprefix("Value error, ")
    short = next((k for k, v in PARAMETERS.items() if v == place and not place.endswith(f".{k}")), None)
    place += f" ({short})" if short else ""
    shown = repr(fault["input"])
    if len(shown) > 80:
        shown = shown[:77] + "..."
    message = _PLAIN.get(kind, message.replace("Input should be", "must be"))
    return f"{place}: {message[0].lower()}{message[1:]}" + ("" if "got" in message else f", got {shown}")


def to_document(value: Any) -> Any:
    """A scenario (or part) as plain values for TOML and JSON: unset keys left out, exact bands as numbers."""
    if isinstance(value, Uncertain):
        if value.is_exact and value.source == "scenario":
            return value.value
        return {f.name: getattr(value, f.name) for f in fields(value)}
    if is_dataclass(value) and not isinstance(value, type):
        found = {f.name: to_document(getattr(value, f.name)) for f in fields(value)}
        return {k: v for k, v in found.items() if v is not None and v != {}}
    if isinstance(value, tuple):
        return [to_document(v) for v in value]
    if isinstance(value, dict):
        return {k: to_document(v) for k, v in value.items()}
    return value


@lru_cache(maxsize=1)
def all_keys() -> tuple[str, ...]:
    """Every dotted key of a scenario."""
    top = ["title", "strategies"]
    return (*top, *(f"{s}.{f.name}" for s, kind in _SECTIONS.items() for f in fields(kind)))


def scenario_keys() -> list[dict[str, Any]]:
    """Every key with default, unit, meaning, and the short parameter name that stands for it."""
    short = {v: k for k, v in PARAMETERS.items()}
    out = []
    for name, kind in (("", Scenario), *_SECTIONS.items()):
        hints = get_type_hints(kind)
        for f in fields(kind):
            key = f"{name}.{f.name}".lstrip(".")
            if name == "" and f.name in _SECTIONS:
                continue
            default = None if f.default is MISSING else to_document(f.default)
            required = f.default is MISSING and f.default_factory is MISSING
            out.append(
                {
                    "key": key,
                    "default": default,
                    "required": required,
                    "unit": f.metadata["unit"],
                    "tier": _tier(f.default),
                    "meaning": f.metadata["meaning"],
                    "parameter": short.get(key),
                    "type": _type_name(hints[f.name]),
                }
            )
    return out


def _tier(default: Any) -> str:
    return default.tier if isinstance(default, Uncertain) else "assumed"


def _type_name(hint: Any) -> str:
    text = str(hint)
    for plain, name in (
        ("Uncertain", "number or band"),
        ("bool", "true or false"),
        ("Prices", "table"),
        ("TokenDrafts", "table"),
        ("ApiLatency", "table"),
        ("RateLimits", "table"),
        ("dict", "table"),
    ):
        if plain in text:
            return name
    if "tuple" in text:
        return "list"
    if "Literal" in text or "str" in text:
        return "text"
    return "whole number" if "int" in text else "number"


def finite(value: float | None) -> float | None:
    """None in place of a number that JSON cannot carry."""
    return value if value is not None and math.isfinite(value) else None
