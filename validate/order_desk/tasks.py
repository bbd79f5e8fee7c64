"""Twenty tasks for the desk, each with a way to do it and the state of the world it must leave."""

from __future__ import annotations

import functools
import sqlite3
from copy import deepcopy
from pathlib import Path

from hwprofiles.errors import unknown_name
from validate.order_desk.schema import TODAY, State, connect, state
from validate.order_desk.task import Task
from validate.order_desk.tasks_back import BACK
from validate.order_desk.tasks_open import OPEN

SYSTEM = (
    f"You work at the order desk of a small shop. Today is {TODAY}. Look facts up with the tools, read the desk's"
    " policy on the topic before you change anything, and act only within it. The customer has agreed to what the"
    " first message asks for and will not answer questions. When nothing is left to do, write a short reply to the"
    " customer that says what you did, or why you did not."
)
"""The system message every task starts with."""

_FREE = {"tickets": ("id", "summary"), "refunds": ("id",)}
"""Columns that a right answer may fill in its own way."""

TASKS: tuple[Task, ...] = (*OPEN, *BACK)
"""The twenty tasks."""


def task_named(name: str) -> Task:
    """The task of that id.

    Raises
    ------
    InputError
        If there is none.
    """
    for task in TASKS:
        if task.id == name:
            return task
    raise unknown_name("task", name, [task.id for task in TASKS])


def check(database: Path | str | sqlite3.Connection, task: Task) -> bool:
    """Whether a database is in the state that the task must leave.

    Every column of every table of the world counts, but for numbers of new rows and the wording of tickets; the journal
    of calls does not.
    """
    db = database if isinstance(database, sqlite3.Connection) else connect(database)
    try:
        return _comparable(state(db)) == _comparable(_expected(task))
    finally:
        if db is not database:
            db.close()


def _expected(task: Task) -> State:
    world = deepcopy(_seeded())
    for (table, key), columns in task.changed.items():
        name, line = key if isinstance(key, tuple) else (key, None)
        rows = [r for r in world[table] if r.get("line") == line and name in (r.get("id"), r.get("order_id"))]
        (row,) = rows
        row.update(columns)
    for table, columns in task.added:
        world[table].append(dict(columns))
    return world


@functools.cache
def _seeded() -> State:
    db = connect(":memory:")
    try:
        return state(db)
    finally:
        db.close()


def _comparable(world: State) -> dict[str, list[list[tuple[str, str]]]]:
    """Rows without the free columns, in an order of their own."""
    return {
        table: sorted(
            sorted((name, repr(value)) for name, value in row.items() if name not in _FREE.get(table, ()))
            for row in rows
        )
        for table, rows in world.items()
    }
