"""Targets: which rows count, when a target is met, what the page says; widths that know uneven devices and places."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from validate import fit_bands, fit_targets
from validate.accuracy import bands, fit_widths, page_targets
from validate.accuracy.fit_covariance import covariance_lines, curvature
from validate.accuracy.predict import prepare
from validate.accuracy.tables import Row, parse_note
from validate.fit_targets_list import BANDS, TARGETS

COMMITTED = Path(__file__).parents[2] / "docs" / "accuracy" / "targets.json"


def row(**changes) -> Row:
    base = {
        "table": "aic_silicon_db_steps", "line": 2, "source": "aic", "hardware": "H100-SXM-80GB", "n_devices": 1,
        "model": "Qwen/Qwen3-8B", "weight_dtype": "bf16", "kv_dtype": "bf16", "engine": "aic: vllm",
        "phase": "prefill", "batch": 1.0, "input_tokens": 64.0, "context_tokens": 8192.0, "output_tokens": 0.0,
        "metric": "step_ms", "value": 50.0, "unit": "ms", "kind": "silicon-database estimate", "note": parse_note(""),
        "text": {},
    }  # fmt: skip
    return Row(**{**base, **changes})


def errors_of(rows: list[Row], values: list[float]) -> fit_targets.Errors:
    by = {judged: np.array(values) for target in TARGETS for judged in target.judged}
    return fit_targets.Errors(rows, prepare(rows), by)


def test_warm_rows_are_judged_by_what_they_read():
    light, heavy = row(), row(value=2.0)
    found = errors_of([light, heavy], [0.0, 0.0])
    by_regime = {t.regime: t for t in TARGETS}
    masks = {r: found.mask(t.part).tolist() for r, t in by_regime.items() if r.startswith("warm")}
    assert masks == {
        "warm prefix, KV read < 5 % of the step": [True, False],
        "warm prefix, KV read >= 5 %, as its source prices it": [False, True],
    }


def test_a_target_is_met_only_by_both_of_its_figures():
    target = TARGETS[0]
    rows = [row(phase="decode", input_tokens=1.0, value=7.0 + i) for i in range(11)]
    fine = errors_of(rows, [0.03] * 10 + [0.1])
    tail = errors_of(rows, [0.03] * 8 + [0.3] * 3)
    for errors, met in ((fine, True), (tail, False)):
        found = fit_targets.scored(errors, "in the fit", errors.mask(target.part), target)
        assert (found.n, found.met) == (11, met)
    assert fit_targets.scored(fine, "in the fit", np.zeros(11, dtype=bool), target).met is None


def test_in_band_is_the_share_within_the_half_width():
    rows = [row(phase="decode", input_tokens=1.0, value=7.0) for _ in range(4)]
    subject = prepare(rows).subjects[0]
    half = bands.half_width(subject, True)
    errors = errors_of(rows, [0.5 * half, -0.5 * half, 2 * half, -0.9 * half])
    found = fit_targets.scored(errors, "in the fit", errors.mask(TARGETS[0].part), TARGETS[0])
    assert found.in_band == 0.75
    assert found.band_log_width == pytest.approx(2 * half)


def test_a_device_whose_steps_spread_more_gets_its_own_width():
    rows = [row(phase="decode", input_tokens=1.0, hardware=h) for h in ("H100-SXM-80GB", "B200-SXM-180GB") * 200]
    prepared = prepare(rows)
    b200 = np.array([s.device.name == "b200" for s in prepared.subjects])
    errors = np.abs(np.random.default_rng(1).normal(0, np.where(b200, 0.2, 0.05)))
    found = fit_bands._with_uneven_devices(prepared, errors, np.ones(400, dtype=bool), "bf16")
    assert set(found) == {"bf16", "bf16/b200"}
    assert np.mean(errors[~b200] <= found["bf16"]) == pytest.approx(0.9, abs=0.01)
    assert np.mean(errors[b200] <= np.hypot(found["bf16"], found["bf16/b200"])) == pytest.approx(0.9, abs=0.01)


def test_widths_know_the_class_and_number_of_devices():
    one = prepare([row(hardware="RTX 4090 24GB", engine="llama.cpp (May 2024)", weight_dtype="q4_0")]).subjects[0]
    assert bands.place(one) == "workstation"
    assert bands.place(replace(one, n_devices=2)) == "workstation, several"
    assert bands.place(prepare([row()]).subjects[0]) == ""


def test_widths_of_kinds_without_rows_are_kept(tmp_path):
    file = tmp_path / "widths.toml"
    file.write_text('[bands."prefill/edge"]\ndefault = 0.4\n[bands."decode/edge"]\ndefault = 0.3\n', encoding="utf-8")
    assert fit_widths.kept(file, [row(phase="decode", input_tokens=1.0)]) == {"prefill/edge": {"default": 0.4}}
    assert fit_widths.kept(tmp_path / "none.toml", []) == {}


def test_the_covariance_is_the_inverse_curvature_of_a_robust_loss():
    jacobian = np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert curvature(np.zeros(3), jacobian) == pytest.approx(np.linalg.inv(jacobian.T @ jacobian))
    far = curvature(np.array([1e4, 0.0, 0.0]), jacobian)  # a row that the loss discounts says next to nothing
    assert far == pytest.approx(np.linalg.inv(jacobian[1:].T @ jacobian[1:]), rel=1e-3)
    lines = covariance_lines("x/y", ["a", "b"], np.array([[1.0, 0.5], [0.5, 2.0]]))
    assert lines[:3] == ['[covariance."x/y"]', 'names = ["a", "b"]', "lower = [1, 0.5, 2]"]


def test_a_source_may_charge_less_for_a_cached_prefix_and_nobody_else_does():
    prepared = prepare([row(input_tokens=16.0, context_tokens=30000.0, batch=16.0)])
    real = float(prepared.values({}, {})[0])
    as_source = float(prepared.values({}, {"silicon-database": {"prefix_read_share": 0.02}})[0])
    assert as_source < 0.8 * real
    cold = prepare([row(context_tokens=0.0)])
    assert cold.values({}, {}) == cold.values({}, {"silicon-database": {"prefix_read_share": 0.02}})


def test_the_page_says_what_is_not_met():
    line = {
        "regime": "decode", "judged": "in the fit", "n": 3, "median_ape": 9.0, "p90_ape": 20.0, "bias": 1.0,
        "in_band": 0.9, "band_log_width": 0.3, "target_median": 4.0, "target_p90": 12.0, "met": False,
    }  # fmt: skip
    text = "\n".join(page_targets.sections({"targets": [line], "bands": [{**line, "n": 0}]}))
    assert "| decode | in the fit | 3 | 9.0 | 20.0 | 1.0 | 90 % | 0.30 | 4 / 12: **not met** |" in text
    assert "- decode, in the fit: 9.0 / 20.0." in text


def test_every_regime_is_in_the_committed_table():
    found = json.loads(COMMITTED.read_text(encoding="utf-8"))
    for name, wanted in (("targets", TARGETS), ("bands", BANDS)):
        lines = {(line["regime"], line["judged"]) for line in found[name]}
        assert lines == {(t.regime, judged) for t in wanted for judged in t.judged}
    missed = {line["regime"] for line in found["targets"] if line["met"] is False}
    assert missed <= set(page_targets.SETTLE)
