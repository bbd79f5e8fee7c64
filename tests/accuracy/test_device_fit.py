"""The fit of device factors: scales without ends, effects that vanish for unseen devices, known factors recovered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.cost import QUANTITIES
from costmodel.deployment import deploy
from costmodel.ops import Rank
from costmodel.step import StepModel
from hwprofiles import efficiency
from hwprofiles.calibration import fitted_devices
from validate import fit, fit_probe
from validate.accuracy.predict import prepare
from validate.accuracy.tables import COLUMNS, load_rows
from validate.fit_layout import Layout, amount, exponent, from_scale, share, to_scale

TABLES = Path(__file__).parents[3] / "shared" / "measurements"
Q = {name: i for i, name in enumerate(QUANTITIES)}


@pytest.mark.parametrize(("scale", "value"), [("share", 0.3), ("share", 0.97), ("log", 3e-6), ("exponent", 2.4)])
def test_scales_go_there_and_back(scale, value):
    assert from_scale(to_scale(value, scale), scale) == pytest.approx(value, rel=1e-6)


@given(st.floats(-5, 5))
def test_no_unknown_leaves_physics(z):
    assert 0 < from_scale(z, "share") <= 1
    assert 1 <= from_scale(z, "exponent") <= 8
    assert from_scale(z, "log") > 0


def test_an_unseen_device_is_the_same_fit_with_its_effect_at_zero():
    names = {"gemm_memory", "gemm_s", "roof_exponent"}
    layout = Layout(
        [share("gemm_memory", 0.8), amount("gemm_s", 3e-6), exponent("roof_exponent", 2.0)],
        {("h100", "vllm"): names, ("a100", "trtllm"): names},
    )
    x = np.arange(1.0, layout.size + 1.0) / 100.0
    common = layout.z(x, "gemm_s", "l4", "vllm")
    assert common == pytest.approx(np.log(3e-6) + x[layout.index["gemm_s", "common"]])
    own = x[layout.index["gemm_s", "a100"]] + x[layout.index["gemm_s", "/trtllm"]]
    own += x[layout.index["gemm_s", "a100/trtllm"]]
    assert layout.z(x, "gemm_s", "a100", "trtllm") == pytest.approx(common + own)
    covariance = np.eye(layout.size) * 0.01
    seen, unseen = (layout.deviations(covariance, d, "vllm")["gemm_s"] for d in ("h100", "l4"))
    # two effects of variance 0.01 for a device in the fit; one, and the spread of devices (0.4), for one that is not
    assert seen == pytest.approx(0.02**0.5)
    assert unseen == pytest.approx((0.01 + 0.4**2) ** 0.5)


def written(path, truth):
    """A table of products on an H100, priced with the factors of its class but for `truth`."""
    dep = deploy("Qwen/Qwen3-8B", "h100")
    rank = Rank(dep, {**efficiency("dc_gpu").values(), **truth})
    lines = [",".join(COLUMNS)]
    for m in (1, 16, 256, 2048, 8192):
        for k, n in ((1024, 4096), (4096, 4096), (4096, 24576), (8192, 8192), (16384, 8192)):
            ms = float(1e3 * rank.product("x", float(m), float(k), float(n), "bf16").seconds)
            lines.append(
                f"test,H100-SXM-80GB,1,-,bf16,-,vllm,gemm,1,{m},0,0,op_ms,{ms!r},ms,measured,m={m};n={n};k={k}"
            )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_known_factors_are_recovered(tmp_path):
    truth = {"gemm_memory": 0.6, "gemm_compute": 0.7, "gemm_s": 6e-6}
    written(tmp_path / "aic_measured_ops.csv", truth)
    prepared = fit.load(tmp_path)
    found = fit.fit(prepared)
    assert np.max(np.abs(found.errors)) < 0.06  # every row counts for a tenth, so priors pull a little
    values = found.layout.values(found.solution.x, "h100", "vllm")
    for name, value in truth.items():
        assert values[name] == pytest.approx(value, rel=0.15), name


def test_a_few_rows_move_one_device(tmp_path):
    written(tmp_path / "aic_measured_ops.csv", {"gemm_memory": 0.6})
    prepared = prepare(load_rows([tmp_path / "aic_measured_ops.csv"]))
    keep = np.zeros(len(prepared.rows), dtype=bool)
    keep[[0, 3, 6, 9]] = True
    found = fit_probe.probed(prepared, keep)
    assert list(found) == ["h100"]
    assert found["h100"]["gemm_memory"] == pytest.approx(0.6, rel=0.12)
    assert found["h100"]["gemm_compute"] == pytest.approx(efficiency("dc_gpu").values()["gemm_compute"], rel=0.05)


def test_a_folder_without_tables_says_which_are_missing(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        fit.main([str(tmp_path), "-o", str(tmp_path / "out.toml")])
    assert stopped.value.code == 2
    assert "aic_measured_ops.csv" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["a100", "h100", "h200", "b200", "l40s"])
def test_the_measured_devices_have_factors(device):
    assert device in fitted_devices()


@given(st.integers(1, 4000), st.integers(0, 100_000), st.sampled_from(["a100", "h100", "h200", "b200", "l40s", "l4"]))
def test_a_verify_pass_is_never_faster_than_weights_cache_and_state_over_bandwidth(new, context, device):
    for name in ("Qwen/Qwen3-4B", "Qwen/Qwen3.5-4B"):
        model = StepModel(deploy(name, device))
        cost = model.prefill(float(new), float(context), float(new))
        moved = cost[Q["weight_bytes"]] + cost[Q["kv_bytes"]] + cost[Q["state_bytes"]]
        assert cost[Q["busy_s"]] >= moved / model.dep.hardware.bandwidth_bytes_per_s.value


@pytest.mark.slow
@pytest.mark.skipif(not TABLES.exists(), reason="the measurement tables are not beside this checkout")
def test_the_bundled_factors_are_those_of_the_command():
    prepared = fit.load(TABLES)
    found = fit.fit(prepared)
    for device in ("h100", "a100"):
        again = found.layout.values(found.solution.x, device, "vllm")
        bundled = efficiency(device).values()
        for name in ("gemm_compute", "gemm_memory", "attention_prefill_compute", "attention_decode_memory"):
            assert bundled[name] == pytest.approx(again[name], rel=0.01), (device, name)
