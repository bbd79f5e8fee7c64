"""The client of OpenAI-compatible servers, against a scripted server on this machine."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from costmodel.protocol import Role
from hwprofiles.errors import InputError
from validate.chat import Message, ToolSpec, ToolUse
from validate.engine import Answer, Ask, EngineError
from validate.openai_server import OpenAIServer

ORDER = ToolSpec(
    name="get_order",
    description="Reads an order.",
    parameters={"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
)
COMMITTED = (Message(role="system", text="Be brief."), Message(role="user", text="Where is order 17?"))
SEGMENT = (
    Message(role="assistant", tool_uses=(ToolUse(id="call_0_0", name="get_order", arguments={"order_id": "17"}),)),
    Message(role="tool", text="shipped", tool_call_id="call_0_0"),
)
DRAFT = Ask(role=Role.WEAK, kind="draft", conversation="a", messages=COMMITTED, tools=(ORDER,))
VERIFY = Ask(
    role=Role.STRONG,
    kind="verify",
    conversation="a",
    messages=(*COMMITTED, *SEGMENT, Message(role="user", text="How many are valid?")),
    tools=(ORDER,),
    labels=("0", "1"),
    max_tokens=4,
)


class Ticks:
    """A clock that is one second later whenever somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def now_s(self) -> float:
        self.now += 1.0
        return self.now


class Script:
    """What the server answers, and what it was asked."""

    def __init__(self) -> None:
        self.owner = "vllm"
        self.models_status = 200
        self.status = 200
        self.pieces: list[object] = []
        self.pages: list[str] = []
        self.asked: list[dict] = []
        self.released = threading.Event()
        self.hang = False


def handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def send(self, status: int, body: str, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(body.encode())

        def do_GET(self) -> None:
            if self.path == "/metrics":
                self.send(200 if script.pages else 404, script.pages.pop(0) if script.pages else "", "text/plain")
            elif script.models_status != 200:
                self.send(script.models_status, json.dumps({"error": {"message": "no such page"}}))
            else:
                entry = {"id": "tiny", "object": "model", "created": 0, "owned_by": script.owner}
                self.send(200, json.dumps({"object": "list", "data": [entry]}))

        def do_POST(self) -> None:
            script.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            if script.hang:
                script.released.wait(30)
            if script.status != 200:
                self.send(script.status, json.dumps({"error": {"message": "it\nbroke"}}))
                return
            lines = [p if isinstance(p, str) else "data: " + json.dumps(p) for p in script.pieces]
            self.send(200, "".join(line + "\n\n" for line in lines), "text/event-stream")

    return Handler


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def url(script: Script) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(script))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    script.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def piece(finish: str | None = None, **delta: object) -> dict:
    return {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "tiny",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def call_piece(arguments: str, name: str | None = None, index: int = 0) -> dict:
    head = {"id": f"theirs-{index}", "type": "function"} if name else {}
    return piece(tool_calls=[{"index": index, **head, "function": {"name": name, "arguments": arguments}}])


def usage(prompt: int = 50, cached: int | None = 32, output: int = 7) -> dict:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    counts = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output, **details}
    return piece() | {"choices": [], "usage": counts}


CALL = [call_piece('{"order', "get_order"), call_piece('_id": "17"}'), piece("tool_calls"), usage(), "data: [DONE]"]


def ask(url: str, request: Ask, **options: object) -> Answer:
    async def go() -> Answer:
        server = OpenAIServer(url, Ticks(), **{"pause_s": 0.0, **options})
        try:
            return await server.ask(request)
        finally:
            await server.close()

    return asyncio.run(go())


def test_a_streamed_call_is_put_together_and_counted(url: str, script: Script) -> None:
    script.pieces = CALL
    answer = ask(url, DRAFT)
    assert answer.tool_uses == (ToolUse(id="theirs-0", name="get_order", arguments={"order_id": "17"}),)
    assert (answer.finish, answer.text) == ("tool_calls", "")
    assert (answer.prompt_tokens, answer.cached_tokens, answer.output_tokens) == (50, 32, 7)
    assert (answer.sent_s, answer.first_token_s, answer.done_s) == (1.0, 2.0, 3.0)


def test_a_server_that_does_not_tell_cached_tokens_gives_none_and_not_zero(url: str, script: Script) -> None:
    script.pieces = [piece(content="Hello"), piece("stop"), usage(cached=None)]
    answer = ask(url, DRAFT)
    assert (answer.text, answer.finish, answer.cached_tokens) == ("Hello", "stop", None)


def test_a_review_extends_the_draft_message_for_message_and_shows_the_same_tools(url: str, script: Script) -> None:
    script.pieces = CALL
    ask(url, DRAFT)
    script.pieces = [piece(content="1"), piece("stop"), usage(output=2)]
    answer = ask(url, VERIFY)
    draft, verify = script.asked
    assert (answer.text, answer.finish) == ("1", "stop")
    assert verify["messages"][: len(draft["messages"])] == draft["messages"]
    assert verify["messages"][-1] == {"role": "user", "content": "How many are valid?"}
    assert json.loads(verify["messages"][2]["tool_calls"][0]["function"]["arguments"]) == {"order_id": "17"}
    assert verify["messages"][3] == {"role": "tool", "content": "shipped", "tool_call_id": "call_0_0"}
    assert verify["tools"] == draft["tools"]
    assert (draft["tool_choice"], verify["tool_choice"]) == ("auto", "none")
    assert verify["structured_outputs"] == {"choice": ["0", "1"]}
    assert "structured_outputs" not in draft
    assert verify["max_completion_tokens"] == 4


def test_a_server_that_is_not_vllm_gets_the_labels_as_a_json_schema(url: str, script: Script) -> None:
    script.owner = "somebody"
    script.pieces = [piece(content='{"verdict": '), piece(content='"1"}'), piece("stop"), usage()]
    assert ask(url, VERIFY).text == "1"
    (body,) = script.asked
    assert "structured_outputs" not in body
    assert body["response_format"]["json_schema"]["schema"]["properties"]["verdict"]["enum"] == ["0", "1"]
    assert "strict" not in body["tools"][0]["function"]


def test_a_cut_verdict_is_marked_as_cut(url: str, script: Script) -> None:
    script.pieces = [piece(content="acce"), piece("length"), usage(output=4)]
    answer = ask(url, VERIFY)
    assert (answer.text, answer.finish) == ("acce", "length")


@pytest.mark.parametrize(
    "pieces",
    [
        [call_piece('{"order_id": "17', "get_order"), piece("tool_calls")],
        [call_piece('["17"]', "get_order"), piece("tool_calls")],
        [call_piece('{"order_id": NaN}', "get_order"), piece("tool_calls")],
        [call_piece("{}", "drop_table"), piece("tool_calls")],
        [call_piece('{"order_id": "17"}', "get_order"), piece("length")],
        [call_piece("{}", "get_order"), call_piece("{", "get_order", 1), piece("tool_calls")],
    ],
    ids=["half", "no object", "not a number", "unknown tool", "cut", "one of two"],
)
def test_a_garbled_call_is_no_call(url: str, script: Script, pieces: list[dict]) -> None:
    script.pieces = [*pieces, usage()]
    answer = ask(url, DRAFT)
    assert answer.tool_uses == ()
    assert answer.finish == "length"
    assert answer.text  # what came stays readable in the journal


def test_where_a_call_is_required_speaking_is_one_more_tool_in_every_request(url: str, script: Script) -> None:
    script.pieces = [call_piece('{"text": "It has shipped."}', "reply_to_user"), piece("stop"), usage()]
    answer = ask(url, DRAFT, tool_choice="required")
    assert (answer.text, answer.tool_uses, answer.finish) == ("It has shipped.", (), "stop")
    script.pieces = [piece(content="1"), piece("stop"), usage()]
    ask(url, VERIFY, tool_choice="required")
    draft, verify = script.asked
    assert [t["function"]["name"] for t in draft["tools"]] == ["get_order", "reply_to_user"]
    assert verify["tools"] == draft["tools"]
    assert draft["tool_choice"] == "required"
    assert draft["tools"][0]["function"]["strict"] is True


@pytest.mark.parametrize(("status", "kind"), [(500, EngineError), (429, EngineError), (400, EngineError)])
def test_a_failing_server_is_an_engine_error_of_one_line(
    url: str, script: Script, status: int, kind: type[Exception]
) -> None:
    script.status = status
    with pytest.raises(kind, match=f"answered {status}") as caught:
        ask(url, DRAFT)
    assert "\n" not in str(caught.value)
    assert len(script.asked) == 1  # the driver decides whether to ask again


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refused_key_or_unknown_model_is_the_users_to_mend(url: str, script: Script, status: int) -> None:
    script.status = status
    with pytest.raises(InputError, match=f"answered {status}"):
        ask(url, DRAFT)


def test_a_connection_that_is_refused_is_an_engine_error() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    port = server.server_port
    server.server_close()
    with pytest.raises(EngineError, match="cannot be reached"):
        ask(f"http://127.0.0.1:{port}/v1", DRAFT, tries=2)


def test_an_answer_that_breaks_off_is_an_engine_error(url: str, script: Script) -> None:
    script.pieces = [piece(content="Hel")]
    with pytest.raises(EngineError, match="ended an answer"):
        ask(url, DRAFT)
    script.pieces = [piece(content="Hel"), "data: {half"]
    with pytest.raises(EngineError, match="broke off"):
        ask(url, DRAFT)


def test_a_server_that_stays_silent_is_an_engine_error(url: str, script: Script) -> None:
    script.hang = True
    with pytest.raises(EngineError, match="no answer within"):
        ask(url, DRAFT, timeout_s=0.2)


def test_a_server_that_counts_nothing_is_refused(url: str, script: Script) -> None:
    script.pieces = [piece(content="Hello"), piece("stop")]
    with pytest.raises(InputError, match="token usage"):
        ask(url, DRAFT)


def test_a_server_without_a_list_of_models_needs_the_model_named(url: str, script: Script) -> None:
    script.models_status = 404
    script.pieces = [piece(content="Hello"), piece("stop"), usage()]
    with pytest.raises(InputError, match="404"):
        ask(url, DRAFT)
    ask(url, DRAFT, model="mine")
    assert script.asked[-1]["model"] == "mine"


@pytest.mark.parametrize("url", ["127.0.0.1:8000/v1", "ftp://host/v1", "http://", ""])
def test_an_address_that_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="http://"):
        OpenAIServer(url, Ticks())


def test_metrics_are_what_the_counters_grew_by(url: str, script: Script) -> None:
    page = (
        "# HELP vllm:prompt_tokens_total Tokens.\n"
        'vllm:prompt_tokens_total{engine="0",model_name="a b{}"} %s\n'
        'vllm:prefix_cache_hits_total{engine="0"} %s\n'
        'vllm:prefix_cache_hits_total{engine="1"} 1.0\n'
        "process_start_time_seconds 1.7e+09\n"
    )

    async def go() -> list[dict[str, float]]:
        server = OpenAIServer(url, Ticks())
        out = [await server.metrics() for _ in range(4)]
        await server.close()
        return out

    script.pages = [page % (100, 32), page % (150, 64), "half a {line"]
    first, second, broken, gone = asyncio.run(go())
    assert first == {}
    assert second == {"prompt_tokens": 50.0, "prefix_cache_hits_tokens": 32.0}
    assert broken == {}
    assert gone == {}


def said(text: str) -> list[object]:
    return [piece(content=text), piece("stop"), usage()]


def test_a_step_held_to_a_form_is_one_object_by_structured_output(url: str, script: Script) -> None:
    """Calls are read from the text; the chat template still shows the tools; verdicts go as ever."""
    held: dict[str, object] = {"longest_text": 16, "temperature": 1.0}
    script.pieces = said('{"name": "get_order", "arguments": {"order_id": "17"}}')
    call = ask(url, DRAFT, **held)
    assert call.finish == "tool_calls"
    assert call.tool_uses[0].arguments == {"order_id": "17"}
    body = script.asked[-1]
    assert (body["tool_choice"], body["temperature"]) == ("none", 1.0)
    assert body["tools"][0]["function"]["name"] == "get_order"
    assert body["structured_outputs"]["json"]["anyOf"][-1]["properties"]["reply"]["maxLength"] == 16
    script.pieces = said('{"reply": "It is on its way."}')
    assert ask(url, DRAFT, **held).text == "It is on its way."
    script.pieces = said('{"name": "drop_tables", "arguments": {}}')
    unknown = ask(url, DRAFT, **held)
    assert (unknown.finish, unknown.tool_uses) == ("length", ())
    script.pieces = said("1")
    assert ask(url, VERIFY, **held).text == "1"
    assert script.asked[-1]["structured_outputs"] == {"choice": ["0", "1"]}


def test_only_vllm_can_be_held_to_a_form(url: str, script: Script) -> None:
    script.owner = "someone"
    with pytest.raises(InputError, match="no vLLM server"):
        ask(url, DRAFT, longest_text=16)
