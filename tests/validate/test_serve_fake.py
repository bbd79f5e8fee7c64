"""The fake server: exact counts, the prefix cache, times of the step model, and the HTTP front."""

from __future__ import annotations

import json
import math

import pytest
from starlette.testclient import TestClient

from costmodel.deployment import deploy
from costmodel.request import plan_request
from costmodel.spans import decode_span
from costmodel.step import StepModel
from costmodel.step_parts import BUSY
from hwprofiles.errors import InputError
from validate.serve_fake import FakeService, answer_tokens
from validate.serve_fake_http import application
from validate.server_metrics import counters, labels, samples

PROMPT = list(range(1000, 1800))


@pytest.fixture(scope="module")
def dep():
    return deploy("Qwen/Qwen3-8B", "h200")


def test_a_request_alone_takes_what_the_step_model_says(dep):
    service, model = FakeService(dep), StepModel(dep)
    live = service.submit(PROMPT, 20)
    service.finish([live])
    (part,) = plan_request(model.rule, 800, 0, 20).passes
    prefill = float(model.prefill(part.new_tokens * 1.0, 0.0, 1.0)[BUSY])
    assert live.token_s[0] == pytest.approx(model.request_s(800) + prefill)
    span = {w: decode_span(805.0, 1.0, 1) for w in {*model.windows, None}}
    fifth = float(model.total(model.ops(1.0, 1.0, None, span), 1.0)[1])
    assert live.token_s[5] - live.token_s[4] == pytest.approx(fifth, rel=1e-6)
    assert len(live.token_s) == 20


def test_counts_are_exact_and_a_prefix_is_found_in_whole_blocks(dep):
    service = FakeService(dep)
    service.finish([service.submit(PROMPT, 1)])
    again = service.submit([*PROMPT[:500], *range(300)], 3)
    service.finish([again])
    assert again.result.cached_tokens == 496
    c = service.counts
    assert (c.prompt_tokens, c.generation_tokens, c.hits_tokens, c.finished) == (1600, 4, 496, 2)


def test_sequences_of_one_group_decode_together(dep):
    service = FakeService(dep)
    lives = [service.submit([i] * 100, 8) for i in range(1, 5)]
    service.finish(lives)
    assert len({tuple(live.token_s) for live in lives}) == 1


@pytest.mark.parametrize(("prompt", "n"), [([], 1), ([1], 0), ([1], 10**6)])
def test_what_cannot_be_served_is_refused(dep, prompt, n):
    with pytest.raises(InputError, match="tokens"):
        FakeService(dep).submit(prompt, n)


def test_an_answer_has_the_length_that_was_asked_for():
    assert answer_tokens(PROMPT, {"max_tokens": 7, "ignore_eos": True}, 100) == (7, True)
    free = [answer_tokens([i], {"max_tokens": 4000}, 100)[0] for i in range(300)]
    assert 100 < sum(free) / 300 < 160
    assert all(answer_tokens([i], {"max_tokens": 4000, "min_tokens": 200}, 100)[0] >= 200 for i in range(50))


@pytest.fixture
def client(dep):
    with TestClient(application(FakeService(dep), "Qwen/Qwen3-8B", speed=1e4)) as client:
        yield client


def test_completions_count_by_usage_and_stream_piece_by_piece(client):
    body = {"prompt": PROMPT, "max_tokens": 9, "ignore_eos": True, "stream": True}
    text = client.post("/v1/completions", json={**body, "stream_options": {"include_usage": True}}).text
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    documents = [json.loads(line) for line in lines[:-1]]
    assert documents[-1]["usage"] | {"prompt_tokens_details": None} == {
        "prompt_tokens": 800,
        "completion_tokens": 9,
        "total_tokens": 809,
        "prompt_tokens_details": None,
    }
    said = "".join(d["choices"][0]["text"] for d in documents[:-1])
    assert len(said) == 9 * 4
    assert documents[-2]["choices"][0]["finish_reason"] == "length"
    chat = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 5, "ignore_eos": True}
    whole = client.post("/v1/chat/completions", json=chat).json()
    assert whole["usage"]["completion_tokens"] == 5
    assert whole["choices"][0]["message"]["content"] == " tok" * 5


def test_the_server_says_what_vllm_says_of_itself(client):
    client.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 3, "ignore_eos": True})
    page = client.get("/metrics").text
    assert counters(page)["generation_tokens"] == 3
    assert math.isclose(samples(page)["vllm:prompt_tokens_total"], 800)
    assert labels(page, "vllm:cache_config_info")["block_size"] == "16"
    assert client.get("/v1/models").json()["data"][0]["id"] == "Qwen/Qwen3-8B"
    assert client.get("/version").json()["version"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"prompt": [], "max_tokens": 1}, 400),
        ({"prompt": ["a", "b"]}, 400),
        ({"prompt": "x", "max_tokens": -1}, 400),
        ({"prompt": "x", "max_tokens": 10**9, "ignore_eos": True}, 400),
        ({"prompt": "x", "model": "another"}, 404),
        ([], 400),
    ],
)
def test_bad_requests_are_answered_like_an_api(client, body, status):
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
