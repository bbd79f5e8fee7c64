"""The entries of trace files, one at a time: lines, or the elements of the list that a JSON document is about.

A document larger than `load.MAX_WHOLE_BYTES` is streamed with ijson, so memory holds one entry and what stands beside
the list, whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from hwprofiles.errors import InputError
from simulator.traces.load import TraceFile
from simulator.traces.values import bad

MAX_ENTRY_BYTES = 24 * 2**20
MAX_DEPTH = 500
_MAX_HEAD_EVENTS = 1_000_000
_PEEK_EVENTS = 20_000


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry, where it stands, and the document around it without its list."""

    where: str
    value: object
    head: dict[str, object]


def entries(source: TraceFile, *lists: str) -> Iterator[Entry]:
    """The entries of a file.

    A line or document that is a list, or an object with one of the keys `lists`, stands for the elements of that list.

    Raises
    ------
    InputError
        If the file is not JSON, an entry is larger than `MAX_ENTRY_BYTES`, or what stands for a list is none.
    """
    if source.kind == "json" and not source.is_small():
        yield from _streamed(source, lists)
        return
    for where, value in source.records():
        yield from split(value, where, lists)


def split(value: object, where: str, lists: tuple[str, ...]) -> Iterator[Entry]:
    """The entries of one parsed line or document."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield Entry(f"{where}[{i}]", item, {})
        return
    if isinstance(value, dict):
        for key in lists:
            if key in value:
                found = value[key]
                if not isinstance(found, list):
                    raise bad(f"{where}: {key}", "a list", found)
                head = {k: v for k, v in value.items() if k != key}
                for i, item in enumerate(found):
                    yield Entry(f"{where}: {key}[{i}]", item, head)
                return
    yield Entry(where, value, {})


class _Watched:
    """Bytes on their way to the parser; says when one entry takes too many of them."""

    def __init__(self, stream: IO[bytes], where: str) -> None:
        self._stream = stream
        self._where = where
        self.since = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        found = self._stream.read(size)
        self.since += len(found)
        if self.since > MAX_ENTRY_BYTES:
            raise InputError(
                f"{self._where}: one entry takes more than {MAX_ENTRY_BYTES // 2**20} MiB; write one a line (JSONL)"
            )
        return found


def _streamed(source: TraceFile, lists: tuple[str, ...]) -> Iterator[Entry]:
    is_list, key, head = _survey(source, lists)
    if is_list:
        yield from _items(source, "item", "", {})
    elif key is None:
        keys = " or ".join(lists) or "a list"
        raise InputError(f"{source.name}: a document of this size must hold its entries in {keys}")
    else:
        yield from _items(source, f"{key}.item", f": {key}", head)


def _items(source: TraceFile, prefix: str, label: str, head: dict[str, object]) -> Iterator[Entry]:
    import ijson

    with source.open() as stream:
        watched = _Watched(stream, source.name)
        found = ijson.items(watched, prefix, use_float=True)
        i = 0
        while True:
            try:
                value = next(found)
            except StopIteration:
                return
            except (ijson.JSONError, ValueError, OverflowError) as error:
                raise _broken(source, error) from None
            watched.since = 0
            yield Entry(f"{source.name}{label}[{i}]", value, head)
            i += 1


def _broken(source: TraceFile, error: Exception) -> InputError:
    if isinstance(error, InputError):
        return error
    said = ascii(str(error).splitlines()[0] if str(error) else "")[1:-1][:120]
    return InputError(f"{source.name}: not valid JSON: {said}")


def _survey(source: TraceFile, lists: tuple[str, ...]) -> tuple[bool, str | None, dict[str, object]]:
    """Whether a large document is a list, else which of the lists it has and everything beside it.

    The whole file is gone through once, so that it is known not to be nested too deep before values are built.
    """
    import ijson

    builder, key, depth, built, skipped = ijson.ObjectBuilder(), None, 0, 0, False
    is_list: bool | None = None
    with source.open() as stream:
        try:
            for event, value in ijson.basic_parse(stream, use_float=True):
                if is_list is None:
                    is_list = event == "start_array"
                if event in ("start_map", "start_array"):
                    depth += 1
                    if depth > MAX_DEPTH:
                        raise InputError(f"{source.name}: nested too deep")
                elif event in ("end_map", "end_array"):
                    depth -= 1
                if depth == 1 and event == "map_key":
                    key = value if key is None and value in lists else key
                    skipped = value == key
                if is_list or (skipped and depth):
                    continue
                built += 1
                if built > _MAX_HEAD_EVENTS:
                    raise InputError(f"{source.name}: too much stands beside the entries of this large document")
                builder.event(event, value)
        except (ijson.JSONError, ValueError, OverflowError) as error:
            raise _broken(source, error) from None
    head: Any = getattr(builder, "value", {})
    return bool(is_list), key, head if isinstance(head, dict) else {}


def peek(source: TraceFile) -> object:
    """The value of a JSON file; of a large one what its beginning says, cut off somewhere."""
    if source.is_small():
        return source.whole()
    import ijson

    builder = ijson.ObjectBuilder()
    with source.open() as stream:
        try:
            for n, (event, value) in enumerate(ijson.basic_parse(stream, use_float=True)):
                builder.event(event, value)
                if n >= _PEEK_EVENTS:
                    break
        except (ijson.JSONError, ValueError, OverflowError) as error:
            raise _broken(source, error) from None
    return getattr(builder, "value", None)
