"""Bundled model architectures by name, and any `config.json` by path."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from costmodel.arch import ModelArch
from costmodel.config_json import read_config
from hwprofiles.errors import ProfileError, unknown_name

MAX_CONFIG_BYTES = 16_000_000


@lru_cache(maxsize=1)
def model_names() -> tuple[str, ...]:
    """Full names of the bundled models, such as `Qwen/Qwen3.5-4B`, sorted."""
    folder = resources.files("costmodel") / "data" / "models"
    files = (entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    return tuple(sorted((f.removesuffix(".json").replace("--", "/", 1) for f in files), key=str.casefold))


def model(name_or_path: str) -> ModelArch:
    """A model's architecture.

    Parameters
    ----------
    name_or_path : str
        Full (`Qwen/Qwen3.5-4B`) or short (`Qwen3.5-4B`) name of a bundled model in any case, or the path of a
        `config.json` or of a folder that holds one. A bundled name wins over a path.

    Raises
    ------
    InputError
        Unknown name; the message has the nearest one.
    ProfileError
        A file that cannot be read, is no JSON, or misses a needed key.
    """
    wanted = name_or_path.casefold()
    for name in model_names():
        if wanted in (name.casefold(), name.split("/", 1)[1].casefold()):
            return _bundled(name)
    path = Path(name_or_path)
    if name_or_path.endswith(".json") or (name_or_path and _exists(path)):
        return _from_path(path, name_or_path)
    short = [] if "/" in name_or_path else [name.split("/", 1)[1] for name in model_names()]
    raise unknown_name("model", name_or_path, short or model_names())


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


@lru_cache(maxsize=64)
def _bundled(name: str) -> ModelArch:
    file = resources.files("costmodel") / "data" / "models" / (name.replace("/", "--") + ".json")
    document = _parsed(file.read_bytes(), name)
    return read_config(document, name, str(document.get("_source", "")))


def _from_path(path: Path, given: str) -> ModelArch:
    try:
        file = path / "config.json" if path.is_dir() else path
        if not file.exists():
            raise ProfileError(
                f"model config {given}: {'the folder holds no config.json' if path.is_dir() else 'no such file'}"
            )
        if file.stat().st_size > MAX_CONFIG_BYTES:
            raise ProfileError(f"model config {given}: larger than {MAX_CONFIG_BYTES} bytes, not a config.json")
        content = file.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, ProfileError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise ProfileError(f"model config {given}: cannot be read: {reason}") from None
    return read_config(_parsed(content, given), given, f"file {file.name}")


def _parsed(content: bytes, name: str) -> dict[str, Any]:
    """A JSON object from bytes; NaN and infinities are refused, as is a key given twice."""
    try:
        document = json.loads(content.decode("utf-8-sig"), parse_constant=_no_constant, object_pairs_hook=_unique_keys)
    except UnicodeDecodeError:
        raise ProfileError(f"model config {name}: not UTF-8 text") from None
    except RecursionError:
        raise ProfileError(f"model config {name}: nested too deeply") from None
    except ValueError as error:
        problem = "is empty" if not content.strip() else f"is not valid JSON: {error}"
        raise ProfileError(f"model config {name}: {problem}") from None
    if not isinstance(document, dict):
        raise ProfileError(f"model config {name}: expected a JSON object, got {type(document).__name__}")
    return document


def _no_constant(text: str) -> float:
    raise ValueError(f"the number {text} is not allowed")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(k for k in keys if keys.count(k) > 1)!r} is given twice")
    return document
