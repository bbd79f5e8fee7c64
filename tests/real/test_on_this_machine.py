"""The whole way on real vLLM, cut short: servers, calibration, desk, replay, result. Counts only, no times."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("vllm", reason="vLLM is not installed here; `make validate` makes an environment with it")
    from specroof.on_this_machine import main

    out = tmp_path_factory.mktemp("machine") / "run"
    assert main(["-o", str(out), "--few"]) == 0
    return out


def test_both_engines_are_calibrated_and_checked_outside_the_fit(folder: Path) -> None:
    result = json.loads((folder / "result.json").read_text())
    for role in ("weak", "strong"):
        assert result["calibration"][role]["n"] >= 5
        assert result["calibration"][role]["factors"]
        assert result["steps"][role]["n"] >= 1
        assert all(p["low_s"] < p["predicted_s"] < p["high_s"] for p in result["steps"][role]["points"])
    calibration = tomllib.loads((folder / "calibration.toml").read_text())
    assert {"weak-core", "strong-core"} <= set(calibration["factors"])
    assert result["machine"]["details"]["vllm"]


def test_the_desk_kept_the_hold_and_the_replay_the_token_counts(folder: Path) -> None:
    result = json.loads((folder / "result.json").read_text())
    held = result["desk"]["held"]
    assert (held["executed_before_verdict"], held["lost"], held["run_twice"]) == (0, 0, 0)
    assert set(result["replay"]["strategies"]) == {"strong_only", "spec_agent", "step_verification", "weak_only"}
    assert all(len(one["pairs"]) == 1 for one in result["replay"]["strategies"].values())


def test_counters_of_both_servers_are_explained(folder: Path) -> None:
    """FLOPs and bytes that vLLM counted over a replay, against ours with the known differences added."""
    counters = json.loads((folder / "result.json").read_text())["replay"]["counters"]
    for role in ("weak", "strong"):
        found = counters["spec_agent"][role]
        for name in ("flops", "read_bytes", "write_bytes"):
            assert found[name]["explained"] == pytest.approx(1.0, abs=0.05), (role, name)


def test_pages_are_there_and_a_second_run_keeps_out_of_the_folder(folder: Path, capsys: pytest.CaptureFixture) -> None:
    from specroof.on_this_machine import main

    assert (folder / "desk.html").stat().st_size > 10_000
    assert (folder / "replay.html").stat().st_size > 10_000
    assert main(["-o", str(folder), "--few"]) == 2
    assert "another run" in capsys.readouterr().err
