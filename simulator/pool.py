"""Work on all local cores: spawned processes that end with their parent and outlive each other's crashes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import TracebackType
from typing import Generic, TypeVar

from hwprofiles.errors import InputError

Task = TypeVar("Task")
Result = TypeVar("Result")

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_AHEAD = 2
"""Tasks handed to each process at a time: one to run and one waiting, so that none idles between two."""

DIED = "the process that evaluated it was ended from outside (out of memory, or killed)"


def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool(Generic[Task, Result]):
    """Runs `function` on tasks in `workers` processes, kept from one `run` to the next; a context manager.

    Parameters
    ----------
    function : a function of a module, of one task
    workers : int or None
        None: one per core.
    """

    def __init__(self, function: Callable[[Task], Result], workers: int | None = None) -> None:
        if workers is not None and not 1 <= workers <= 1024:
            raise InputError(f"workers must be 1 to 1024, got {workers}")
        self.function = function
        self.workers = workers or n_cores()
        self._executor: ProcessPoolExecutor | None = None
        self._others = set(multiprocessing.active_children())

    def __enter__(self) -> Pool[Task, Result]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is None:
            return
        if kind is not None:  # do not wait for what is under way
            for process in set(multiprocessing.active_children()) - self._others:
                process.terminate()
        self._executor.shutdown(cancel_futures=True)

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Result | str]]:
        """Every task with its result, as they end; a string where its process died of it.

        Raises
        ------
        InputError
            Processes cannot be started.
        """
        waiting = list(reversed(tasks))
        running: dict[Future[Result], Task] = {}
        suspects: list[Task] = []
        while waiting or running:
            if not suspects:
                self._hand_out(waiting, running)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    suspects.append(task)
                else:
                    yield task, future.result()
            if suspects and not running:
                self._executor = None
                yield from self._one_by_one(suspects)
                suspects.clear()

    def _hand_out(self, waiting: list[Task], running: dict[Future[Result], Task]) -> None:
        """Keep every process busy, with a task behind the one it runs."""
        while waiting and len(running) < _AHEAD * self.workers:
            executor = self._started()
            try:
                with _one_thread():
                    running[executor.submit(self.function, waiting[-1])] = waiting[-1]
            except BrokenProcessPool:
                if not running:  # a process died while there was nothing to do
                    self._executor = None
                    continue
                return
            waiting.pop()

    def _one_by_one(self, suspects: Sequence[Task]) -> Iterator[tuple[Task, Result | str]]:
        """A process died while these were under way: each again, alone, to find out which one it dies of."""
        if len(suspects) == 1:
            yield suspects[0], DIED
            return
        for task in suspects:
            with Pool(self.function, 1) as alone:
                yield from alone.run([task])

    def _started(self) -> ProcessPoolExecutor:
        if self._executor is None:
            executor = ProcessPoolExecutor(self.workers, multiprocessing.get_context("spawn"), initializer=begin_child)
            try:
                with _one_thread():
                    executor.submit(_ready).result()
            except BrokenProcessPool:
                raise InputError(
                    "worker processes cannot be started; a script that sweeps or sizes must do so under "
                    "if __name__ == '__main__':"
                ) from None
            self._executor = executor
        return self._executor


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started meanwhile use one thread each: they share the cores, and sums keep their order."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def begin_child() -> None:
    """In a new process: leave interrupts to the parent, and end when it does, even if it was killed."""
    import gc

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(100_000, 50, 50)  # as the command line does: tapes are many small objects that live to the end
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _ready() -> None:
    """Show that a process runs."""
