"""Files inside a zip archive, those packed with zstd included, as Inspect AI packs its logs.

The standard library reads zstd in archives from Python 3.14 on; until then the packed bytes go through pyarrow.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

ZSTD = 93
"""Zip's number of the method (APPNOTE 4.4.5)."""
_LOCAL = struct.Struct("<4s22xHH")
"""A local file header: signature, and the lengths of name and extra field that follow its 30 bytes."""


@contextmanager
def opened(path: Path, member: str) -> Iterator[tuple[IO[bytes], zipfile.ZipInfo]]:
    """A member's bytes, unpacked, and what the archive says of it.

    Raises
    ------
    KeyError
        The archive has no such member.
    zipfile.BadZipFile
        The archive is damaged; OSError while reading: its packed bytes are.
    NotImplementedError
        Another method of packing.
    """
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(member)
        if info.compress_type != ZSTD or info.flag_bits & 1:
            with archive.open(member) as inside:
                yield inside, info
            return
    import pyarrow as pa

    with path.open("rb") as stream:
        stream.seek(info.header_offset)
        head = stream.read(_LOCAL.size)
        if len(head) < _LOCAL.size or not head.startswith(b"PK\x03\x04"):
            raise zipfile.BadZipFile(f"no file header of {member} at byte {info.header_offset}")
        _, name_bytes, extra_bytes = _LOCAL.unpack(head)
        stream.seek(name_bytes + extra_bytes, 1)
        with pa.CompressedInputStream(pa.PythonFile(_Part(stream, info.compress_size), mode="r"), "zstd") as unpacked:
            yield cast("IO[bytes]", unpacked), info


class _Part:
    """The next `n_bytes` of a stream, as a file of their own."""

    closed = False

    def __init__(self, stream: IO[bytes], n_bytes: int) -> None:
        self._stream, self._left = stream, n_bytes

    def read(self, n: int = -1) -> bytes:
        found = self._stream.read(self._left if n < 0 else min(n, self._left))
        self._left -= len(found)
        return found

    def close(self) -> None:
        """The stream is its owner's to close."""
