"""The fits find what rows were made with, and the bands' table is looked up from the special to the general."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from validate.accuracy import bands, fit_edge, fit_edge_devices, fit_generations
from validate.accuracy.factors import row_factors
from validate.accuracy.predict import prepare
from validate.accuracy.score import NO_BAND, cannot_tell
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


def test_what_plans_take_of_the_edge_fit_is_the_device_with_its_libraries_and_an_unseen_one_in_a_wider_band():
    devices = ("RTX 4090 24GB", "RTX 3090 24GB", "RTX 3060 12GB")
    shapes = [("decode", 1.0, c) for c in (0.0, 512.0, 2048.0)] + [("prefill", n, 0.0) for n in (512.0, 2048.0)]
    rows = [
        row(hardware=d, weight_dtype=w, phase=p, input_tokens=n, context_tokens=c)
        for d in devices for w in ("q4_0", "q8_0") for p, n, c in shapes
    ]  # fmt: skip
    truth = {f"{d}/{w}/llama.cpp": {"gemm_memory": m} for d, m in zip(
        ("rtx-4090", "rtx-3090", "rtx-3060"), (0.8, 0.65, 0.5), strict=True) for w in ("q4_0", "q8_0")}  # fmt: skip
    found = fit_edge_devices.entries(fit_edge.solve(made(rows, truth, {}), {}))
    assert set(found) == {"class:workstation", "rtx-4090", "rtx-3090", "rtx-3060"}
    unseen = found["class:workstation"]["gemm_memory"]
    for device, value in (("rtx-4090", 0.8), ("rtx-3090", 0.65), ("rtx-3060", 0.5)):
        own = found[device]["gemm_memory"]
        assert own.value == pytest.approx(value, rel=0.08)
        assert own.low < value < own.high
        assert own.high / own.low < unseen.high / unseen.low
        assert unseen.low < value < unseen.high


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


def test_every_bundled_width_is_a_width_but_for_first_tokens_under_open_loads():
    """First tokens near saturation are not told: their bands are reported as such (`score.cannot_tell`)."""
    for kind, table in bands.bundled_bands().items():
        untold = kind.startswith(("ttft/", "ttft_tail/"))
        assert all(value >= 0 and (untold or value <= NO_BAND / 2) for value in table.values()), kind


def test_a_band_wider_than_a_factor_of_ten_either_way_is_no_prediction():
    assert not cannot_tell({"band_log_width": 2 * np.log(9.0)})
    assert cannot_tell({"band_log_width": 2 * np.log(11.0)})
    assert not cannot_tell({"band_log_width": None})
