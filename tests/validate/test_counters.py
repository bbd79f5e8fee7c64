"""vLLM's counters beside the cost model's: recorded figures, closed forms, and what a server's page is made of."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from costmodel.deployment import deploy
from costmodel.models import model
from costmodel.request import CacheRule, Pass, plan_request
from costmodel.speculation import TokenSpeculation
from costmodel.step import StepModel
from validate.calibrate_probe import Timed
from validate.counters import Step, Work, ours, solo_steps
from validate.counters_differences import differences, idle_step
from validate.counters_server import QUANTITIES, Counted, Request, compared, in_words

QWEN, MOE = "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B"
STEP = Step((Pass(100, 1000, True),), (499,))
RECORDED = {  # vLLM 0.32, ModelMetrics of the real VllmConfig, bf16, one device: FLOPs, bytes read, bytes written
    QWEN: (
        183005872128 + 122003914752 + 2 * 32587776000 + 1098035232768 + 2489319424,
        29786112 + 1811939328 + 265715712 + 29786112 + 1207959552 + 29786112 + 7247757312 + 178716672 + 89358336
        + 3623878656 + 16384 + 1244659712,
        44679168 + 14893056 + 29786112 + 178716672 + 89358336 + 29786112 + 607744,
    ),
    "meta-llama/Llama-3.1-70B": (
        1355599052800 + 1084479242240 + 2 * 144834560000 + 11387032043520 + 4202692608,
        132382720 + 13421772800 + 656670720 + 132382720 + 10737418240 + 132382720 + 75161927680 + 926679040 + 463339520
        + 37580963840 + 32768 + 2101346304,
        165478400 + 33095680 + 132382720 + 926679040 + 463339520 + 132382720 + 513024,
    ),
    MOE: (
        101669928960 + 81335943168 + 2 * 43450368000 + 366011744256 + 1244659712,
        19857408 + 1006632960 + 197001216 + 39714816 + 805306368 + 158859264 + 38654705664 + 119144448 + 59572224
        + 19327352832 + 8192 + 622329856,
        49643520 + 9928704 + 19857408 + 119144448 + 59572224 + 158859264 + 607744,
    ),
}  # fmt: skip


def total(works):
    found = Work()
    for work in works:
        found = found.plus(work)
    return found


def whole(step_model, steps):
    return total([*ours(step_model, steps).values(), *(d.work for d in differences(step_model, steps))])


@pytest.fixture(scope="module")
def qwen():
    return StepModel(deploy(QWEN, "h200", chunk_tokens=2048))


@pytest.mark.parametrize("name", RECORDED)
def test_a_step_as_vllm_counts_it(name):
    found = whole(StepModel(deploy(name, "b200")), [STEP])
    for mine, theirs in zip((found.flops, found.read_bytes, found.write_bytes), RECORDED[name], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9)


def test_the_ledgers_columns_are_these_counts(qwen):
    passes, decode = [Pass(300, 700, True), Pass(64, 0, False)], [900, 1200]
    _, shares = qwen.step(passes, decode)
    mine = total(ours(qwen, [Step(tuple(passes), tuple(decode))]).values())
    flops, weight, kv = shares.sum(axis=0)[:3]
    assert (mine.flops, mine.weight_bytes, mine.kv_read_bytes) == pytest.approx((flops, weight, kv), rel=1e-9)
    activation = shares.sum(axis=0)[4]
    assert mine.input_bytes + mine.output_bytes == pytest.approx(activation, rel=1e-9)


def test_the_mask_is_half_of_the_square_of_the_new_tokens(qwen):
    mask = {d.name: d.work for d in differences(qwen, [Step((Pass(512, 4096, True),))])}["mask"]
    assert mask == Work(flops=4.0 * 32 * 128 * 36 * 512 * 511 / 2)


def test_a_step_that_only_decodes_differs_in_activations_alone(qwen):
    for d in differences(qwen, [Step((), (100, 5000))]):
        assert (d.work.flops, d.work.weight_bytes, d.work.kv_read_bytes, d.work.kv_write_bytes) == (0, 0, 0, 0), d.name


def test_many_steps_are_the_sum_of_each(qwen):
    rule = CacheRule(block_tokens=16, chunk_tokens=512)
    steps = solo_steps([(1300, plan_request(rule, 1300, 200, 5))])
    assert len(steps) == 3 + 4
    assert whole(qwen, steps) == pytest.approx(total(whole(qwen, [s]) for s in steps), rel=1e-12)


def test_experts_of_few_tokens_are_fewer_than_vllm_has():
    experts = StepModel(deploy(MOE, "h200"))
    few, many = [Step((), (99,))], [Step((), (99,) * 8)]
    one, eight = (total(d.work for d in differences(experts, s) if d.name == "experts_read") for s in (few, many))
    assert one == Work()
    assert eight.weight_bytes > 0


def grown(step_model, requests, extra=None):
    """The page of a server that takes these requests one by one, `extra` work besides."""
    rule = replace(step_model.rule, block_tokens=1)
    plans = [(r.prompt_tokens, plan_request(rule, r.prompt_tokens, r.cached_tokens, r.output_tokens)) for r in requests]
    found = whole(step_model, solo_steps(plans)).plus(extra or Work())
    page = {metric: getattr(found, name) for name, metric in QUANTITIES.items()}
    return page | {"vllm:prompt_tokens_total": float(sum(r.prompt_tokens for r in requests))}


REQUESTS = [Request(3000, 0, 1), Request(3300, 2992, 20)]


def test_a_servers_counters_are_explained_idle_steps_included(qwen):
    page = grown(qwen, REQUESTS, total([idle_step(qwen)] * 2))
    found = compared(qwen.dep, REQUESTS, page)
    for name in QUANTITIES:
        assert found[name]["explained"] == pytest.approx(1.0, rel=1e-9)
    assert found["engine_steps"] == 2 + 1 + 19
    assert found["other_prompt_tokens"] == 0
    idle = next(d for d in found["differences"] if d["name"] == "idle_steps")
    assert idle["read_bytes"] == pytest.approx(2 * idle_step(qwen).weight_bytes)
    assert all(d["why"] for d in found["differences"])
    assert found["per_request"]["kv_write_bytes"] == pytest.approx(147456 * (3000 + 308 + 19) / 2)
    assert "1.000 with the named differences" in in_words(found)
    json.dumps(found, allow_nan=False)


def test_work_of_others_is_named_and_not_explained_away(qwen):
    page = grown(qwen, [*REQUESTS, Request(5000, 0, 1)], idle_step(qwen))
    found = compared(qwen.dep, REQUESTS, page)
    assert found["other_prompt_tokens"] == 5000
    assert found["read_bytes"]["explained"] < 0.99
    assert "5000 prompt tokens, given up or of others" in in_words(found)


def test_what_shared_a_step_reads_the_weights_once(qwen):
    page = grown(qwen, REQUESTS) | {"vllm:iteration_tokens_total_count": 15.0}
    found = compared(qwen.dep, REQUESTS, page, alone=False)
    assert found["engine_steps"] == 16
    alone = compared(qwen.dep, REQUESTS, page)
    assert found["per_request"]["weight_bytes"] == pytest.approx(alone["per_request"]["weight_bytes"] * 16 / 22)
    assert found["flops"] == alone["flops"]


def test_experts_that_others_shared_are_not_guessed():
    experts = StepModel(deploy(MOE, "h200"))
    page = grown(experts, REQUESTS) | {"vllm:iteration_tokens_total_count": 15.0}
    found = compared(experts.dep, REQUESTS, page, alone=False)
    assert found["read_bytes"]["predicted"] is found["per_request"]["weight_bytes"] is None
    assert found["flops"]["explained"] == pytest.approx(1.0)
    assert "read_bytes" not in in_words(found)


def test_what_cannot_be_compared_says_why(qwen):
    unknown = compared(qwen.dep, [Request(100, None, 1)], grown(qwen, [Request(100, 0, 1)]))
    assert "--enable-prompt-tokens-details" in unknown["reason"]
    assert in_words(unknown).startswith("not compared, ")
    drafts = TokenSpeculation(method="draft", length=3, acceptance=0.7, model=model("Qwen/Qwen3-0.6B"))
    speculating = deploy(QWEN, "h200", speculation=drafts)
    assert "speculation" in compared(speculating, REQUESTS, grown(qwen, REQUESTS))["reason"]
    with pytest.raises(ValueError, match="speculation"):
        ours(StepModel(speculating), [STEP])


class Server:
    """A target whose page comes from what it was asked."""

    facts, root = None, "http://nowhere"

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def now_s(self) -> float:
        return 0.0

    async def together(self, prompts, output_tokens):
        if output_tokens > 99:
            await asyncio.Event().wait()
        self.requests += [Request(len(p), 0, output_tokens) for p in prompts]
        return [
            Timed(sent_s=0.0, piece_s=(1.0,), prompt_tokens=len(p), cached_tokens=0, output_tokens=output_tokens)
            for p in prompts
        ]


@pytest.mark.parametrize("counts", [True, False])
def test_a_target_notes_what_it_is_asked_and_what_the_server_counts(monkeypatch, qwen, counts):
    server = Server()

    def page(url, timeout_s):
        assert url == "http://nowhere/metrics"
        names = grown(qwen, server.requests) if counts else {"vllm:prompt_tokens_total": 1.0}
        return "".join(f'{name}{{engine="0"}} {value!r}\n' for name, value in names.items())

    monkeypatch.setattr("validate.counters_server.get_page", page)
    monkeypatch.setattr("validate.counters_server._SETTLE_S", 0.0)

    async def go():
        server.requests.append(Request(50, 0, 1))  # somebody else, before
        target = Counted(server)
        await target.begin()
        await target.together([[1] * 200], 3)
        lost = asyncio.ensure_future(target.together([[1] * 10], 100))
        await asyncio.sleep(0)
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        await target.together([[1] * 60], 1)
        return await target.compared(qwen.dep)

    found = asyncio.run(go())
    if not counts:
        assert found is None
        return
    assert (found["requests"], found["given_up"], found["other_prompt_tokens"]) == (2, 1, 0)
    assert found["flops"]["explained"] == pytest.approx(1.0)
