"""Cells of a sweep on a Dask cluster: the scheduler hands them out, this process alone writes the study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any

from simulator.study import CellResult
from simulator.sweep_cell import CellTask, attempt

_AHEAD = 2
_CONNECT_S = 10


def run_on(scheduler: str, tasks: Sequence[CellTask]) -> Iterator[tuple[CellTask, CellResult | str]]:
    """Every task with its result, as they end; a string where the cluster gave it up.

    Parameters
    ----------
    scheduler : address, such as `tcp://10.0.0.1:8786`

    Raises
    ------
    ModuleNotFoundError
        The extra `dask` is not installed.
    ConnectionError
        No scheduler there, it went away, it has no worker, or a worker has another specroof.
    """
    from distributed import Client, as_completed

    client = _connected(Client, scheduler)
    try:
        _same_version(client)
        waiting = list(reversed(tasks))
        running: dict[Any, CellTask] = {}
        completed: Any = as_completed  # it has no types
        ended = completed(loop=client.loop, with_results=False)

        def feed() -> None:
            room = _AHEAD * max(1, sum(client.nthreads().values()))
            while waiting and len(running) < room:
                task = waiting.pop()
                future = client.submit(attempt, task, pure=False)
                running[future] = task
                ended.add(future)

        feed()
        while running:
            future = next(ended)
            task = running.pop(future)
            yield task, _result(client, future, scheduler)
            feed()
    finally:
        client.close(timeout=_CONNECT_S)


def _connected(make: Any, scheduler: str) -> Any:
    try:
        return make(scheduler, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise ConnectionError(f"no Dask scheduler at {scheduler!r}: {why}") from None


def _same_version(client: Any) -> None:
    """Every worker runs our version, or results would depend on who computed them."""
    ours = metadata.version("specroof")
    theirs = client.run(metadata.version, "specroof", on_error="return")
    if not theirs:
        raise ConnectionError("the Dask scheduler has no worker; start one with: dask worker ADDRESS")
    for worker, version in theirs.items():
        if version != ours:
            raise ConnectionError(f"Dask worker {worker} has no specroof {ours}: {version}")


def _result(client: Any, future: Any, scheduler: str) -> CellResult | str:
    if future.status == "finished":
        found: CellResult = future.result()
        return found
    if future.status == "cancelled" or client.status != "running":
        raise ConnectionError(f"the Dask scheduler at {scheduler!r} went away; the same command goes on from here")
    error = future.exception()
    return f"{type(error).__name__}: {error}"
