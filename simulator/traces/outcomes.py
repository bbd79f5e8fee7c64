"""Outcomes in a file of their own: `outcomes.json` beside the session files of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hwprofiles.errors import InputError
from simulator.traces.load import TraceFile
from simulator.traces.raw import RawTrajectory
from simulator.traces.values import items, label, mapping, number

NAME = "outcomes.json"
_KEYS = ("outcome", "reward", "success", "correct", "resolved", "db_match")


class Outcomes:
    """Outcomes by task; `fill` gives them to trajectories that have none of their own."""

    def __init__(self, by_task: Mapping[str, float]) -> None:
        self._by_task = by_task

    def fill(self, raw: RawTrajectory) -> None:
        """Set the outcome of a trajectory by its task, `task_7` and `task_007` standing for `7`."""
        if raw.outcome is None and raw.task is not None and self._by_task:
            short = raw.task.removeprefix("task_").removeprefix("task-").lstrip("0") or "0"
            raw.outcome = self._by_task.get(raw.task, self._by_task.get(short))


def beside(files: Sequence[TraceFile]) -> Outcomes:
    """The outcomes in `outcomes.json` of the folder that all the files are in; none where there is no such file.

    It holds a list of objects with `task_id` and one of outcome, reward, success, correct, resolved or db_match (a
    number or true/false), or an object of task and number.

    Raises
    ------
    InputError
        If there is such a file and it holds something else.
    """
    folders = {f.path.parent for f in files}
    path = next(iter(folders)) / NAME
    if len(files) < 2 or len(folders) > 1 or any(f.path.name == NAME for f in files) or not path.is_file():
        return Outcomes({})
    document = TraceFile(path=path).whole()
    if isinstance(document, dict):
        return Outcomes({str(k): _number(v, f"{NAME}: {k}") for k, v in document.items()})
    found = {}
    for i, entry in enumerate(items(document, NAME)):
        where = f"{NAME}[{i}]"
        row = mapping(entry, where)
        key = next((k for k in _KEYS if row.get(k) is not None), None)
        if key is not None:
            found[label(row.get("task_id"), f"{where}: task_id")] = _number(row[key], f"{where}: {key}")
    return Outcomes(found)


def _number(value: object, where: str) -> float:
    if isinstance(value, bool):
        return float(value)
    found = number(value, where)
    if not 0 <= found <= 1:
        raise InputError(f"{where}: expected a number from 0 to 1, found {found:g}")
    return found
