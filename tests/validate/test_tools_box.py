"""The tool box in memory: what a server offers, what calls do to the world, how errors are told apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from mcp.server import Server
from mcp_types import CallToolResult, ImageContent, ListToolsResult, TextContent, Tool, ToolAnnotations

from costmodel.trajectory import RUNS_FREELY, Effect
from hwprofiles.errors import InputError
from simulator.effects import EffectMap, effect_map
from validate.chat import ToolUse
from validate.link import split_command
from validate.order_desk.desk import Desk, read_calls
from validate.order_desk.faults import Fault, Faults
from validate.order_desk.schema import state
from validate.order_desk.server import desk_server
from validate.tools import ToolBox, ToolServerGone, ToolTimeout
from validate.wire import KEY, MAX_RESULT_CHARS

READS = {"find_customer", "get_order", "list_orders", "get_product", "check_stock", "get_policy"}
WRITES = {"cancel_order", "change_address", "refund_item", "exchange_item", "create_ticket"}
CANCEL = ToolUse(id="u", name="cancel_order", arguments={"order_id": "O-4003", "reason": "no_longer_needed"})
LOOK = ToolUse(id="u", name="get_order", arguments={"order_id": "O-4003"})
PATIENT_S = 60.0


def with_box(work: Callable[[ToolBox], Awaitable[Any]], server: Server[Any], **options: Any) -> Any:
    async def go() -> Any:
        async with ToolBox.in_memory(server, **{"timeout_s": PATIENT_S, **options}) as box:
            return await work(box)

    return asyncio.run(go())


def with_desk(work: Callable[[ToolBox, Desk], Awaitable[Any]], faults: Faults | None = None, **options: Any) -> Any:
    desk = Desk(":memory:")
    try:
        return with_box(lambda box: work(box, desk), desk_server(desk, faults), **options)
    finally:
        desk.close()


def a_server(*tools: Tool, answer: CallToolResult | None = None, instructions: str | None = None) -> Server[Any]:
    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=list(tools))

    async def call_tool(_: Any, __: Any) -> CallToolResult:
        if answer is None:
            raise ValueError("broken inside")
        return answer

    return Server("other", instructions=instructions, on_list_tools=list_tools, on_call_tool=call_tool)


def a_tool(name: str, **hints: bool) -> Tool:
    notes = ToolAnnotations.model_validate(hints) if hints else None
    return Tool(name=name, input_schema={"type": "object"}, annotations=notes)


def effects_of(box: ToolBox) -> dict[str, Effect]:
    return {spec.name: box.effect(spec.name) for spec in box.specs}


def test_the_desk_offers_six_reads_and_five_held_writes() -> None:
    async def work(box: ToolBox, _: Desk) -> dict[str, Effect]:
        return effects_of(box)

    effects = with_desk(work)
    assert {n for n, e in effects.items() if e in RUNS_FREELY} == READS
    assert {n for n, e in effects.items() if e not in RUNS_FREELY} == WRITES
    assert effects["exchange_item"] is Effect.UNKNOWN  # no annotations at all: held, not guessed from its name
    assert effects["create_ticket"] is Effect.WRITE  # readOnlyHint false


def test_hints_alone_and_absent_means_held() -> None:
    async def work(box: ToolBox) -> dict[str, Effect]:
        return effects_of(box)

    tools = a_tool("get_a", readOnlyHint=True), a_tool("get_b"), a_tool("get_c", idempotentHint=True)
    more = a_tool("get_d", readOnlyHint=False), a_tool("get_e", destructiveHint=True)
    effects = with_box(work, a_server(*tools, *more))
    assert effects["get_a"] is Effect.READ
    assert effects["get_d"] is Effect.WRITE
    for name in ("get_b", "get_c", "get_e"):
        assert effects[name] is Effect.UNKNOWN


@pytest.mark.parametrize(
    ("lines", "name", "arguments", "expected"),
    [
        ({"get_order": "write"}, "get_order", {}, Effect.WRITE),
        ({"cancel_order": "read"}, "cancel_order", {}, Effect.READ),
        ({"get_*": "unknown"}, "get_policy", {}, Effect.UNKNOWN),
        ({"create_ticket(category=callback)": "read"}, "create_ticket", {"category": "callback"}, Effect.READ),
        ({"create_ticket(category=callback)": "read"}, "create_ticket", {"category": "lost_parcel"}, Effect.WRITE),
        ({"*": "read"}, "drop_everything", {}, Effect.UNKNOWN),  # not offered by the server: the map does not matter
    ],
)
def test_the_users_map_comes_before_hints(lines: dict, name: str, arguments: dict, expected: Effect) -> None:
    async def work(box: ToolBox, _: Desk) -> Effect:
        return box.effect(name, arguments)

    assert with_desk(work, effects=effect_map(lines)) is expected


def test_a_users_exported_tool_list_comes_before_the_servers_own() -> None:
    async def work(box: ToolBox, _: Desk) -> tuple[Effect, str]:
        return box.classify("get_order")

    exported = EffectMap(hints={"get_order": (Effect.WRITE, "exported by hand")})
    assert with_desk(work, effects=exported) == (Effect.WRITE, "exported by hand")


def test_specs_are_what_the_server_lists() -> None:
    async def work(box: ToolBox, _: Desk) -> Any:
        return box.specs

    specs = with_desk(work)
    assert {s.name for s in specs} == READS | WRITES
    for spec in specs:
        assert spec.description
        assert spec.parameters["type"] == "object"
        assert set(spec.parameters["required"]) <= set(spec.parameters["properties"])
        assert spec.parameters["additionalProperties"] is False


@pytest.mark.parametrize(("instructions", "expected"), [(None, False), (f"Send _meta[{KEY!r}].", True)])
def test_keys_are_supported_only_if_the_server_says_so(instructions: str | None, expected: bool) -> None:
    async def work(box: ToolBox) -> bool:
        return box.supports_keys

    assert with_box(work, a_server(a_tool("a"), instructions=instructions)) is expected


def test_one_key_one_change() -> None:
    async def work(box: ToolBox, desk: Desk) -> None:
        first = await box.call(CANCEL, key="k")
        after_first = state(desk.db)
        second = await box.call(CANCEL, key="k")
        other = await box.call(CANCEL, key="other")
        assert (first.is_error, first.replayed) == (False, False)
        assert (second.text, second.is_error, second.replayed) == (first.text, False, True)
        assert other.is_error
        assert "cancelled" in other.text
        assert state(desk.db) == after_first
        assert [(c.changed_state, c.replay) for c in read_calls(desk.db)] == [
            (True, False),
            (False, True),
            (False, False),
        ]

    with_desk(work)


def test_an_unlisted_tool_is_an_error_result_and_is_not_sent() -> None:
    async def work(box: ToolBox, desk: Desk) -> None:
        result = await box.call(ToolUse(id="u", name="cancel_ordr", arguments={}), key="k")
        assert result.is_error
        assert "cancel_order" in result.text
        assert read_calls(desk.db) == ()

    with_desk(work)


@pytest.mark.parametrize("value", ["\ud800", float("nan"), object()])
def test_arguments_that_are_no_json_are_an_error_result_and_the_server_lives(value: object) -> None:
    async def work(box: ToolBox, desk: Desk) -> None:
        result = await box.call(ToolUse(id="u", name="get_order", arguments={"order_id": value}), key="k")
        assert result.is_error
        assert "no JSON" in result.text
        assert read_calls(desk.db) == ()
        assert not (await box.call(LOOK, key="l")).is_error

    with_desk(work)


def test_a_call_needs_a_key() -> None:
    async def work(box: ToolBox, _: Desk) -> None:
        with pytest.raises(ValueError, match="key"):
            await box.call(LOOK, key="")

    with_desk(work)


def test_a_tool_error_is_a_result_and_the_same_key_may_succeed_later() -> None:
    async def work(box: ToolBox, desk: Desk) -> None:
        untouched = state(desk.db)
        first = await box.call(CANCEL, key="k")
        assert first.is_error
        assert state(desk.db) == untouched
        second = await box.call(CANCEL, key="k")
        assert (second.is_error, second.replayed) == (False, False)

    with_desk(work, Faults(at={1: Fault.ERROR}))


@pytest.mark.parametrize(("fault", "replayed"), [(Fault.HANG_BEFORE, False), (Fault.HANG_AFTER, True)])
def test_a_timeout_is_no_result_and_the_same_key_changes_the_world_once(fault: Fault, replayed: bool) -> None:
    async def hang(box: ToolBox) -> None:
        with pytest.raises(ToolTimeout, match="cancel_order did not answer within 1 s"):
            await box.call(CANCEL, key="k")
        assert any(c.changed_state for c in read_calls(desk.db)) is replayed

    async def again(box: ToolBox) -> None:
        result = await box.call(CANCEL, key="k")
        assert (result.is_error, result.replayed) == (False, replayed)
        assert sum(c.changed_state for c in read_calls(desk.db)) == 1

    desk = Desk(":memory:")
    with_box(hang, desk_server(desk, Faults(at={1: fault})), timeout_s=1.0)
    with_box(again, desk_server(desk))
    desk.close()


@pytest.mark.parametrize(("fault", "replayed"), [(Fault.CRASH_BEFORE, False), (Fault.CRASH_AFTER, True)])
def test_a_server_that_dies_is_no_result_and_the_same_key_changes_the_world_once(fault: Fault, replayed: bool) -> None:
    async def work(box: ToolBox, desk: Desk) -> None:
        untouched = state(desk.db)
        with pytest.raises(ToolServerGone) as caught:
            await box.call(CANCEL, key="k")
        assert (state(desk.db) == untouched) is (fault is Fault.CRASH_BEFORE)
        with pytest.raises(ToolServerGone):  # gone until restarted
            await box.call(LOOK, key="l")
        await box.restart(caught.value)
        again = await box.call(CANCEL, key="k")
        assert (again.is_error, again.replayed) == (False, replayed)
        assert sum(c.changed_state for c in read_calls(desk.db)) == 1

    with_desk(work, Faults(at={1: fault}))


def test_several_tasks_may_ask_for_the_same_restart() -> None:
    async def work(box: ToolBox, _: Desk) -> None:
        with pytest.raises(ToolServerGone) as caught:
            await box.call(LOOK, key="a")
        assert caught.value.connection == 1
        await asyncio.gather(*(box.restart(caught.value) for _ in range(3)))
        with pytest.raises(ToolServerGone) as later:
            await box.call(LOOK, key="b")
        assert later.value.connection == 2  # one restart, not three

    with_desk(work, Faults(at={1: Fault.CRASH_BEFORE, 2: Fault.CRASH_BEFORE}))


def test_calls_may_run_together() -> None:
    async def work(box: ToolBox, desk: Desk) -> None:
        results = await asyncio.gather(*(box.call(LOOK, key=f"k{i}") for i in range(20)))
        assert len({r.text for r in results}) == 1
        assert len(read_calls(desk.db)) == 20

    with_desk(work)


def test_a_server_that_comes_back_with_other_hints_is_refused() -> None:
    tools = [a_tool("look", readOnlyHint=True)]

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=list(tools))

    async def go() -> None:
        async with ToolBox.in_memory(Server("changing", on_list_tools=list_tools)) as box:
            await box.restart()
            tools[0] = a_tool("look", readOnlyHint=False)
            with pytest.raises(InputError, match="other hints"):
                await box.restart()
            with pytest.raises(ToolServerGone, match="not connected"):
                await box.call(ToolUse(id="u", name="look", arguments={}), key="k")

    asyncio.run(go())


@pytest.mark.parametrize(("tools", "message"), [((), "no tools"), ((a_tool("a"), a_tool("a")), "twice")])
def test_a_tool_list_that_cannot_be_used_is_refused(tools: tuple[Tool, ...], message: str) -> None:
    async def work(box: ToolBox) -> None:
        raise AssertionError("must not connect")

    with pytest.raises(InputError, match=message):
        with_box(work, a_server(*tools))


def test_long_results_are_cut_and_say_so() -> None:
    async def work(box: ToolBox) -> str:
        return (await box.call(ToolUse(id="u", name="a", arguments={}), key="k")).text

    long = CallToolResult(content=[TextContent(type="text", text="x" * (MAX_RESULT_CHARS + 7))])
    text = with_box(work, a_server(a_tool("a"), answer=long))
    assert text.startswith("x" * MAX_RESULT_CHARS)
    assert text.endswith(f"[cut: {MAX_RESULT_CHARS} of {MAX_RESULT_CHARS + 7} characters shown]")


def test_results_that_are_no_text() -> None:
    async def work(box: ToolBox) -> str:
        return (await box.call(ToolUse(id="u", name="a", arguments={}), key="k")).text

    image = ImageContent(type="image", data="AAAA", mime_type="image/png")
    assert with_box(work, a_server(a_tool("a"), answer=CallToolResult(content=[image]))) == "[image not shown]"
    plain = CallToolResult(content=[], structured_content={"a": 1})
    assert with_box(work, a_server(a_tool("a"), answer=plain)) == '{"a": 1}'


def test_a_broken_tool_is_an_error_result_and_says_nothing_about_keys() -> None:
    async def work(box: ToolBox) -> Any:
        return await box.call(ToolUse(id="u", name="a", arguments={}), key="k")

    result = with_box(work, a_server(a_tool("a")))
    assert (result.is_error, result.replayed) == (True, None)


def test_cancelling_a_call_leaves_the_box_usable() -> None:
    async def work(box: ToolBox, _: Desk) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await box.call(LOOK, key="a")
        assert not (await box.call(LOOK, key="b")).is_error

    with_desk(work)


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_timeout_must_be_positive_and_finite(timeout_s: float) -> None:
    with pytest.raises(InputError, match="timeout_s"):
        ToolBox.stdio(["x"], timeout_s=timeout_s)


def test_a_command_is_split_like_a_shell_would_but_nothing_is_expanded() -> None:
    assert split_command("server --root '/a b' $HOME; rm *") == ("server", "--root", "/a b", "$HOME;", "rm", "*")


@pytest.mark.parametrize("text", ["", "  ", "server 'open"])
def test_a_command_that_is_none(text: str) -> None:
    with pytest.raises(InputError, match="command"):
        split_command(text)
