"""Steps as JSON, and chats as tokens: what holds for every engine in this process, without one."""

from __future__ import annotations

import json
from collections.abc import Callable

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.protocol import Role
from hwprofiles.errors import InputError
from validate.calls import LARGEST_NUMBER, MOST_ITEMS, parse_step, step_schema
from validate.chat import Message, ToolSpec, ToolUse
from validate.engine import Ask
from validate.rendering import ChatRenderer, common_prefix
from validate.server_metrics import samples
from validate.small_models import CHAT_TEMPLATE

ITEM = {"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer", "minimum": 1}}}
REFUND = ToolSpec(
    name="refund",
    description="Refunds.",
    parameters={
        "type": "object",
        "properties": {
            "order": {"type": "string", "maxLength": 9},
            "why": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "kind": {"enum": ["all", "part"]},
            "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}, "minItems": 1},
        },
        "required": ["order", "items"],
        "$defs": {"Item": ITEM},
    },
)


def test_every_open_length_is_bounded_and_given_bounds_stay() -> None:
    schema = step_schema([REFUND], longest_text=40)
    call, reply = schema["anyOf"]
    arguments = call["properties"]["arguments"]
    assert call["properties"]["name"] == {"enum": ["refund"]}
    assert arguments["required"] == ["order", "items"]
    assert arguments["additionalProperties"] is False
    assert arguments["properties"]["order"]["maxLength"] == 9
    assert arguments["properties"]["why"]["anyOf"][0]["maxLength"] == 40
    assert arguments["properties"]["kind"] == {"enum": ["all", "part"]}
    assert arguments["properties"]["items"]["maxItems"] == MOST_ITEMS
    assert reply["properties"]["reply"] == {"type": "string", "maxLength": 40}
    item = schema["$defs"]["refund.Item"]
    assert item["properties"]["n"] == {"type": "integer", "minimum": 1, "maximum": LARGEST_NUMBER}
    assert arguments["properties"]["items"]["items"] == {"$ref": "#/$defs/refund.Item"}
    assert "$defs" not in arguments
    assert REFUND.parameters["properties"]["why"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}  # not touched


def test_two_tools_may_name_their_definitions_alike() -> None:
    other = ToolSpec(name="ship", description="", parameters=REFUND.parameters)
    schema = step_schema([REFUND, other], longest_text=40)
    assert set(schema["$defs"]) == {"refund.Item", "ship.Item"}
    assert schema["anyOf"][1]["properties"]["arguments"]["properties"]["items"]["items"]["$ref"] == "#/$defs/ship.Item"


def test_a_tool_whose_parameters_are_no_object_is_refused() -> None:
    with pytest.raises(InputError, match="tool 'x'"):
        step_schema([ToolSpec(name="x", description="", parameters={"type": "string"})], longest_text=40)


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9) | st.none(), max_size=3))
def test_a_written_call_is_read_back(arguments: dict[str, object]) -> None:
    step = parse_step(json.dumps({"name": "refund", "arguments": arguments}), ["refund"], "call_1")
    assert step is not None
    assert step.tool_uses == (ToolUse(id="call_1", name="refund", arguments=arguments),)


@given(st.text(max_size=60))
def test_any_other_text_is_no_step(text: str) -> None:
    assert parse_step(text, ["refund"], "c") is None


@pytest.mark.parametrize(
    "text",
    [
        '{"name":"refund","arguments":{}',
        '{"name":"refund","arguments":{}} and more',
        '{"name":"refund","arguments":[]}',
        '{"name":"refund","arguments":{"n":NaN}}',
        '{"name":"other","arguments":{}}',
        '{"name":"refund","arguments":{},"reply":"also"}',
        '{"reply":""}',
        '{"reply":7}',
        "[" * 100_000,
    ],
)
def test_what_is_not_exactly_one_step_is_none(text: str) -> None:
    assert parse_step(text, ["refund"], "c") is None


class Characters:
    """A tokenizer whose tokens are characters; `render` stands for the chat template."""

    def __init__(self, render: Callable[..., str]) -> None:
        self.render = render

    def apply_chat_template(self, messages, tools, add_generation_prompt, tokenize, **_):
        assert tokenize is False
        return self.render(messages=messages, tools=tools, add_generation_prompt=add_generation_prompt)

    def encode(self, text, add_special_tokens):
        assert add_special_tokens is False
        return [ord(character) for character in text]

    def decode(self, tokens):
        return "".join(map(chr, tokens))


def dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def ours(**given: object) -> str:
    environment = jinja2.Environment(autoescape=False)
    environment.filters["tojson"] = dumped
    return environment.from_string(CHAT_TEMPLATE).render(**given)


CHAT = (Message(role="system", text="Be brief."), Message(role="user", text="Refund 17."))
CALL = Message(role="assistant", tool_uses=(ToolUse(id="c", name="refund", arguments={"order": "17"}),))
RESULT = Message(role="tool", text="done", tool_call_id="c")
REVIEW = Message(role="user", text="How many?")


def request(kind: str, *messages: Message, labels: tuple[str, ...] = ()) -> Ask:
    return Ask(role=Role.WEAK, kind=kind, conversation="a", messages=messages, tools=(REFUND,), labels=labels)


def test_our_template_shows_tools_calls_replies_and_results() -> None:
    renderer = ChatRenderer(Characters(ours), "ours")
    spoken = Message(role="assistant", text="Done.")
    text = renderer._tokenizer.decode(renderer.tokens((*CHAT, CALL, RESULT, spoken), (REFUND,), opened=True))
    assert text.startswith("<|im_start|>system\nBe brief.\nTools, one per line:\n" + '{"name": "refund"')
    assert '<|im_start|>assistant\n{"name": "refund", "arguments": {"order": "17"}}<|im_end|>\n' in text
    assert "<|im_start|>tool\ndone<|im_end|>\n" in text
    assert '{"reply": "Done."}<|im_end|>\n' in text
    assert text.endswith("<|im_start|>assistant\n")


def test_a_review_and_the_next_draft_extend_the_committed_chat_token_for_token() -> None:
    renderer = ChatRenderer(Characters(ours), "ours")
    committed = renderer.tokens((*CHAT, CALL, RESULT), (REFUND,), opened=False)
    draft = renderer.prompt(request("draft", *CHAT))
    review = renderer.prompt(request("verify", *CHAT, CALL, RESULT, REVIEW, labels=("0", "1")))
    onward = renderer.prompt(request("draft", *CHAT, CALL, RESULT))
    assert review[: len(committed)] == committed
    assert onward[: len(committed)] == committed
    assert common_prefix(draft, onward) >= len(renderer.tokens(CHAT, (REFUND,), opened=False))


def test_a_template_that_numbers_from_the_end_is_refused_at_once() -> None:
    def render(messages: list[dict], **_: object) -> str:
        return "".join(f"{len(messages) - i}:{dumped(m)}\n" for i, m in enumerate(messages))

    with pytest.raises(InputError, match="rewrites earlier messages"):
        ChatRenderer(Characters(render), "odd")


def test_a_template_that_drops_calls_is_refused_at_once() -> None:
    def render(messages: list[dict], **_: object) -> str:
        return "".join(f"<{m['role']}>{m['content']}\n" for m in messages)

    with pytest.raises(InputError, match="leaves it out"):
        ChatRenderer(Characters(render), "plain")


def test_a_template_that_fails_is_named_in_one_line() -> None:
    def render(**_: object) -> str:
        raise ValueError("tools\nunknown")

    with pytest.raises(InputError, match="cannot render a chat with tools: tools unknown"):
        ChatRenderer(Characters(render), "failing")


def test_a_template_that_forgets_in_long_chats_is_found_while_running() -> None:
    def render(messages: list[dict], **_: object) -> str:
        return "".join(dumped(m) for m in (messages[-6:] if len(messages) > 6 else messages))

    renderer = ChatRenderer(Characters(render), "forgetful")
    renderer.prompt(request("draft", *CHAT, CALL, RESULT))
    with pytest.raises(InputError, match="forgetful rewrites earlier messages"):
        renderer.prompt(request("draft", *CHAT, CALL, RESULT, CALL, RESULT, REVIEW))


def test_a_verdict_label_of_two_tokens_is_refused() -> None:
    renderer = ChatRenderer(Characters(ours), "ours")
    assert renderer.label_tokens(("0", "9")) == {ord("0"): "0", ord("9"): "9"}
    with pytest.raises(InputError, match="'10' is 2 tokens"):
        renderer.label_tokens(("9", "10"))


def test_samples_add_up_over_labels_and_a_bad_line_is_named() -> None:
    assert samples('a{x="1"} 2\na{x="}"} 3 1700000000\nb NaN\n')["a"] == 5.0
    with pytest.raises(ValueError, match="line 2"):
        samples("a 1\nnonsense\n")
