"""`--calibration` replaces the bundled fit wherever step costs are used."""

from __future__ import annotations

import json
import re

import pytest

STEP = ("step", "--model", "Qwen/Qwen3-8B", "--hardware", "h100", "--decode", "4@2000", "--json")


@pytest.fixture
def slower(tmp_path, root):
    """The bundled fit with every fixed time of a product 2 % longer."""
    text = (root / "hwprofiles" / "data" / "efficiency" / "fitted.toml").read_text(encoding="utf-8")
    changed = re.sub(r"(?m)^(gemm_s = \{ value = )([\d.e+-]+)", lambda m: f"{m[1]}{float(m[2]) * 1.02!r}", text)
    assert changed != text
    path = tmp_path / "slower.toml"
    path.write_text(changed, encoding="utf-8")
    return path


def test_another_calibration_gives_another_step_time(run_cli, slower):
    plain = json.loads(run_cli(*STEP).out)
    other = json.loads(run_cli(*STEP, "--calibration", slower).out)
    assert other["time_s"] > plain["time_s"]


@pytest.mark.parametrize("command", [STEP, ("plan", "llama-a100"), ("simulate", "llama-a100", "--set", "run.seeds=1")])
def test_a_missing_calibration_file_is_one_line(run_cli, command, tmp_path):
    outcome = run_cli(*command, "--calibration", tmp_path / "nowhere.toml")
    assert (outcome.code, outcome.out) == (2, "")
    assert "nowhere.toml" in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1


def test_two_calibrations_are_two_sources(run_cli, slower, tmp_path):
    outcome = run_cli("plan", "llama-a100", "--set", f"run.calibration={slower}", "--calibration", slower)
    assert outcome.code == 2
    assert "two sources" in outcome.err
