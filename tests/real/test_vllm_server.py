"""The client of OpenAI-compatible servers against a real vLLM server with random weights."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from costmodel.protocol import Role
from validate.chat import Message, ToolSpec, ToolUse
from validate.engine import Answer, Ask
from validate.openai_server import OpenAIServer

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

TOOL = ToolSpec(
    name="set_flag",
    description="Sets a flag of an order.",
    parameters={
        "type": "object",
        "properties": {"flag": {"enum": ["open", "closed"]}},
        "required": ["flag"],
        "additionalProperties": False,
    },
)
CHAT = (
    Message(role="system", text="You help the people at the order desk. Read first, change only what was asked."),
    Message(role="user", text="Please close order 17, then tell the customer. " * 6),
)
STEP = (
    Message(role="assistant", tool_uses=(ToolUse(id="call_0", name="set_flag", arguments={"flag": "closed"}),)),
    Message(role="tool", text="closed", tool_call_id="call_0"),
)


class Still:
    """A clock that nobody reads for a time here."""

    def now_s(self) -> float:
        return 0.0


@pytest.fixture(scope="module")
def url(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(tiny_model)),
        *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny", "--block-size", "32"),
        *("--enforce-eager", "--max-model-len", "2048", "--kv-cache-memory-bytes", str(128 << 20)),
        *("--max-num-seqs", "4", "--enable-prompt-tokens-details", "--enable-mfu-metrics"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
    ]
    environment = os.environ | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_DO_NOT_TRACK": "1",
    }
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with (
        log.open("wb") as sink,
        subprocess.Popen(
            command, env=environment, stdout=sink, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as server,
    ):
        said: list[str] = []
        for line in server.stderr:  # ends when the server does
            said.append(line)
            if "Application startup complete" in line:
                break
        else:
            pytest.fail("the server did not start: " + "".join(said)[-2000:])
        drain = threading.Thread(target=server.stderr.read, daemon=True)
        drain.start()
        yield f"http://127.0.0.1:{port}/v1"
        server.terminate()
        server.wait(30)
        drain.join()


def test_calls_verdicts_and_cached_tokens_of_a_server(url: str) -> None:
    def request(kind: str, messages: tuple[Message, ...], **more) -> Ask:
        return Ask(role=Role.WEAK, kind=kind, conversation="a", messages=messages, tools=(TOOL,), **more)

    async def go() -> tuple[Answer, Answer, Answer, dict[str, float]]:
        server = OpenAIServer(url, Still(), tool_choice="required")
        await server.metrics()
        review = (*CHAT, *STEP, Message(role="user", text="How many of the steps above are valid?"))
        first = await server.ask(request("draft", CHAT, max_tokens=400))
        second = await server.ask(request("draft", (*CHAT, *STEP), max_tokens=400))
        verdict = await server.ask(request("verify", review, labels=("0", "1"), max_tokens=4))
        grown = await server.metrics()
        await server.close()
        return first, second, verdict, grown

    first, second, verdict, grown = asyncio.run(go())
    assert first.cached_tokens == 0
    assert second.cached_tokens >= 32
    assert second.cached_tokens % 32 == 0
    assert verdict.cached_tokens >= second.cached_tokens
    assert verdict.text in {"0", "1"}
    assert verdict.finish == "stop"
    assert verdict.output_tokens <= 2  # the label and the end
    assert grown["prompt_tokens"] == sum(a.prompt_tokens for a in (first, second, verdict))
    assert grown["prefix_cache_hits_tokens"] == sum(a.cached_tokens for a in (first, second, verdict))
    for answer in (first, second):
        assert answer.finish in ("tool_calls", "stop", "length")
        assert all(use.name == "set_flag" and use.arguments["flag"] in ("open", "closed") for use in answer.tool_uses)


def test_a_servers_counters_are_the_cost_models_with_the_named_differences(url: str, tiny_model: Path) -> None:
    from costmodel.deployment import deploy
    from costmodel.models import model
    from validate.calibrate_targets import HttpTarget
    from validate.counters_server import Counted

    prompt = [256 + 7 * i % 300 for i in range(192)]
    others = [[256 + (50 * k + 3 * i) % 300 for i in range(60)] for k in range(4)]

    async def go() -> list[dict]:
        found = []
        for groups in ([([prompt], 1), ([[*prompt, *range(300, 340)]], 12)], [(others, 20)]):
            counted = Counted(HttpTarget(url))
            await counted.begin()
            for prompts, n_tokens in groups:
                await counted.together(prompts, n_tokens)
            found.append(await counted.compared(deploy(model(str(tiny_model / "config.json")), "h200")))
            await counted.target.close()
        return found

    alone, at_once = asyncio.run(go())
    assert alone["requests"] == 2
    assert alone["engine_steps"] == 1 + 12
    assert at_once["engine_steps"] < 4 * 20
    for one in (alone, at_once):
        assert one["other_prompt_tokens"] == 0
        assert one["flops"]["ratio"] == pytest.approx(1.0, abs=0.2)  # attention is much of so small a model
        for name in ("flops", "read_bytes", "write_bytes"):
            assert one[name]["explained"] == pytest.approx(1.0, rel=1e-9), name
