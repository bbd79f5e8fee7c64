"""Serving rows: the load they state, the closed form against the simulation, one simulation for all metrics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.step import StepModel
from simulator.arrivals import TraceRequest
from simulator.request_stream import stream
from validate.accuracy import serving, serving_runs
from validate.accuracy.factors import row_factors
from validate.accuracy.kinds import Subject, classify, generation, row_kind, serving_metric
from validate.accuracy.predict import predict_rows, prepare
from validate.accuracy.serving_cycle import Cycles
from validate.accuracy.serving_load import OFFLINE_SEQS, Load, load_of
from validate.accuracy.serving_runs import played
from validate.accuracy.steps import Steps, deployment
from validate.accuracy.tables import Row, parse_note

HOST = {"vllm-2026": {"host_step_s": 0.5e-3, "host_seq_s": 0.01e-3, "request_s": 0.0, "admit_steps": 1.0}}
# an answer leaves as the next step begins, so that a client's next request waits for one step


def row(note: str = "", **changes) -> Row:
    base = {
        "table": "serving_mine", "line": 2, "source": "me", "hardware": "H100-SXM-80GB", "n_devices": 1,
        "model": "meta-llama/Llama-3.1-8B", "weight_dtype": "bf16", "kv_dtype": "bf16", "engine": "vllm-0.19.0",
        "phase": "e2e", "batch": None, "input_tokens": 600.0, "context_tokens": 0.0, "output_tokens": 100.0,
        "metric": "ttft_mean_ms", "value": 1.0, "unit": "ms", "kind": "measured (serving)", "note": parse_note(note),
        "text": {},
    }  # fmt: skip
    return Row(**{**base, **changes})


def subject_of(one: Row) -> Subject:
    found = classify(one)
    assert isinstance(found, Subject)
    return found


@pytest.mark.parametrize(
    ("note", "source", "rates", "output"),
    [
        ("rate_req_s=5", "me", (5.0,), 100),
        ("rate_req_s=8/20", "me", (8.0, 20.0), 100),
        ("dataset=sharegpt 300 requests at 10 req/s (file name)", "me", (10.0,), 100),
        ("workload=codegen;stage=-1;run=x", "BLIS", (5.0, 10.0), 247),
        ("workload=codegen;stage=1;run=x", "BLIS", (10.0,), 247),
        ("workload=codegen;stage=stage_0;rate_req_s=5", "BLIS", (5.0,), 247),
    ],
)
def test_the_rate_is_stated_or_that_of_the_workload(note, source, rates, output):
    load = load_of(row(note, source=source), "vllm")
    assert isinstance(load, Load)
    assert (load.rates_per_s, load.output_tokens, load.clients) == (rates, output, 0)


@pytest.mark.parametrize(
    "note", ["", "rate_req_s=often", "rate_req_s=0", "workload=codegen;stage=2", "workload=general;run=17-general-lite"]
)
def test_a_rate_that_nobody_states_is_no_load(note):
    assert load_of(row(note, source="BLIS"), "vllm") == "neither concurrency nor request rate stated"


def test_limits_come_from_the_row_or_the_engines_defaults():
    load = load_of(
        row("max_num_seqs=128;max_batched_tokens=2048.0;shared_prefix_tokens=900;multi_turn=1", batch=9.0), "sglang"
    )
    assert isinstance(load, Load)
    assert (load.max_seqs, load.chunk_tokens, load.shared_tokens) == (128, 2048, 599)
    assert load.turns
    assert load.alone
    queued = load_of(row("maximum load, all requests queued"), "trtllm")
    assert isinstance(queued, Load)
    assert queued.clients == OFFLINE_SEQS


@pytest.mark.parametrize(
    ("metric", "meant", "kind"),
    [
        ("ttft_ms", ("ttft", None), "ttft"),
        ("itl_mean_ms", ("tpot", None), "tpot"),
        ("tpot_p50_derived_ms", ("tpot", 0.5), "tpot"),
        ("e2e_p99_ms", ("e2e", 0.99), "e2e_tail"),
        ("output_tok_s", ("rate", None), "throughput"),
        ("req_s", ("rate", None), "throughput"),
    ],
)
def test_metrics_and_their_kinds(metric, meant, kind):
    one = row(metric=metric, batch=4.0)
    assert serving_metric(one) == meant
    assert row_kind(one) == kind


@pytest.mark.parametrize(
    ("engine", "note", "meant"),
    [
        ("vllm-0.12.0", "", "vllm-2025"),
        ("vllm-0.19.0", "", "vllm-2026"),
        ("vllm", "measured=2025-10-29", "vllm-2025"),
        ("trtllm-1.1.0rc2.post2", "measured=2026-01-09", "trtllm-2026"),
        ("trtllm-1.0.0rc3", "measured=", "trtllm-2025"),
        ("sglang-0.5.8.post1", "", "sglang-2026"),
        ("sglang-nightly-dev", "", "sglang-2026"),
    ],
)
def test_generations_go_by_year(engine, note, meant):
    assert generation(row(note, engine=engine, batch=4.0)) == meant


@pytest.mark.parametrize(
    ("clients", "prompt", "output"), [(1, 600, 100), (4, 600, 200), (16, 1024, 512), (8, 9000, 300)]
)
def test_the_closed_form_is_the_simulation_of_evenly_spaced_clients(clients, prompt, output):
    one = row(batch=float(clients), input_tokens=float(prompt), output_tokens=float(output))
    subject = subject_of(one)
    load = load_of(one, "vllm")
    assert isinstance(load, Load)
    factors = row_factors(subject, {}, HOST)
    means = Cycles(Steps(subject), [load]).figures(factors)
    dep = deployment(subject)
    dep = replace(dep, engine=replace(dep.engine, chunk_tokens=load.chunk_tokens, max_seqs=clients))
    first = [TraceRequest(0.0, prompt, max(1, output * (i + 1) // clients)) for i in range(clients)]
    rest = [TraceRequest(0.0, prompt, output)] * (3 * clients)
    found = stream([*first, *rest], StepModel(dep, {**factors, "request_token_s": 0.0}), concurrency=clients)
    middle = slice(clients, 3 * clients)
    assert means.ttft[0] == pytest.approx(found.ttft_s[middle].mean(), rel=0.03)
    assert means.tpot[0] == pytest.approx(found.tpot_s[middle].mean(), rel=0.01)
    assert means.e2e[0] == pytest.approx(found.e2e_s[middle].mean(), rel=0.01)
    assert means.rate[0] == pytest.approx(clients / found.e2e_s[middle].mean(), rel=0.01)


def test_clients_beyond_the_room_wait_for_a_place():
    few, many = (
        Cycles(Steps(subject_of(row(batch=4.0))), [replace(_load(clients), max_seqs=4)]).figures(
            row_factors(subject_of(row(batch=4.0)), {}, HOST)
        )
        for clients in (4, 12)
    )
    assert many.rate == pytest.approx(few.rate)
    assert many.tpot == pytest.approx(few.tpot)
    assert many.e2e == pytest.approx(3 * few.e2e, rel=1e-6)


def _load(clients: int) -> Load:
    load = load_of(row(batch=float(clients)), "vllm")
    assert isinstance(load, Load)
    return load


def test_prefills_of_their_own_stop_the_decodes():
    one = row(batch=16.0, input_tokens=4096.0)
    values = {}
    for library in ("vllm", "sglang"):
        load = load_of(one, library)
        assert isinstance(load, Load)
        values[library] = Cycles(Steps(subject_of(one)), [load]).figures(row_factors(subject_of(one), {}, HOST))
    assert values["sglang"].tpot > values["vllm"].tpot
    assert values["sglang"].ttft < values["vllm"].ttft


def test_rows_that_differ_only_in_metric_share_one_simulation(monkeypatch):
    runs = []

    def counted(*given):
        runs.append(given)
        return played(*given)

    monkeypatch.setattr(serving, "played", counted)
    metrics = ("ttft_mean_ms", "ttft_p99_ms", "e2e_p50_ms", "itl_mean_ms", "output_tok_s", "req_s")
    rows = [row("rate_req_s=4", metric=metric) for metric in metrics]
    found = [p.value for p in predict_rows(rows, {}, HOST)]
    assert len(runs) == 1
    assert found[1] >= found[0]
    assert found[2] == pytest.approx(found[0] + 99 * found[3], rel=0.01)
    assert found[4:] == pytest.approx([400.0, 4.0])


def test_an_overload_is_served_at_capacity_and_queues():
    rows = [
        row("rate_req_s=200;requests=300;max_num_seqs=16", metric=m)
        for m in ("output_tok_s", "ttft_p90_ms", "ttft_p50_ms")
    ]
    rate, late, median = (p.value for p in predict_rows(rows, {}, HOST))
    assert rate < 200 * 100
    assert late > 1.5 * median > 1000


def test_stages_count_by_their_requests(monkeypatch):
    monkeypatch.setattr(serving_runs, "COUNTED", 100)
    load = load_of(row("rate_req_s=2/6"), "vllm")
    assert isinstance(load, Load)
    subject = subject_of(row("rate_req_s=2/6"))
    factors = {k: float(v) for k, v in row_factors(subject, {}, HOST).items()}
    both = played(subject, load, factors)
    slow, fast = (played(subject, replace(load, rates_per_s=(r,)), factors) for r in (2.0, 6.0))
    assert both["rate"][0] == pytest.approx(4.0)
    assert both["e2e"].mean() == pytest.approx((slow["e2e"].mean() + 3 * fast["e2e"].mean()) / 4, rel=0.01)


def test_samples_of_factors_price_open_and_closed_rows_alike():
    rows = [row("rate_req_s=4"), row(batch=8.0), row(batch=8.0, metric="tpot_ms")]
    prepared = prepare(rows)
    steps = np.array([[0.5e-3], [2e-3]])
    both = prepared.values({}, {"vllm-2026": {**HOST["vllm-2026"], "host_step_s": steps}})
    for i in range(2):
        one = prepared.values({}, {"vllm-2026": {**HOST["vllm-2026"], "host_step_s": float(steps[i, 0])}})
        assert both[i] == pytest.approx(one)


def test_data_parallel_attention_counts_all_devices():
    note = "attn_dp=2;moe_ep=4;attention data-parallel, n_devices taken as tp"
    assert subject_of(row(note, batch=4.0, n_devices=2)).n_devices == 4
    assert subject_of(row("attn_dp=8", batch=4.0, n_devices=8)).n_devices == 8
