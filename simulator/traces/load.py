"""Trace files: their kinds, size limits, gzip, UTF-8, lines one at a time; one clear error for everything else."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn, cast

from hwprofiles.errors import InputError
from simulator.traces.zipped import ZSTD, opened

MAX_WHOLE_BYTES = 16 * 2**20
"""A JSON document up to this size is parsed at once; a larger one is streamed entry by entry. Parsed JSON can take 35
times its size (objects with one entry), so this and the limits of lines and entries keep an import under a gigabyte."""
MAX_JSON_BYTES = 4 * 2**30
MAX_JSONL_BYTES = 64 * 2**30
MAX_LINE_BYTES = 24 * 2**20
MAX_RATIO = 200
"""A compressed file may unpack to this many times its size (plus `MAX_WHOLE_BYTES`): recorded traces reach 10 to 40."""
_LINE_SUFFIXES = (".jsonl", ".ndjson")
_FOLDER_PATTERNS = (
    ("*.jsonl", "*.ndjson", "*.jsonl.gz"),
    ("*.json", "*.json.gz"),
    ("*.traj",),
    ("*.eval",),
    ("*.csv",),
)


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
    """One file of a trace; `kind` is `json`, `lines`, `csv`, `zip` or `parquet`, `packed` says gzip.

    `member` is a file inside the zip at `path`.
    """

    path: Path
    kind: str = "json"
    packed: bool = False
    member: str | None = None

    @property
    def name(self) -> str:
        """How messages call the file."""
        return self.path.name if self.member is None else f"{self.path.name}: {self.member}"

    @property
    def stem(self) -> str:
        """The file's name without its suffixes."""
        return Path(self.path.stem).stem if self.packed else self.path.stem

    @property
    def lines(self) -> bool:
        """Whether the file is JSON Lines."""
        return self.kind == "lines"

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The file's bytes, unpacked."""
        if self.member is not None:
            with opened(self.path, self.member) as (inside, info):
                if info.file_size > MAX_WHOLE_BYTES + MAX_RATIO * info.compress_size:
                    raise InputError(f"{self.name}: unpacks to more than {MAX_RATIO} times its size")
                yield _Unpacked(inside, self) if info.compress_type == ZSTD else inside
            return
        with self.path.open("rb") as stream:
            if self.packed:
                yield _Unpacked(cast("IO[bytes]", gzip.GzipFile(fileobj=stream)), self)
            else:
                yield stream

    def is_small(self) -> bool:
        """Whether the unpacked file is at most `MAX_WHOLE_BYTES`."""
        if not self.packed and self.member is None:
            return self.path.stat().st_size <= MAX_WHOLE_BYTES
        with self.open() as stream:
            return len(stream.read(MAX_WHOLE_BYTES + 1)) <= MAX_WHOLE_BYTES

    def whole(self) -> object:
        """The value of a JSON file that is small enough to be parsed at once."""
        with self.open() as stream:
            raw = stream.read(MAX_WHOLE_BYTES + 1)
        if len(raw) > MAX_WHOLE_BYTES:
            raise InputError(f"{self.name}: more than {MAX_WHOLE_BYTES // 2**20} MiB in one JSON document of this kind")
        text = _decode(raw, self.name)
        if not text.strip():
            raise InputError(f"{self.name}: the file is empty")
        return parse(text, self.name)

    def numbered(self) -> Iterator[tuple[int, str]]:
        """(line number, line) of the lines that are not blank."""
        some = False
        with self.open() as stream:
            number = 0
            while chunk := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(chunk) > MAX_LINE_BYTES:
                    raise InputError(f"{self.name}:{number}: the line is longer than {MAX_LINE_BYTES // 2**20} MiB")
                line = _decode(chunk, f"{self.name}:{number}").strip()
                if line:
                    some = True
                    yield number, line
        if not some:
            raise InputError(f"{self.name}: the file is empty")

    def records(self) -> Iterator[tuple[str, object]]:
        """(place, value) of each line of JSON Lines, each row of CSV, or the one document of JSON."""
        if self.kind == "lines":
            for number, line in self.numbered():
                where = f"{self.name}:{number}"
                yield where, parse(line, where)
        elif self.kind == "csv":
            yield from self._rows()
        else:
            yield self.name, self.whole()

    def _rows(self) -> Iterator[tuple[str, object]]:
        lines = ((number, line) for number, line in self.numbered())
        at = 0

        def texts() -> Iterator[str]:
            nonlocal at
            for number, line in lines:
                at = number
                yield line

        reader = csv.reader(texts(), strict=True)
        header: list[str] | None = None
        try:
            for row in reader:
                if header is None:
                    header = [h.strip() for h in row]
                elif len(row) != len(header):
                    raise InputError(f"{self.name}:{at}: {len(row)} values for {len(header)} columns")
                else:
                    yield f"{self.name}:{at}", dict(zip(header, row, strict=True))
        except csv.Error as error:
            raise InputError(f"{self.name}:{at}: not valid CSV: {error}") from None

    def header(self) -> list[str]:
        """The column names of a CSV file."""
        _, first = next(self.numbered())
        try:
            return [h.strip() for h in next(csv.reader(io.StringIO(first)))]
        except (csv.Error, StopIteration):
            return []


class _Unpacked(io.BufferedReader):
    """Unpacked bytes that stop being read where they grow out of all proportion to the packed ones."""

    def __init__(self, packed: IO[bytes], source: TraceFile) -> None:
        super().__init__(_Bounded(packed, source), buffer_size=2**16)


class _Bounded(io.RawIOBase):
    def __init__(self, packed: IO[bytes], source: TraceFile) -> None:
        self._packed = packed
        self._name = source.name
        self._method = "gzip" if source.member is None else "zstd"
        self._left = MAX_WHOLE_BYTES + MAX_RATIO * source.path.stat().st_size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        try:
            found = self._packed.read(len(view))
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{self._name}: not a whole {self._method} file: {error}") from None
        self._left -= len(found)
        if self._left < 0:
            raise InputError(f"{self._name}: unpacks to more than {MAX_RATIO} times its size")
        view[: len(found)] = found
        return len(found)


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
                found.extend(_open(p) for p in _inside(path))
            elif path.exists():
                found.append(_open(path))
            else:
                raise InputError(f"{path}: no such file or folder")
        except (OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not found:
        raise InputError("no trace file given")
    resolved = [f.path.resolve() for f in found]
    seen: set[Path] = set()
    for file, target in zip(found, resolved, strict=True):
        if target in seen:
            raise InputError(f"{file.path}: given twice")
        seen.add(target)
    return found


def _inside(folder: Path) -> list[Path]:
    for patterns in _FOLDER_PATTERNS:
        if inside := sorted({p for pattern in patterns for p in folder.rglob(pattern) if p.is_file()}):
            return inside
    raise InputError(f"{folder}: the folder holds no .jsonl or .json file")


def _open(path: Path) -> TraceFile:
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"{path.name}: the file is empty")
    with path.open("rb") as stream:
        start = stream.read(4)
    packed = start.startswith(b"\x1f\x8b")
    suffix = Path(path.stem if packed else path.name).suffix.lower()
    if suffix == ".parquet" or start == b"PAR1":
        return TraceFile(path=path, kind="parquet")
    if zipfile.is_zipfile(path) and start.startswith(b"PK"):
        return TraceFile(path=path, kind="zip")
    if suffix == ".csv":
        kind = "csv"
    elif suffix in _LINE_SUFFIXES or _is_lines(TraceFile(path=path, packed=packed)):
        kind = "lines"
    else:
        kind = "json"
    limit = MAX_JSON_BYTES if kind == "json" else MAX_JSONL_BYTES
    if size > limit:
        named = {"lines": "JSON Lines", "csv": "CSV", "json": "JSON"}[kind]
        raise InputError(f"{path.name}: {size / 2**20:.0f} MiB; {named} files may have up to {limit / 2**20:.0f} MiB")
    return TraceFile(path=path, kind=kind, packed=packed)


def _is_lines(file: TraceFile) -> bool:
    """Whether a file of any name is JSON Lines: its first line is a whole object and more follows it."""
    first, more = None, False
    try:
        for _, line in file.numbered():
            if first is not None:
                more = True
                break
            first = line
            if not first.startswith("{") or not first.endswith("}"):
                return False
        if first is None or not more:
            return False
        parse(first, file.name)
    except InputError:
        return False
    return True


def _decode(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text (byte {error.start})") from None
