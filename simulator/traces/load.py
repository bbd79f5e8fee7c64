"""Reading trace files: size limits, UTF-8, one JSON document or JSON Lines; one clear error for everything else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hwprofiles.errors import InputError

MAX_JSON_BYTES = 256 * 2**20
MAX_JSONL_BYTES = 2 * 2**30
MAX_LINE_BYTES = 64 * 2**20
SUFFIXES = (".json", ".jsonl", ".ndjson", ".parquet")


def _constant(name: str) -> NoReturn:
    raise InputError(f"{name} is not a number that JSON allows")


def parse(raw: str, where: str) -> object:
    """The value of a JSON text.

    Raises
    ------
    InputError
        If the text is not JSON, holds NaN or Infinity, or is nested too deep.
    """
    try:
        return json.loads(raw, parse_constant=_constant)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deep") from None
    except ValueError as error:
        raise InputError(f"{where}: not valid JSON: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """One file of a trace; `lines` says that it is JSON Lines."""

    path: Path
    lines: bool

    @property
    def name(self) -> str:
        """How messages call the file."""
        return self.path.name

    @property
    def stem(self) -> str:
        """The file's name without its last suffix."""
        return self.path.stem

    def records(self) -> Iterator[tuple[str, object]]:
        """(place, value) of the file's documents: one for JSON, one per line for JSON Lines."""
        if not self.lines:
            yield self.name, parse(_whole(self.path), self.name)
            return
        for number, line in _numbered(self.path):
            where = f"{self.name}:{number}"
            yield where, parse(line, where)

    def sample(self) -> object:
        """The whole document of a JSON file, the first line's value of JSON Lines."""
        return next(iter(self.records()))[1]


def open_files(paths: Sequence[Path]) -> list[TraceFile]:
    """The files behind paths; a folder stands for the trace files anywhere below it, in the order of their names.

    Raises
    ------
    InputError
        If a path does not exist, a folder holds no trace file, or a file is empty or too large.
    """
    found: list[TraceFile] = []
    for path in paths:
        try:
            if path.is_dir():
                inside = sorted(p for p in path.rglob("*.jsonl") if p.is_file())
                inside = inside or sorted(p for p in path.rglob("*.json") if p.is_file())
                if not inside:
                    raise InputError(f"{path}: the folder holds no .jsonl or .json file")
                found.extend(_open(p) for p in inside)
            elif path.exists():
                found.append(_open(path))
            else:
                raise InputError(f"{path}: no such file or folder")
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not found:
        raise InputError("no trace file given")
    resolved = [f.path.resolve() for f in found]
    for file, target in zip(found, resolved, strict=True):
        if resolved.count(target) > 1:
            raise InputError(f"{file.path}: given twice")
    return found


def _open(path: Path) -> TraceFile:
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"{path.name}: the file is empty")
    if path.suffix.lower() == ".parquet":
        return TraceFile(path=path, lines=False)
    lines = _is_lines(path)
    limit = MAX_JSONL_BYTES if lines else MAX_JSON_BYTES
    if size > limit:
        kind = "JSON Lines" if lines else "JSON"
        raise InputError(f"{path.name}: {size / 2**20:.0f} MiB; {kind} files may have up to {limit / 2**20:.0f} MiB")
    return TraceFile(path=path, lines=lines)


def _is_lines(path: Path) -> bool:
    """Whether the file is JSON Lines: by its suffix, else the first line is a whole object and more follows it."""
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return True
    first, more = None, False
    for _, line in _numbered(path):
        if first is not None:
            more = True
            break
        first = line
        if not first.startswith("{") or not first.endswith("}"):
            return False
    if first is None or not more:
        return False
    try:
        parse(first, path.name)
    except InputError:
        return False
    return True


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, line) of the lines that are not blank."""
    some = False
    with path.open("rb") as stream:
        number = 0
        while chunk := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(chunk) > MAX_LINE_BYTES:
                raise InputError(f"{path.name}:{number}: the line is longer than {MAX_LINE_BYTES // 2**20} MiB")
            line = _decode(chunk, f"{path.name}:{number}").strip()
            if line:
                some = True
                yield number, line
    if not some:
        raise InputError(f"{path.name}: the file is empty")


def _whole(path: Path) -> str:
    raw = _decode(path.read_bytes(), path.name)
    if not raw.strip():
        raise InputError(f"{path.name}: the file is empty")
    return raw


def _decode(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text (byte {error.start})") from None
