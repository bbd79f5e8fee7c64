"""One call of the desk: checked arguments, a truthful journal, one transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.order_desk.catalogue import TOOLS
from validate.order_desk.desk import Desk, read_calls
from validate.order_desk.schema import state
from validate.order_desk.tasks import TASKS

SAME_ADDRESS = {"order_id": "O-4003", "street": "7 Sorrel Close", "city": "Harrowmouth", "postcode": "HM2 7SC"}
CANCEL = {"order_id": "O-4003", "reason": "no_longer_needed"}


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk(":memory:")
    yield desk
    desk.close()


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("cancel_order", {}, "order_id is missing"),
    ("cancel_order", {"order_id": "O-4003"}, "reason is missing"),
    ("cancel_order", {"order_id": 4003, "reason": "no_longer_needed"}, "must be a text"),
    ("cancel_order", {"order_id": "4003", "reason": "no_longer_needed"}, "must look like"),
    ("cancel_order", {"order_id": "O-4003 ", "reason": "no_longer_needed"}, "must look like"),
    ("cancel_order", {"order_id": "O-4003", "reason": "no_longer_neded"}, "did you mean 'no_longer_needed'"),
    ("cancel_order", {**CANCEL, "force": True}, "unknown argument 'force'"),
    ("cancel_order", {"order_id": "O-9999", "reason": "no_longer_needed"}, "no order O-9999"),
    ("cancel_order", {"order_id": "O-4006", "reason": "no_longer_needed"}, "packed"),
    ("change_address", {**SAME_ADDRESS, "street": ""}, "1 to 80 characters"),
    ("change_address", {**SAME_ADDRESS, "order_id": "O-4011"}, "shipped"),
    ("refund_item", {"order_id": "O-4012", "line": 0, "reason": "unwanted"}, "from 1 to 99"),
    ("refund_item", {"order_id": "O-4012", "line": True, "reason": "unwanted"}, "from 1 to 99"),
    ("refund_item", {"order_id": "O-4012", "line": 1.0, "reason": "unwanted"}, "from 1 to 99"),
    ("refund_item", {"order_id": "O-4012", "line": 9, "reason": "unwanted"}, "no line 9"),
    ("refund_item", {"order_id": "O-4003", "line": 1, "reason": "unwanted"}, "pending"),
    ("exchange_item", {"order_id": "O-4017", "line": 1, "product_id": "P-101"}, "no other variant"),
    ("exchange_item", {"order_id": "O-4017", "line": 1, "product_id": "P-123"}, "no other variant"),
    ("exchange_item", {"order_id": "O-4019", "line": 1, "product_id": "P-103"}, "out of stock"),
    ("create_ticket", {"customer_id": "C-101", "order_id": "O-4002", "category": "callback", "summary": "x"}, "not an"),
    ("create_ticket", {"customer_id": "C-999", "category": "callback", "summary": "x"}, "no customer C-999"),
    ("find_customer", {}, "give an email or a name"),
    ("get_policy", {"topic": "refunds"}, "did you mean 'refund'"),
    ("get_ordr", {"order_id": "O-4003"}, "did you mean 'get_order'"),
]


@pytest.mark.parametrize(("tool", "arguments", "message"), BAD)
def test_a_bad_call_is_a_clear_error_that_changes_nothing(
    desk: Desk, tool: str, arguments: dict[str, Any], message: str
) -> None:
    before = state(desk.db)
    reply = desk.call(tool, arguments, "k")
    assert reply.is_error
    assert message in reply.text
    assert state(desk.db) == before
    (line,) = read_calls(desk.db)
    assert (line.changed_state, line.error) == (False, reply.text)


def test_a_second_refund_of_a_line_is_refused(desk: Desk) -> None:
    arguments = {"order_id": "O-4012", "line": 2, "reason": "unwanted"}
    assert not desk.call("refund_item", arguments, "a").is_error
    assert "already refunded" in desk.call("refund_item", arguments, "b").text


def test_cancelling_puts_goods_back_into_stock(desk: Desk) -> None:
    before = {p["id"]: p["stock"] for p in state(desk.db)["products"]}
    desk.call("cancel_order", {"order_id": "O-4007", "reason": "arrives_too_late"})
    after = {p["id"]: p["stock"] for p in state(desk.db)["products"]}
    assert {k: after[k] - before[k] for k in after if after[k] != before[k]} == {"P-102": 1, "P-131": 4}


def test_the_journal_says_truly_what_changed_the_world(desk: Desk) -> None:
    """Every call of every reference way, twice: the flag equals the difference between before and after."""
    calls = [(a.tool, a.arguments) for task in TASKS for a in task.actions] * 2
    truth = []
    for tool, arguments in calls:
        before = state(desk.db)
        desk.call(tool, arguments)
        truth.append(state(desk.db) != before)
    assert [c.changed_state for c in read_calls(desk.db)] == truth
    assert any(truth)


def test_a_write_that_finds_the_world_as_asked_changed_nothing(desk: Desk) -> None:
    assert not desk.call("change_address", SAME_ADDRESS, "k").is_error
    assert [c.changed_state for c in read_calls(desk.db)] == [False]


def test_the_journal_keeps_the_whole_call(desk: Desk) -> None:
    reply = desk.call("cancel_order", CANCEL, "key-1")
    desk.call("cancel_order", CANCEL, "key-1")
    first, second = read_calls(desk.db)
    assert (first.sequence, first.tool, first.arguments, first.idempotency_key) == (1, "cancel_order", CANCEL, "key-1")
    assert first.result_hash == second.result_hash == hashlib.sha256(reply.text.encode()).hexdigest()
    assert (first.replay, second.replay) == (False, True)


def test_a_key_belongs_to_one_call(desk: Desk) -> None:
    desk.call("get_order", {"order_id": "O-4003"}, "k")
    reply = desk.call("cancel_order", CANCEL, "k")
    assert reply.is_error
    assert "another call" in reply.text
    assert not any(c.changed_state for c in read_calls(desk.db))


def test_a_refusal_is_kept_by_its_key_but_a_passing_error_is_not(desk: Desk) -> None:
    refused = {"order_id": "O-4006", "reason": "no_longer_needed"}
    assert desk.call("cancel_order", refused, "r").replayed is False
    assert desk.call("cancel_order", refused, "r").replayed is True
    assert desk.fail("cancel_order", CANCEL, "p", "try again later").is_error
    again = desk.call("cancel_order", CANCEL, "p")
    assert (again.is_error, again.replayed) == (False, False)


def test_calls_without_a_key_are_never_replays(desk: Desk) -> None:
    arguments = {"customer_id": "C-101", "category": "callback", "summary": "x"}
    for _ in range(2):
        assert desk.call("create_ticket", arguments).replayed is False
    assert len(state(desk.db)["tickets"]) == 2


def test_a_death_before_the_commit_leaves_no_trace(desk: Desk) -> None:
    class Death(BaseException):
        pass

    def die() -> None:
        assert state(desk.db) != before  # all is written by now, inside the transaction
        raise Death

    before = state(desk.db)
    with pytest.raises(Death):
        desk.call("cancel_order", CANCEL, "k", before_commit=die)
    assert state(desk.db) == before
    assert read_calls(desk.db) == ()
    assert desk.call("cancel_order", CANCEL, "k").replayed is False


def test_schemas_and_the_desks_own_check_agree(desk: Desk) -> None:
    """What the published schema refuses the desk refuses, and the other way round."""
    validators = pytest.importorskip("jsonschema").Draft202012Validator
    good = [(a.tool, dict(a.arguments)) for task in TASKS for a in task.actions]
    shape_only = BAD[:7] + BAD[9:10] + BAD[11:13]
    for tool, arguments in good:
        assert validators(TOOLS[tool].schema()).is_valid(arguments)
    for tool, arguments, _ in shape_only:
        assert not validators(TOOLS[tool].schema()).is_valid(arguments)


@given(
    tool=st.sampled_from([*TOOLS, "nothing"]),
    arguments=st.dictionaries(
        st.sampled_from(["order_id", "line", "reason", "customer_id", "email", "name", "topic", "x"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=8, alphabet=st.characters(codec="utf-8")),
        max_size=4,
    ),
)
def test_no_arguments_break_the_desk(tool: str, arguments: dict[str, Any]) -> None:
    desk = Desk(":memory:")
    try:
        before = state(desk.db)
        desk.call(tool, arguments, "k")
        (line,) = read_calls(desk.db)
        assert line.changed_state is (state(desk.db) != before)
    finally:
        desk.close()
