"""First values of the efficiency factors: complete, ordered, within physics."""

from __future__ import annotations

import pytest

from hwprofiles import DEVICE_CLASSES, FACTOR_NAMES, InputError, efficiency, hardware

EXPONENTS = ("roof_exponent", "roof_exponent_8bit")
SHARES = [n for n in FACTOR_NAMES if n not in EXPONENTS and not n.endswith(("_s", "_j", "_k", "_n", "_tokens"))]
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
    assert tuple(eff.factors) == FACTOR_NAMES
    for name, factor in eff.factors.items():
        assert 0 < factor.low < factor.high, name
        assert factor.low <= factor.value <= factor.high, name
        assert factor.tier == "assumed", name  # nothing of this class has been calibrated here
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


def test_dc_gpu_golden():
    """The column for an unseen device of the five-device fit of step tables."""
    values = efficiency("dc_gpu").values()
    assert values["gemm_compute"] == 0.80
    assert values["gemm_compute_8bit"] == 0.75
    assert values["gemm_memory"] == 0.80
    assert values["roof_exponent"] == 2.2
    assert values["gemm_s"] == 3.2e-6
    assert values["gemm_8bit_s"] == 7e-6
    assert values["attention_prefill_compute"] == 0.55
    assert values["attention_decode_memory"] == 0.84
    assert values["elementwise_memory"] == 0.5  # not identified by the fit, so fixed
    assert values["allreduce_s"] == 6e-6
    assert values["link_bandwidth"] == 0.57
    assert (values["expert_compute"], values["expert_memory"], values["expert_s"]) == (0.4, 0.8, 20e-6)


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


def test_a_device_stands_for_its_class():
    assert efficiency("h100") is efficiency("dc_gpu") is efficiency("DC-GPU")
    assert efficiency("strix halo").name == "edge_soc"
    with pytest.raises(InputError, match="unknown hardware 'dc_gpus'"):
        efficiency("dc_gpus")
