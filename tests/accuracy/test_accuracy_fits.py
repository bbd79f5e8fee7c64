"""The fits find what rows were made with, and the bands' table is looked up from the special to the general."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from validate.accuracy import bands, fit_edge, fit_generations
from validate.accuracy.factors import row_factors
from validate.accuracy.predict import prepare
from validate.accuracy.tables import Row, parse_note


def row(**changes) -> Row:
    base = {
        "table": "mine", "line": 2, "source": "me", "hardware": "RTX 4090 24GB", "n_devices": 1,
        "model": "Llama-3.1-8B", "weight_dtype": "q4_0", "kv_dtype": "f16", "engine": "llama.cpp (May 2024)",
        "phase": "decode", "batch": 1.0, "input_tokens": 1.0, "context_tokens": 512.0, "output_tokens": 1.0,
        "metric": "step_ms", "value": 1.0, "unit": "ms", "kind": "measured", "note": parse_note(""), "text": {},
    }  # fmt: skip
    return Row(**{**base, **changes})


def made(rows: list[Row], factors: dict, generations: dict) -> list[Row]:
    values = prepare(rows).values(factors, generations)
    return [replace(r, value=float(v)) for r, v in zip(rows, values, strict=True)]


def test_the_edge_fit_finds_the_factors_rows_were_made_with():
    shapes = [("decode", 1.0, c) for c in (0.0, 512.0, 2048.0)] + [("prefill", n, 0.0) for n in (512.0, 1024.0, 2048.0)]
    models = ("Llama-3.1-8B", "Llama-3.2-3B", "Qwen3-4B")
    rows = [row(model=m, phase=p, input_tokens=n, context_tokens=c) for m in models for p, n, c in shapes]
    truth = {"rtx-4090/q4_0/llama.cpp": {"gemm_memory": 0.62, "gemm_compute": 0.45}}
    rows = made(rows, truth, {})
    found = fit_edge.fit(rows, {})
    errors = np.log(prepare(rows).values(found, {}) / [r.value for r in rows])
    assert float(np.abs(errors).max()) < 0.06  # the priors pull, the first values are 0.8 and 0.7
    assert found["rtx-4090/q4_0/llama.cpp"]["gemm_memory"] == pytest.approx(0.62, rel=0.08)


def test_an_unseen_device_takes_its_classes_values():
    found = fit_edge.fit(made([row(context_tokens=float(c)) for c in range(0, 4000, 400)], {}, {}), {})
    subject = prepare([row(hardware="RTX 3090 24GB")]).subjects[0]
    assert subject is not None
    assert row_factors(subject, found, {})["gemm_memory"] == found["class:workstation/q4_0/llama.cpp"]["gemm_memory"]


def test_the_generation_fit_finds_the_host_time_rows_were_made_with():
    engine = {"hardware": "H100-SXM-80GB", "weight_dtype": "fp16", "kv_dtype": "fp16", "engine": "vllm (2023)",
              "source": "splitwise-sim"}  # fmt: skip
    rows = [row(batch=float(b), **engine) for b in (1, 2, 4, 8, 16, 32, 64)]
    rows += [row(batch=1.0, phase="prefill", input_tokens=float(n), context_tokens=0.0, **engine) for n in (512, 2048)]
    host = {"vllm-2023": {"host_step_s": 12e-3, "host_seq_s": 0.3e-3, "compute_scale": 0.7}}
    rows = made(rows, {}, host)
    found = fit_generations.fit(rows, {}, {})
    assert list(found) == ["vllm-2023/h100"]
    errors = np.log(prepare(rows).values({}, found) / [r.value for r in rows])
    assert float(np.abs(errors).max()) < 0.05


def test_bands_are_looked_up_from_the_special_to_the_general(monkeypatch):
    subject = prepare([row()]).subjects[0]
    assert subject is not None
    tables = {"decode": {"default": 0.1, "unseen_device": 0.3}}
    monkeypatch.setattr(bands, "bundled_bands", lambda: tables)
    assert bands.half_width(subject, True) == pytest.approx(0.1)
    assert bands.half_width(subject, False) == pytest.approx(np.hypot(0.1, 0.3))
    tables["decode/edge"] = {"default": 0.2, "q4_0": 0.25}
    assert bands.half_width(subject, True) == pytest.approx(0.25)
    tables["decode/llama.cpp"] = {"default": 0.4}
    assert bands.half_width(subject, True) == pytest.approx(0.4)


def test_every_bundled_width_is_a_width():
    for kind, table in bands.bundled_bands().items():
        assert all(0 <= value < 3 for value in table.values()), kind
