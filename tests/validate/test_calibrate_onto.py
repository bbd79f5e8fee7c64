"""One file for several servers: each device keeps its own host times of an engine."""

from __future__ import annotations

import asyncio

import pytest

from costmodel.deployment import deploy, factor_values
from hwprofiles.errors import ProfileError
from validate.calibrate_file import document, shared, write
from validate.calibrate_run import calibrate_target
from validate.calibrate_targets import VirtualTarget
from validate.serve_fake import FakeService

SERVED = {"h200": 0.02, "a100": 0.008}


def calibrated(device, path, onto=None):
    """Calibrate a server of known host time into a file."""
    dep = deploy("Qwen/Qwen3-8B", device)
    service = FakeService(dep, {**factor_values(dep), "host_step_s": SERVED[device]})
    found = asyncio.run(calibrate_target(dep, VirtualTarget(service), 60.0))
    write(path, document(dep, found.fitted, command="test", date="2026-11-30", facts=found.facts, onto=onto))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("onto")
    first = calibrated("h200", folder / "one.toml")
    return first, calibrated("a100", folder / "both.toml", first)


def host_s(device, path):
    return deploy("Qwen/Qwen3-8B", device, calibration=path).engine.factors["host_step_s"].value


def test_two_servers_in_one_file_keep_their_own_host_times(files):
    for device, served_s in SERVED.items():
        assert host_s(device, files[1]) == pytest.approx(served_s, rel=0.3)
    assert host_s("h200", files[1]) == host_s("h200", files[0])
    one, both = (deploy("Qwen/Qwen3-8B", "h200", calibration=file).efficiency.values() for file in files)
    assert one == both


def test_a_device_of_its_own_gets_the_times_measured_last(files):
    assert host_s("h100", files[1]) == host_s("a100", files[1])
    assert host_s("h100", files[0]) == host_s("h200", files[0])


def test_a_device_measured_again_is_named_and_replaced(files, tmp_path):
    h200, h100 = (deploy("Qwen/Qwen3-8B", name) for name in ("h200", "h100"))
    assert "h200 already" in (shared(h200, files[1]) or "")
    assert shared(h100, files[1]) is None
    assert shared(h200, None) is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("on = 3", "engines.vllm-v1.on must be a table"),
        ("[engines.vllm-v1.on.h20]\nhost_step_s = 0.1", "h20"),
        ("[engines.vllm-v1.on.h200]\nhost_stp_s = 0.1", "host_step_s"),
        ("[engines.vllm-v1.on.a100]\nhost_step_s = -1", "host_step_s"),
    ],
)
def test_wrong_keys_are_named(tmp_path, table, message):
    file = tmp_path / "x.toml"
    file.write_text(f'extends = "bundled"\n[factors.a100]\n[engines.vllm-v1]\n{table}\n', encoding="utf-8")
    with pytest.raises(ProfileError, match=message):
        deploy("Qwen/Qwen3-8B", "h200", calibration=file)
