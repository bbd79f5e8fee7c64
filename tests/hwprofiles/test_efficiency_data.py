"""First values of the efficiency factors: complete, ordered, within physics."""

from __future__ import annotations

import pytest

from hwprofiles import DEVICE_CLASSES, FACTOR_NAMES, InputError, efficiency, hardware

EXPONENTS = ("roof_exponent", "roof_exponent_8bit")
SHARES = [n for n in FACTOR_NAMES if n not in EXPONENTS and not n.endswith(("_s", "_j", "_k", "_n", "_tokens"))]
NOT_FITTED = {"linear_attention_compute", "linear_attention_s", "flop_j", "byte_j", "idle_w_share"}
EDGE = ("workstation", "edge_soc", "npu")
EDGE_FITTED = {
    *("gemm_memory", "gemm_memory_8bit", "expert_memory"),
    *("gemm_compute", "gemm_compute_8bit", "expert_compute", "attention_prefill_compute"),
}
TYPICAL = {  # a device of each class that prints a power limit, or None
    "dc_gpu": "h100",
    "workstation": "rtx-pro-6000",
    "edge_soc": "jetson-agx-orin",
    "npu": "lunar-lake-npu",
    "dc_accelerator": "gaudi3",
    "tpu": None,
    "cpu": "epyc-9554",
}


@pytest.mark.parametrize("device_class", DEVICE_CLASSES)
def test_every_factor_with_its_band(device_class):
    eff = efficiency(device_class)
    assert eff.name == device_class
    assert set(eff.factors) == set(FACTOR_NAMES)
    for name, factor in eff.factors.items():
        assert 0 < factor.low < factor.high, name
        assert factor.low <= factor.value <= factor.high, name
        # steps of data-centre GPUs and what edge devices reach of peaks and bandwidth; energy nowhere
        fitted = name not in NOT_FITTED if device_class == "dc_gpu" else device_class in EDGE and name in EDGE_FITTED
        assert factor.tier == ("fitted" if fitted else "assumed"), name
        assert len(factor.source) > 10, name
    assert eff.values() == {name: factor.value for name, factor in eff.factors.items()}


@pytest.mark.parametrize("device_class", DEVICE_CLASSES)
def test_shares_end_at_one_and_times_are_short(device_class):
    factors = efficiency(device_class).factors
    for name in SHARES:
        assert factors[name].high <= 1, name
    for name in FACTOR_NAMES:
        if name.endswith("_s"):
            assert factors[name].high <= 2e-3, name
    assert factors["roof_exponent"].low > 1
    assert factors["roof_exponent"].high <= 8


def test_an_unseen_data_centre_gpu_golden():
    """Common values of the joint fit lie near those of an earlier fit of the same tables."""
    values = efficiency("dc_gpu").values()
    assert values["gemm_compute"] == pytest.approx(0.85, abs=0.06)  # large products; what small ones lose is apart
    assert values["gemm_memory"] == pytest.approx(0.82, abs=0.05)
    assert values["gemm_s"] == pytest.approx(3.2e-6, rel=0.25)
    assert values["attention_prefill_compute"] == pytest.approx(0.58, abs=0.06)
    assert values["attention_decode_memory"] == pytest.approx(0.84, abs=0.05)
    assert values["allreduce_s"] == pytest.approx(6e-6, rel=0.4)
    assert values["expert_correlation"] == pytest.approx(0.62, abs=0.06)


@pytest.mark.parametrize("name", ["gemm_compute", "gemm_memory", "attention_decode_memory", "gemm_s"])
def test_less_known_classes_have_wider_bands(name):
    def width(device_class):
        factor = efficiency(device_class).factors[name]
        return (factor.high - factor.low) / factor.value

    for device_class in ("npu", "edge_soc", "cpu", "dc_accelerator"):
        assert width(device_class) > width("dc_gpu"), device_class


@pytest.mark.parametrize("device_class", [c for c, name in TYPICAL.items() if name])
def test_full_load_draws_about_the_power_limit(device_class):
    """peak * flop_j + bandwidth * byte_j + idle is between a third of the limit and the limit (1 % of rounding)."""
    device, values = hardware(TYPICAL[device_class]), efficiency(device_class).values()
    limit = device.tdp_w.value
    power = (
        device.peak_flops_per_s["bf16"].value * values["flop_j"]
        + device.bandwidth_bytes_per_s.value * values["byte_j"]
        + limit * values["idle_w_share"]
    )
    assert limit / 3 < power <= 1.01 * limit


def test_a_measured_device_has_its_own_factors_and_others_those_of_their_class():
    assert efficiency("h100").name == "h100"
    assert efficiency("l4") == efficiency("dc_gpu") == efficiency("DC-GPU")
    assert efficiency("strix halo").name == "ryzen-ai-max-395"
    assert efficiency("jetson-orin-nx") == efficiency("edge_soc")
    with pytest.raises(InputError, match="unknown hardware 'dc_gpus'"):
        efficiency("dc_gpus")


@pytest.mark.parametrize("device", ["a100", "h100", "h200", "b200", "l40s"])
@pytest.mark.parametrize("name", ["gemm_memory", "attention_prefill_compute", "gemm_s", "attention_decode_s"])
def test_a_measured_device_has_a_narrower_band_than_its_class(device, name):
    own, common = efficiency(device).factors[name], efficiency("dc_gpu").factors[name]
    assert own.high / own.low < common.high / common.low


@pytest.mark.parametrize("device", ["jetson-agx-orin", "ryzen-ai-max-395", "rtx-3090", "m3-max", "dgx-spark"])
def test_decode_on_a_measured_edge_device_is_better_known_than_on_one_of_its_class(device):
    own, common = efficiency(device), efficiency(hardware(device).device_class)
    a, b = own.factors["gemm_memory"], common.factors["gemm_memory"]
    assert a.high / a.low < b.high / b.low
    assert a.tier == b.tier == "fitted"
    assert "fit_edge" in a.source
    assert own.factors["gemm_s"] == common.factors["gemm_s"]  # the library's, so it stays as assumed


def test_a_calibration_on_top_of_the_bundled_ones_keeps_edge_devices(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('extends = "bundled"\n[factors.h100]\ngemm_memory = 0.5\n', encoding="utf-8")
    assert efficiency("m3-max", file) == efficiency("m3-max")
    assert efficiency("h100", file).factors["gemm_memory"].value == 0.5


def test_a_calibration_file_replaces_the_bundled_one(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[factors.h100]\ngemm_memory = 0.5\n[factors."class:npu"]\ngemm_s = 1e-4\n', encoding="utf-8")
    assert efficiency("h100", file).factors["gemm_memory"].value == 0.5
    assert efficiency("h100", file).factors["gemm_compute"].tier == "assumed"
    assert efficiency("rk3588", file).factors["gemm_s"].value == 1e-4
    assert efficiency("h200", file).factors["gemm_memory"].tier == "assumed"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[factors.h100]\ngemm_memry = 0.5", "did you mean 'gemm_memory'"),
        ("[factors.h100]\ngemm_memory = 1.5", "factors.h100.gemm_memory must be a finite number > 0 and <= 1"),
        ("[factors.h100]\ngemm_memory = { value = 0.5, low = 0.6, high = 0.7 }", "factors.h100.gemm_memory.value"),
        ("[factors]\nh100 = 3", "factors.h100 must be a table"),
        ("[provenance]\nn = 3", "factors is missing"),
    ],
)
def test_a_broken_calibration_file_says_where(tmp_path, text, message):
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        efficiency("h100", file)
