"""The bundled devices: complete, well formed, and free of the figures that circulate wrongly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hwprofiles import DEVICE_CLASSES, PEAK_DTYPES, TIERS, InputError, hardware, hardware_names

NAMES = hardware_names()
ADDED = {
    "a100-40gb",
    "a40",
    "arc-140v",
    "jetson-orin-nano-original",
    "m1-7",
    "m1-max",
    "m1-ultra-48",
    "m1-ultra",
    "m2-pro",
    "m3-ultra-60",
    "m3",
    "m4-pro",
    "m4",
    "m5-max",
    "max-1550",
    "mi250",
    "n150",
    "rk3562",
    "rk3576",
    "rtx-3060",
    "rtx-3080-ti",
    "rtx-3080",
    "rtx-3090",
    "rtx-4000-ada",
    "rtx-4080",
    "rtx-5000-ada",
    "rtx-5880-ada",
    "rtx-a6000",
    "snapdragon-8-gen-3",
}
"""Devices that measurement tables name and the research table does not."""
DATA = Path(__file__).parents[2] / "hwprofiles" / "data" / "devices"
TABLE = Path(__file__).parents[3] / "shared" / "research" / "hardware.md"
GIB = 2**30


def facts(device):
    found = {f"peak.{dtype}": fact for dtype, fact in device.peak_flops_per_s.items()}
    for key in ("memory_bytes", "bandwidth_bytes_per_s", "cache_bytes", "tdp_w", "usd_per_h"):
        found[key] = getattr(device, key)
    found["link"] = device.link.bandwidth_bytes_per_s if device.link else None
    return {key: fact for key, fact in found.items() if fact is not None}


def test_many_devices_of_every_class():
    assert len(NAMES) >= 50
    assert len(set(NAMES)) == len(NAMES)
    assert {hardware(name).device_class for name in NAMES} == set(DEVICE_CLASSES)


def test_names_and_aliases_are_unique():
    every = [n for name in NAMES for n in (name, *hardware(name).aliases)]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize("name", NAMES)
def test_device_is_well_formed(name):
    device = hardware(name)
    assert device.name == name
    assert set(device.peak_flops_per_s) <= set(PEAK_DTYPES)
    for key, fact in facts(device).items():
        assert fact.value > 0, key
        assert fact.tier in TIERS, key
        assert len(fact.source) > 6, key


@pytest.mark.parametrize("name", NAMES)
def test_each_alias_names_the_device(name):
    for alias in hardware(name).aliases:
        assert hardware(alias).name == name
        assert hardware(alias.upper().replace("-", "_")).name == name


@pytest.mark.parametrize("name", NAMES)
def test_quantities_have_plausible_sizes(name):
    """A slip of a thousand in a unit leaves these ranges."""
    device = hardware(name)
    ranges = {
        "memory_bytes": (4e9, 7e12),
        "bandwidth_bytes_per_s": (15e9, 10e12),
        "cache_bytes": (1e6, 1e9),
        "tdp_w": (1, 1500),
        "usd_per_h": (0.1, 20),
        "link": (10e9, 1e12),
    }
    for key, fact in facts(device).items():
        low, high = ranges.get(key, (0.1e12, 20e15))
        assert low <= fact.value <= high, key


@pytest.mark.parametrize("name", NAMES)
def test_a_narrower_float_is_never_slower(name):
    peaks = {dtype: fact.value for dtype, fact in hardware(name).peak_flops_per_s.items()}
    order = [peaks[dtype] for dtype in ("fp32", "tf32", "bf16", "fp8", "fp4") if dtype in peaks]
    assert order == sorted(order)


def test_h100_golden():
    device = hardware("H100 SXM")
    assert device.peak_flops_per_s["bf16"].value == 989.4e12  # dense: 132 SM x 4096 FLOP x 1.83 GHz; 1979 is sparse
    assert device.bandwidth_bytes_per_s.value == 3.35e12
    assert device.ridge_flops_per_byte("bf16") == pytest.approx(295, abs=0.5)  # 989.4 / 3.35
    assert device.ridge_flops_per_byte("fp8") == pytest.approx(591, abs=0.5)  # 1978.9 / 3.35
    assert device.memory_bytes.value == 80 * GIB  # "80 GB" of HBM is 80 GiB, 85.9e9 bytes
    assert device.link.bandwidth_bytes_per_s.value == 450e9  # 900 GB/s printed is both directions
    assert device.usd_per_h.tier == "assumed"  # sellers differ 2.5 times, so a price is an input


@pytest.mark.parametrize(
    ("name", "dtype", "ridge"),
    [
        ("a100", "bf16", 153),  # 312 / 2.039
        ("h200", "bf16", 206),  # 989.4 / 4.8
        ("jetson-agx-orin", "fp16", 208),  # 42.6 / 0.2048
        ("tpu-v5e", "int8", 480),  # 393 / 0.819
        ("m3-ultra", "bf16", 35),  # 28.6 / 0.819
        ("t4", "int8", 406),  # 130 / 0.32
    ],
)
def test_ridge_golden(name, dtype, ridge):
    assert hardware(name).ridge_flops_per_byte(dtype) == pytest.approx(ridge, rel=0.005)


def test_driver_visible_memory_is_used_where_known():
    assert hardware("gb200").memory_bytes.value == 189_471 * 2**20
    assert hardware("b300").memory_bytes.value == 275_040 * 2**20
    assert hardware("gb300").memory_bytes.value == 284_208 * 2**20
    assert 139 * GIB <= hardware("h200").memory_bytes.value <= 140 * GIB
    assert hardware("tpu7x").memory_bytes.value == 192 * GIB  # the vendor prints GiB


@pytest.mark.parametrize(
    ("name", "key", "wrong", "right"),
    [
        ("l40s", "fp8", 1466e12, 733e12),  # sparse taken for dense
        ("mi300x", "fp16", 2615e12, 1307.4e12),  # the fp8 rate under the name of fp16
        ("b200", "fp8", 9000e12, 4500e12),  # sparse
        ("b300", "fp8", 7000e12, 4500e12),  # fp4 grew on Ultra, fp8 did not
        ("b300", "bf16", 3500e12, 2250e12),
        ("mi250x", "int8", 766e12, 383e12),  # int8 runs at the bf16 rate
        ("mi250x", "int4", 1532e12, 383e12),
        ("gh200", "bf16", 1979e12, 989.4e12),  # sparse
        ("a100", "bf16", 624e12, 312e12),  # sparse
        ("trainium2", "fp8", 2563e12, 1299e12),  # sparse
        ("dgx-spark", "fp4", 1000e12, 500e12),  # sparse
        ("jetson-agx-thor", "fp4", 2070e12, 1035e12),  # sparse
        ("jetson-agx-orin", "int8", 275e12, 85.2e12),  # sparse, and with the DLA
    ],
)
def test_figures_that_circulate_wrongly(name, key, wrong, right):
    value = hardware(name).peak_flops_per_s[key].value
    assert value == right
    assert abs(value / wrong - 1) > 0.2


def test_gb200_bandwidth_is_no_rack_capacity():
    assert hardware("gb200").bandwidth_bytes_per_s.value == 8e12


def test_what_nobody_publishes_is_left_out():
    assert hardware("snapdragon-8-elite").peak_flops_per_s == {}
    assert hardware("hailo-10h").bandwidth_bytes_per_s is None
    assert hardware("coral").memory_bytes is None
    assert "bf16" not in hardware("v100").peak_flops_per_s
    assert "bf16" not in hardware("t4").peak_flops_per_s
    with pytest.raises(ValueError, match="states no memory bandwidth"):
        hardware("hailo-10h").ridge_flops_per_byte("int8")


def test_derived_figures_are_no_datasheet():
    for name in ("m3-max", "m4-max", "m3-ultra", "raspberry-pi-5", "epyc-9554", "xeon-8592"):
        assert {fact.tier for fact in hardware(name).peak_flops_per_s.values()} == {"assumed"}, name
    assert hardware("dgx-spark").peak_flops_per_s["bf16"].tier == "assumed"


def test_bought_devices_have_no_hourly_price():
    for name in ("jetson-agx-orin", "dgx-spark", "m3-ultra", "rk3588", "raspberry-pi-5"):
        assert hardware(name).usd_per_h is None


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("h1000", "h100"), ("RTX-4O90", "rtx-4090"), ("jetson-agx-orrin", "jetson-agx-orin"), ("mi300", "mi300x")],
)
def test_an_unknown_name_gives_the_nearest(given, nearest):
    with pytest.raises(InputError, match=f"unknown hardware '{given}'; did you mean '{nearest}'"):
        hardware(given)


@pytest.mark.parametrize("given", ["", "   ", "../h100", "/etc/passwd", "h100/", "a\nb", "\0", "???", "devices"])
def test_odd_names_are_unknown(given):
    with pytest.raises(InputError) as caught:
        hardware(given)
    assert "\n" not in str(caught.value)


def rows_of_the_table():
    lines = TABLE.read_text(encoding="utf-8").split("## The table")[1].split("## How")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]


@pytest.mark.skipif(not TABLE.exists(), reason="the research table is not beside this checkout")
def test_every_figure_of_the_research_table():
    """Each row of the table has one device with its compute and bandwidth; what the notes mark unsure is left out."""
    devices = [hardware(name) for name in NAMES if name not in ADDED]
    rows = rows_of_the_table()
    assert len(rows) == len(devices)
    words = {
        d.name: set(re.findall(r"[a-z0-9]+", f"{d.title} {d.name} {' '.join(d.aliases)}".lower())) for d in devices
    }
    free = {d.name: d for d in devices}
    columns = {"fp32": "fp32", "tf32": "tf32", "bf16/fp16": "fp16", "fp8": "fp8", "int8": "int8", "fp4": "fp4"}
    for row in rows:
        wanted = set(re.findall(r"[a-z0-9]+", row["device"].lower()))
        name = max(free, key=lambda n: (len(words[n] & wanted), -len(words[n])))
        device = free.pop(name)
        for column, dtype in {**columns, "int4": "int4"}.items():
            cell = re.match(r"\d+(\.\d+)?", row[column])
            if (name, dtype) == ("snapdragon-x-elite", "fp32"):
                cell = None  # the GPU's, not the NPU's
            if cell is None:
                assert dtype not in device.peak_flops_per_s, (name, dtype)
            else:
                assert device.peak_flops_per_s[dtype].value == pytest.approx(float(cell[0]) * 1e12), (name, dtype)
        cell = re.match(r"\d+(\.\d+)?", row["GB/s"])
        if cell:
            assert device.bandwidth_bytes_per_s.value == pytest.approx(float(cell[0]) * 1e9), name
        else:
            assert device.bandwidth_bytes_per_s is None, name
    assert not free
