"""Independent runs on several cores: children that share what the parent has prepared, where the system can fork."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from simulator.pool import begin_child

Job = TypeVar("Job")
Answer = TypeVar("Answer")

_task: list[Callable[[Any], Any]] = []
"""What the children of this moment do; they see it because they are forks."""


def n_workers(n_jobs: int) -> int:
    """Processes for so many jobs: one per core that this process may use, 1 where forking is not safe."""
    alone = threading.active_count() == 1 and multiprocessing.parent_process() is None
    if not (sys.platform == "linux" and alone and not _task):
        return 1
    return min(n_jobs, len(os.sched_getaffinity(0)))


def in_order(work: Callable[[Job], Answer], jobs: Sequence[Job], workers: int) -> Iterator[Answer]:
    """`work(job)` of every job, in the order of the jobs; an error of one ends it.

    Parameters
    ----------
    workers : int
        Processes; with 1 the jobs run here, one after the other.
    """
    if workers < 2:
        yield from map(work, jobs)
        return
    _task.append(work)
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of forks beside threads; those here are idle ones of numpy, which survives a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            pool = multiprocessing.get_context("fork").Pool(workers, begin_child)
        with pool:
            yield from pool.imap(_do, jobs)
    finally:
        _task.clear()


def _do(job: Any) -> Any:
    return _task[0](job)
