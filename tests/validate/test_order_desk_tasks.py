"""The twenty tasks: the reference way ends right, anything left out or added does not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import permutations
from pathlib import Path

import pytest

from hwprofiles.errors import InputError
from validate.order_desk.catalogue import TOOLS
from validate.order_desk.desk import Desk, read_calls
from validate.order_desk.policies import POLICIES
from validate.order_desk.schema import state
from validate.order_desk.task import Action, Task, cancel, move, ticket
from validate.order_desk.tasks import TASKS, check, task_named

EACH = pytest.mark.parametrize("task", TASKS, ids=[task.id for task in TASKS])
WRITING = [task for task in TASKS if any(a.writes for a in task.actions)]


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk(":memory:")
    yield desk
    desk.close()


def do(desk: Desk, actions: Iterable[Action]) -> None:
    for action in actions:
        reply = desk.call(action.tool, action.arguments)
        assert not reply.is_error, reply.text


def test_there_are_twenty_of_the_promised_kinds() -> None:
    writes = [sum(a.writes for a in task.actions) for task in TASKS]
    assert len(TASKS) == len({t.id for t in TASKS}) == 20
    assert writes.count(0) >= 5
    assert writes.count(2) >= 3
    assert all(sum(not a.writes for a in task.actions) >= 3 for task in TASKS)
    assert {a.tool for task in TASKS for a in task.actions} == set(TOOLS)
    assert {a.arguments["topic"] for t in TASKS for a in t.actions if a.tool == "get_policy"} == set(POLICIES)


@EACH
def test_the_reference_way_ends_right(desk: Desk, task: Task) -> None:
    do(desk, task.actions)
    assert check(desk.db, task)


@EACH
def test_every_write_of_the_reference_way_matters(desk: Desk, task: Task) -> None:
    for i, action in enumerate(task.actions):
        if action.writes:
            other = Desk(":memory:")
            do(other, (*task.actions[:i], *task.actions[i + 1 :]))
            assert not check(other.db, task)
            other.close()
    assert check(desk.db, task) is (task not in WRITING)  # doing nothing is right only where nothing is to be done


@EACH
def test_one_write_too_many_is_wrong(desk: Desk, task: Task) -> None:
    do(desk, task.actions)
    do(desk, [ticket("C-124", "O-4044", "callback", "Nobody asked for this.")])
    assert not check(desk.db, task)


@EACH
def test_no_two_writing_tasks_want_the_same_end(desk: Desk, task: Task) -> None:
    do(desk, task.actions)
    assert [t.id for t in WRITING if check(desk.db, t)] == ([task.id] if task in WRITING else [])


@pytest.mark.parametrize("task", [t for t in WRITING if sum(a.writes for a in t.actions) > 1], ids=lambda t: t.id)
def test_the_order_of_two_writes_does_not_matter(task: Task) -> None:
    writes = [a for a in task.actions if a.writes]
    for order in permutations(writes):
        desk = Desk(":memory:")
        do(desk, order)
        assert check(desk.db, task)
        desk.close()


@EACH
def test_every_fact_of_the_writes_can_be_known(desk: Desk, task: Task) -> None:
    """Numbers and texts that a write needs stand in the request or in an answer read before it."""
    known = task.request
    for action in task.actions:
        if action.writes:
            facts = {k: v for k, v in action.arguments.items() if k not in {"reason", "category", "summary", "line"}}
            for name, fact in facts.items():
                assert fact in known, (name, fact)
        known += desk.call(action.tool, action.arguments).text


@EACH
def test_the_request_names_the_customer(task: Task) -> None:
    assert re.search(r"[\w.]+@[\w.]+\.example", task.request)


def test_wording_and_numbering_of_tickets_are_free(desk: Desk) -> None:
    task = task_named("lost_parcel")
    do(desk, [ticket("C-118", "O-4020", "lost_parcel", "Another wording.")])
    assert check(desk.db, task)


def test_a_wrong_ending_that_the_tools_allow_is_seen(desk: Desk) -> None:
    # The tools let a backpack go back after 48 days; the policy does not, and neither does the check.
    desk.call("refund_item", {"order_id": "O-4014", "line": 1, "reason": "unwanted"})
    assert [c.changed_state for c in read_calls(desk.db)] == [True]
    assert not check(desk.db, task_named("refund_too_late"))


def test_a_near_miss_is_a_miss(desk: Desk) -> None:
    do(desk, [cancel("O-4005", "no_longer_needed")])
    assert not check(desk.db, task_named("cancel_duplicate"))  # the wrong reason
    do(desk, [move("O-4007", "14 Bellfield Rd", "Coldwater", "CW7 4BR")])
    assert not check(desk.db, task_named("address_one"))


def test_the_data_is_seeded_the_same_every_time(tmp_path: Path) -> None:
    worlds = []
    for name in (":memory:", tmp_path / "a.sqlite", tmp_path / "a.sqlite"):
        desk = Desk(name)
        worlds.append(state(desk.db))
        desk.close()
    assert worlds[0] == worlds[1] == worlds[2]
    assert {t: len(rows) for t, rows in worlds[0].items()} == {
        "customers": 24, "products": 36, "orders": 48, "order_items": 61, "refunds": 0, "tickets": 0,
    }  # fmt: skip


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'cancel_packed'"):
        task_named("cancel_packet")
