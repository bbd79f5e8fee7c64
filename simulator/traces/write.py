"""Neutral trajectories written one at a time: JSON, JSON Lines or Parquet, by the path's suffix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from costmodel.trajectory import Trajectory, Workload
from hwprofiles.errors import InputError
from simulator.traces import neutral
from simulator.traces.values import shown

SUFFIXES = (".json", ".jsonl", ".parquet")


@contextmanager
def writer(head: Workload, path: Path) -> Iterator[Callable[[Trajectory], None]]:
    """A function that writes a trajectory to a file, which appears whole at the end or not at all.

    Parameters
    ----------
    head : Workload
        Name, kind, source and notes; its own trajectories are not written.
    path : Path
        Ends in .json, .jsonl or .parquet.

    Raises
    ------
    InputError
        If the suffix is another one or the file cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path.name}: expected a name ending in .json, .jsonl or .parquet, found {shown(suffix)}")
    part = path.with_name(f"{path.name}.part")
    try:
        if suffix == ".parquet":
            from simulator.traces.parquet import rows

            with rows(neutral.head_document(head), part) as add:
                yield lambda trajectory: add(neutral.trajectory_document(trajectory))
        else:
            with part.open("w", encoding="utf-8") as stream:
                yield from _text(head, stream, lines=suffix == ".jsonl")
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def _text(head: Workload, stream: IO[str], *, lines: bool) -> Iterator[Callable[[Trajectory], None]]:
    start = neutral.dump(neutral.head_document(head))
    stream.write(f"{start}\n" if lines else f'{start[:-1]},"trajectories":[\n')
    first = True

    def add(trajectory: Trajectory) -> None:
        nonlocal first
        written = neutral.dump(neutral.trajectory_document(trajectory))
        stream.write(f"{written}\n" if lines else written if first else f",\n{written}")
        first = False

    yield add
    if not lines:
        stream.write("\n]}\n")
