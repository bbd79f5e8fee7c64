"""Files handed to the app: decoded with limits, read by the product's own strict readers in a temporary folder."""

from __future__ import annotations

import base64
import binascii
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from costmodel.models import model_names
from dashboards.shelf import Handed, Shelf
from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.scenario import Scenario
from simulator.scenario_file import from_document, load_scenario, to_document
from simulator.workloads import workload_names

MOST_BYTES = 8_000_000
_TRACES = (".json", ".jsonl", ".parquet")
_FILES = (
    ("run", "calibration"),
    ("effects", "mcp_tools"),
    ("tools", "latency_file"),
    ("users", "gap_file"),
    ("load", "arrivals"),
    ("quality", "judgements"),
)
"""Keys that may name a file."""


def take(contents: str, name: str, shelf: Shelf, base: Scenario) -> str:
    """Put an uploaded scenario (TOML), or `base` with an uploaded trace as its workload, on the shelf.

    Returns
    -------
    str
        The key to find it by.

    Raises
    ------
    InputError
        Too large, of another kind, wrong in itself, or a scenario that names files of this machine.
    """
    label = PurePosixPath(name.replace("\\", "/")).name[:80] or "upload"
    suffix = Path(label).suffix.lower()
    if suffix not in (".toml", *_TRACES):
        raise InputError(f"{label}: a scenario is a .toml file, a trace one of {', '.join(_TRACES)}")
    content = _decoded(contents, label)
    path = shelf.folder / f"{secrets.token_hex(8)}{suffix}"
    path.write_bytes(content)
    try:
        if suffix == ".toml":
            _refuse_files(_document(content, label), label)
            handed = Handed(label, load_scenario(path))
        else:
            handed = Handed(label, around(base, path), label)
        prepare(handed.scenario)
    except InputError as error:
        path.unlink(missing_ok=True)
        raise InputError(str(error).replace(str(path), label).replace(path.name, label)) from None
    return shelf.hand(handed)


def around(base: Scenario, trace: Path) -> Scenario:
    """`base` with a trace in the place of its workload."""
    document = to_document(base)
    document["title"] = f"{base.title}, own trace"[:200]
    document["workload"] = {"trace": str(trace)}
    return from_document(document, "scenario")


def _decoded(contents: str, label: str) -> bytes:
    text = contents.partition(",")[2]
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InputError(f"{label}: arrived damaged; upload it again") from None
    if len(content) > MOST_BYTES:
        raise InputError(
            f"{label}: at most {MOST_BYTES // 1_000_000} MB can be uploaded; use the command line for more"
        )
    return content


def _document(content: bytes, label: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(content.decode("utf-8"))
    except RecursionError:
        raise InputError(f"{label}: nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{label}: not valid TOML: {error}") from None


def _refuse_files(document: Mapping[str, Any], label: str) -> None:
    """Only bundled things may be named: a file name would be one of this machine, not of who uploads."""
    for section, key in _FILES:
        if key in _table(document, section):
            _no_file(f"{section}.{key}", label)
    work = _table(document, "workload")
    for key in ("trace", "law"):
        if key in work and work[key] not in workload_names():
            _no_file(f"workload.{key}", label)
    for role in ("weak", "strong"):
        side = _table(document, role)
        if "model" in side and not _is_model(side["model"]):
            _no_file(f"{role}.model", label)
        if str(side.get("hardware", "")).casefold().endswith(".toml"):
            _no_file(f"{role}.hardware", label)
        draft = _table(side, "decode").get("draft_model")
        if draft is not None and not _is_model(draft):
            _no_file(f"{role}.decode.draft_model", label)
    for kind in ("by_effect", "by_tool"):
        for tool, own in _table(_table(document, "tools"), kind).items():
            if isinstance(own, Mapping) and "latency_file" in own:
                _no_file(f"tools.{kind}.{tool}.latency_file", label)


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, Mapping) else {}


def _is_model(name: object) -> bool:
    text = str(name).casefold()
    return any(text in (known.casefold(), known.split("/", 1)[1].casefold()) for known in model_names())


def _no_file(place: str, label: str) -> None:
    raise InputError(f"{label}: {place} names nothing bundled; files of this machine are out of reach for an upload")
