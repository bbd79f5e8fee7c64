"""Prices of rows: API bills, links, host time, and many factor samples at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.acceptance import AcceptanceLaw
from costmodel.api import api, api_names
from costmodel.cost import COLUMNS, PHASES
from costmodel.deployment import deploy
from costmodel.expect import compile_tape, expect
from costmodel.ledger import request_shares, work_shares
from costmodel.pricing import NetworkLink, Pricing, Site, central_factors
from costmodel.protocol import Role
from costmodel.request import plan_request
from costmodel.session import EngineRequest, ProtocolSizes, ToolRun
from costmodel.strategies import strategy
from costmodel.task import Task, TaskStep
from costmodel.trajectory import Effect
from costmodel.walk import forced, walk
from hwprofiles import InputError

USD, WALL = COLUMNS.index("api_usd"), COLUMNS.index("wall_s")
SONNET = api("anthropic/claude-sonnet-4-6")
WEAK = Site(server=deploy("Qwen/Qwen3.5-4B", "h200"))
LINK = NetworkLink(rtt_s=0.2, bytes_per_s=1e5, token_bytes=4.0)


def phase(name):
    return PHASES.index(name)


def make_task(n, effect=Effect.READ, prompt=2000):
    steps = tuple(TaskStep(i, effect, 100, 100, 100, 300, 0.0) for i in range(n))
    return Task("t", ((Role.WEAK, prompt), (Role.STRONG, prompt)), 0, steps)


def test_list_prices_are_per_token():
    assert SONNET.input_usd == 3e-6
    assert SONNET.cached_usd == pytest.approx(0.3e-6)
    assert SONNET.cache_write_usd == 3.75e-6
    assert SONNET.output_usd == 15e-6
    # no price for cache writes: they cost what input costs
    assert api("openai/gpt-5-mini").cache_write_usd == api("openai/gpt-5-mini").input_usd
    for name in api_names():
        one = api(name)
        assert one.cached_usd < one.input_usd < one.output_usd
        assert one.request_s.low <= one.request_s.value <= one.request_s.high


def test_an_unknown_api_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'anthropic/claude-haiku-4-5'"):
        api("anthropic/claude-haiku-45")


def test_the_bill_of_strong_only_by_hand():
    pricing = Pricing({Role.WEAK: WEAK, Role.STRONG: Site(server=SONNET)})
    path = walk(make_task(2), strategy("strong_only"), forced([]), pricing, ProtocolSizes())
    # first: 2,000 written to the cache, 100 out. second: 2,000 read, its own 100 and 300 observed written, 100 out
    writes, reads, out = 2000 + 400, 2000, 200
    assert path.column("api_usd") == pytest.approx((3.75 * writes + 0.3 * reads + 15 * out) / 1e6)
    # latency: a fixed part per call and a part per output token; no engine of ours is busy
    assert path.wall_s == pytest.approx(2 * SONNET.request_s.value + out * SONNET.output_token_s.value)
    assert path.column("busy_s") == path.column("flops") == 0


def test_a_review_and_a_fresh_repair_are_two_calls():
    pricing = Pricing({Role.WEAK: WEAK, Role.STRONG: Site(server=SONNET)})
    path = walk(make_task(1), strategy("step_verification"), forced([False]), pricing, ProtocolSizes(60, 10))
    # review: 2,000 + 100 + 300 + 60 written, 10 out; repair: of 2,000 all but the last read from the cache, 100 out
    usd = (3.75 * 2460 + 15 * 10) + (0.3 * 1999 + 3.75 * 1 + 15 * 100)
    assert path.column("api_usd") == pytest.approx(usd / 1e6)
    strong_s = 2 * SONNET.request_s.value + 110 * SONNET.output_token_s.value
    assert path.wall_s == pytest.approx(strong_s + weak_seconds(path))


def weak_seconds(path):
    return path.ledger[phase("wasted_draft"), WALL] + host_of_weak(2000)


def host_of_weak(prompt):
    f = {k: v.value for k, v in WEAK.server.engine.factors.items()}
    return f["request_s"] + f["request_token_s"] * prompt


def test_short_prompts_are_neither_cached_nor_written():
    pricing = Pricing({Role.WEAK: WEAK, Role.STRONG: Site(server=SONNET)})
    path = walk(make_task(2, prompt=300), strategy("strong_only"), forced([]), pricing, ProtocolSizes())
    # 300 and 700 tokens, below 1,024: plain input both times
    assert path.column("api_usd") == pytest.approx((3.0 * (300 + 700) + 15 * 200) / 1e6)


def test_a_link_costs_a_round_trip_and_every_token():
    pricing = Pricing({Role.WEAK: WEAK, Role.STRONG: Site(server=SONNET, link=LINK)})
    path = walk(make_task(2), strategy("strong_only"), forced([]), pricing, ProtocolSizes())
    tokens = (2000 + 100) + (2400 + 100)
    assert path.ledger[phase("network"), WALL] == pytest.approx(2 * 0.2 + tokens * 4 / 1e5)
    assert path.ledger[phase("network")].sum() == path.ledger[phase("network"), WALL]


def test_a_pass_is_shared_among_phases_by_tokens():
    rule = WEAK.server.engine.page_tokens
    request = EngineRequest(
        Role.WEAK, "verify", 0, 1000, 0, 5, (("prompt_prefill", 600), ("verify_prefill", 1000)), "x"
    )
    pricing = Pricing({Role.WEAK: Site(server=deploy("Qwen/Qwen3-8B", "h200")), Role.STRONG: WEAK})
    plan = plan_request(pricing.rules[Role.WEAK], 1000, 0, 5)
    shares = request_shares(request, plan, pricing.shapes[Role.WEAK])
    prefill = {s.phase: s.count for s in shares if s.row.kind == "prefill"}
    assert prefill == {"prompt_prefill": 0.6, "verify_prefill": 0.4}
    # four decode passes, on contexts 1001 .. 1004
    assert [s.count for s in shares if s.row.kind == "decode_step"] == [4.0]
    assert [s.count for s in shares if s.row.kind == "decode_context"] == [1001 + 1002 + 1003 + 1004]
    assert [s.count for s in shares if s.row.kind in ("host_request", "host_token")] == [1.0, 1000.0]
    assert rule == 16


def test_waste_moves_everything_but_host_and_network():
    pricing = Pricing({Role.WEAK: Site(server=WEAK.server, link=LINK), Role.STRONG: WEAK})
    request = EngineRequest(Role.WEAK, "draft", 0, 1000, 0, 5, (("prompt_prefill", 1000),), "draft_decode")
    shape = pricing.shapes[Role.WEAK]
    shares = work_shares(request, pricing.plan(request), shape, wasted=True)
    assert {s.phase for s in shares} == {"wasted_draft", "host", "network"}
    assert work_shares(ToolRun(0, 2.0), None, None, wasted=True)[0].phase == "wasted_tool"
    assert work_shares(ToolRun(0, 2.0), None, None, wasted=False)[0][1:] == ("tool", 2.0)


@pytest.mark.parametrize(
    "strong", [WEAK, Site(server=SONNET, link=LINK), Site(server=deploy("openai/gpt-oss-20b", "b200"))]
)
def test_samples_at_once_equal_a_loop_over_them(strong):
    sites = {Role.WEAK: WEAK, Role.STRONG: strong}
    central = central_factors(sites)
    rng = np.random.default_rng(3)
    samples = {k: v * rng.uniform(0.8, 1.0, size=(6, 1)) for k, v in central.items()}
    law, sizes = AcceptanceLaw(), ProtocolSizes()
    tape = compile_tape(strategy("spec_agent", 3), [make_task(4)], law, Pricing(sites), sizes)
    shifts = rng.normal(1.5, 0.5, 6)
    many = expect(tape, shifts, Pricing(sites, samples))
    for i in range(6):
        one = expect(tape, shifts[i], Pricing(sites, {k: float(v[i, 0]) for k, v in samples.items()}))
        np.testing.assert_allclose(many.ledger[i], one.ledger[0], rtol=1e-10, atol=1e-300)
    # samples of prices alone, one acceptance for all
    priced = expect(tape, 1.5, Pricing(sites, samples))
    assert priced.ledger.shape[0] == priced.counts.shape[0] == 6
    np.testing.assert_array_equal(priced.counts[0], priced.counts[5])


def test_some_factors_may_be_samples_and_others_numbers():
    sites = {Role.WEAK: WEAK, Role.STRONG: Site(server=deploy("Qwen/Qwen3-8B", "b200"))}
    tape = compile_tape(strategy("spec_agent", 3), [make_task(4)], AcceptanceLaw(), Pricing(sites), ProtocolSizes())
    slower = np.array([[1.0], [0.5]]) * central_factors(sites)["b200.gemm_memory"]
    found = expect(tape, 1.0, Pricing(sites, {"b200.gemm_memory": slower}))
    assert found.column("wall_s")[1] > found.column("wall_s")[0]
    drafts = found.ledger[:, phase("draft_decode"), WALL]
    assert drafts[0] == drafts[1]


def test_roles_on_one_kind_of_device_share_its_factors_and_must_agree():
    other = replace(WEAK.server.efficiency.factors["gemm_memory"], value=0.1)
    mine = replace(WEAK.server.efficiency, factors={**WEAK.server.efficiency.factors, "gemm_memory": other})
    sites = {Role.WEAK: WEAK, Role.STRONG: Site(server=deploy("Qwen/Qwen3-8B", "h200", efficiency=mine))}
    with pytest.raises(InputError, match=r"h200\.gemm_memory"):
        central_factors(sites)


def test_both_roles_share_one_link():
    sites = {
        Role.WEAK: Site(server=WEAK.server, link=LINK),
        Role.STRONG: Site(server=SONNET, link=replace(LINK, rtt_s=0.5)),
    }
    with pytest.raises(InputError, match=r"link\.rtt_s"):
        central_factors(sites)
