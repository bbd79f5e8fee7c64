"""A document as `specroof plan` writes it, and a study as `specroof sweep` does, with invented numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_COLUMNS = ("time_s", "time_alone_s", "traffic_bytes", "flops", "energy_j", "usd", "success", "strong_output_tokens")


def estimate(value: float | None, low: float | None = None, high: float | None = None) -> dict[str, float] | None:
    if value is None:
        return None
    return {"value": value, "low": value * 0.88 if low is None else low, "high": value * 1.15 if high is None else high}


def strategy(name: str, *values: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "method": "expected"}
    row |= {column: estimate(value) for column, value in zip(_COLUMNS, values, strict=True)}
    row["reasons"] = {c: "no price is set for h200 devices" for c, v in zip(_COLUMNS, values, strict=True) if v is None}
    return row


def phase_rows() -> list[dict[str, Any]]:
    cells = {
        "strong_only": {
            "prompt_prefill": (0.42, 3.3e11, 1.4e14),
            "observation_prefill": (1.6, 2.5e12, 4.8e14),
            "decode": (27.5, 4.4e13, 6.1e13),
            "tool": (4.1, 0.0, 0.0),
            "host": (0.9, 0.0, 0.0),
        },
        "weak_only": {
            "prompt_prefill": (0.06, 1.1e10, 3.4e13),
            "observation_prefill": (0.3, 9e10, 1.2e14),
            "decode": (13.5, 1.4e13, 1.7e13),
            "tool": (4.6, 0.0, 0.0),
            "host": (0.7, 0.0, 0.0),
        },
    }
    for name, k in (("step_verification", 1.5), ("spec_agent", 1.0)):
        cells[name] = {
            "prompt_prefill": (0.48, 3.4e11, 1.8e14),
            "observation_prefill": (0.5, 9e10, 1.3e14),
            "draft_decode": (13.2, 1.4e13, 1.7e13),
            "verify_prefill": (2.9 * k, 6.5e12 * k, 5.9e14),
            "verdict_decode": (2.1 * k, 3.0e12 * k, 4.0e12),
            "repair_prefill": (0.3, 4e11, 3.1e13),
            "repair_decode": (3.1, 5.0e12, 6.9e12),
            "reprefill": (0.4, 6e11, 6.0e13),
            "wasted_draft": (1.7, 1.8e12, 2.2e12),
            "tool": (4.2, 0.0, 0.0),
            "wasted_tool": (0.6, 0.0, 0.0),
            "host": (1.9 * k, 0.0, 0.0),
            "queue": (0.5, 0.0, 0.0),
        }
    return [
        {"strategy": s, "phase": p, "time_s": t, "traffic_bytes": b, "flops": f}
        for s, by_phase in cells.items()
        for p, (t, b, f) in by_phase.items()
    ]


def spans() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def put(strategy: str, lane: str, phase: str, step: int, length_s: float, clock_s: float, text: str) -> float:
        rows.append(
            {"strategy": strategy, "start_s": clock_s, "end_s": clock_s + length_s, "lane": lane, "phase": phase,
             "step": step, "label": text}
        )  # fmt: skip
        return clock_s + length_s

    tools = ("get_user_details", "get_order_details", "get_product_details", "calculate")
    at = 0.0
    for step in range(12):
        at = put(
            "strong_only", "strong", "observation_prefill" if step else "prompt_prefill", step, 0.13, at, "context"
        )
        at = put("strong_only", "strong", "decode", step, 1.6 + 0.4 * (step % 3), at, f"writes step {step}")
        if step % 4 != 3:
            at = put("strong_only", "tools", "tool", step, 0.35, at, tools[step % 4])
    at, step = 0.0, 0
    while step < 12:
        for _ in range(3):
            at = put("spec_agent", "weak", "draft_decode", step, 1.05, at, f"drafts step {step}")
            at = put("spec_agent", "tools", "tool", step, 0.35, at, tools[step % 4])
            step += 1
        at = put("spec_agent", "network", "network", step, 0.05, at, "to the strong model")
        at = put("spec_agent", "strong", "verify_prefill", step, 0.5, at, "reviews 3 steps")
        at = put("spec_agent", "strong", "verdict_decode", step, 0.3, at, "verdict")
        if step == 6:
            at = put("spec_agent", "strong", "repair_decode", step, 1.9, at, "writes step 5 again")
    return rows


class _Studies:
    """Writes studies of two parameters: eight of ten cells done, one failed, one pending."""

    cells = tuple({"acceptance": a, "window": w} for w in (1, 2, 4, 8) for a in (0.6, 0.75, 0.9))[:10]

    def __init__(self) -> None:
        from simulator.scenario_file import load_scenario
        from simulator.sweep import head_of

        small = load_scenario("autonomous-h200", ["run.samples=16", "workload.n=4", "run.seeds=1"])
        self.head = head_of(small, {"kind": "grid", "vary": ["acceptance", "window"]}, "auto")

    def __call__(self, path: Path) -> Path:
        from simulator.study import CellResult, Study

        with Study(path, self.head, self.cells) as study:
            for number, cell in enumerate(self.cells[:8]):
                ratio = {0.6: 1.0, 0.75: 0.75, 0.9: 0.5}[cell["acceptance"]] * (2 / cell["window"]) ** 0.1
                rows = tuple(_sweep_row(name, r) for name, r in (("strong_only", 1.0), ("spec_agent", ratio)))
                study.record(CellResult(cell=number, rows=rows, seconds=0.1))
            study.record(CellResult(cell=8, reason="does not fit", seconds=0.1))
        return path


def _sweep_row(name: str, ratio: float) -> dict[str, Any]:
    from simulator.sweep_cell import column_names

    row: dict[str, Any] = dict.fromkeys(column_names()) | {"strategy": name, "method": "expected"}
    for column, value in (("time_s", 20.0 * ratio), ("ratio_time", ratio), ("success", 0.9)):
        row |= {column: value, f"{column}_low": 0.95 * value, f"{column}_high": 1.1 * value}
    return row


@pytest.fixture(scope="session")
def make_study() -> _Studies:
    return _Studies()


@pytest.fixture(scope="session")
def validation_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `specroof validate` prints after runs against its own stand-ins for servers."""
    command = ("validate", "llama-a100", "--weak", "fake:", "--strong", "fake:", "--runs", "2", "--json")
    done = subprocess.run([sys.executable, "-m", "specroof", *command], capture_output=True, text=True, check=True)
    file = tmp_path_factory.mktemp("validation") / "validation.json"
    file.write_text(done.stdout)
    return file


@pytest.fixture
def plan_document() -> dict[str, Any]:
    """A whole document, fresh for each test."""
    return make_document()


def make_document() -> dict[str, Any]:
    return {
        "schema_version": 1,
        "version": "0.1.0",
        "title": "Retail agent on H200",
        "weak": "Qwen3.5-4B, bf16, 1 × H200",
        "strong": "Qwen3.5-397B-A17B, fp8, 8 × H200",
        "interval_note": "It covers 90 % of 256 draws from the uncertain inputs.",
        "acceptance_rung": "trace pair: 89 tasks done by both models; they agree on 0.85 of steps, 0.90 in any order.",
        "scenario": {
            "title": "Retail agent on H200",
            "strategies": ["strong_only", "weak_only", "step_verification", "spec_agent"],
            "weak": {"model": "Qwen/Qwen3.5-4B", "hardware": "h200", "n_devices": 1, "weight_dtype": "bf16"},
            "strong": {
                "model": "Qwen/Qwen3.5-397B-A17B", "hardware": "h200", "n_devices": 8, "weight_dtype": "fp8",
                "thinking": False,
            },
            "workload": {"trace": "tau2-retail-gpt-4.1-mini", "output_tokens_scale": 1.0},
            "protocol": {"window": 4, "repair_mode": "fresh", "verdict_tokens": 12},
            "load": {"kind": "closed", "concurrency": 1, "arrival_rate_per_s": None},
            "run": {"seeds": [0, 1, 2], "horizon_s": None},
        },
        "strategies": [
            strategy("strong_only", 34.5, 34.5, 4.7e13, 6.8e14, 98_000.0, None, 0.78, 2430.0),
            strategy("weak_only", 19.2, 19.2, 1.41e13, 1.7e14, 13_400.0, None, 0.55, 0.0),
            strategy("step_verification", 36.9, 36.1, 3.6e13, 1.02e15, 104_000.0, None, 0.76, 620.0),
            strategy("spec_agent", 31.9, 31.4, 3.1e13, 9.9e14, 91_000.0, None, 0.765, 480.0),
        ],
        "ratios_to_strong_only": {
            "strong_only": {"time": estimate(1.0, 1.0, 1.0)},
            "weak_only": {
                "time": estimate(0.56), "traffic": estimate(0.30), "flops": estimate(0.25), "energy": estimate(0.14),
                "usd": None, "success": estimate(0.71, 0.62, 0.86),
            },
            "step_verification": {
                "time": estimate(1.07), "traffic": estimate(0.77), "flops": estimate(1.50), "energy": estimate(1.06),
                "usd": None, "success": estimate(0.975, 0.94, 0.995),
            },
            "spec_agent": {
                "time": estimate(0.925, 0.81, 1.12), "traffic": estimate(0.66, 0.58, 0.79),
                "flops": estimate(1.46, 1.32, 1.71), "energy": estimate(0.93, 0.80, 1.15), "usd": None,
                "success": estimate(0.98, 0.95, 0.995),
            },
        },
        "verdicts": {
            "time": {
                "strategy": "spec_agent", "verdict": "cannot_tell", "ratio": 0.925, "low": 0.81, "high": 1.12,
                "because": [
                    "It saves 24.4 s of strong decode and spends 13.2 s on draft decode.",
                    "Verify prefill and verdicts take 5.0 s more.",
                ],
                "critical": {"acceptance": 0.83, "verbosity": 1.21, "verdict_tokens": None},
            },
            "traffic": {
                "strategy": "spec_agent", "verdict": "wins", "ratio": 0.66, "low": 0.58, "high": 0.79,
                "because": ["Strong decode re-reads 16.3 G parameters per token; drafts read 4 G."],
                "critical": {"acceptance": 0.61},
            },
            "flops": {
                "strategy": "spec_agent", "verdict": "loses", "ratio": 1.46, "low": 1.32, "high": 1.71,
                "because": ["Every step is computed twice: once to draft it, once to review it."],
                "critical": {},
            },
            "energy": {
                "strategy": "spec_agent", "verdict": "cannot_tell", "ratio": 0.93, "low": 0.80, "high": 1.15,
                "because": ["Idle power of eight reserved devices follows the time."], "critical": {"acceptance": 0.84},
            },
            "usd": {
                "strategy": "spec_agent", "verdict": "cannot_tell", "ratio": None, "low": None, "high": None,
                "because": ["No price is set for h200 devices."], "critical": {},
            },
            "success": {
                "strategy": "spec_agent", "verdict": "loses", "ratio": 0.98, "low": 0.95, "high": 0.995,
                "because": ["Wrong drafts that the reviewer misses stay in."], "critical": {},
            },
        },
        "recommended": {
            "strategy": "spec_agent", "window": 4, "objective": "time",
            "why": "Its expected time is lowest among the strategies that lose at most two points of success.",
        },
        "settle": ["Judging about 400 drafted steps with the strong model would settle time: acceptance decides it."],
        "windows": [
            {"window": w, "time": t, "traffic": m, "flops": f, "energy": e, "success": s}
            for w, t, m, f, e, s in (
                (1, 1.07, 0.77, 1.50, 1.06, 0.975), (2, 0.98, 0.70, 1.45, 0.98, 0.977),
                (3, 0.94, 0.67, 1.45, 0.94, 0.979), (4, 0.925, 0.66, 1.46, 0.93, 0.98),
                (6, 0.93, 0.66, 1.49, 0.94, 0.98), (8, 0.94, 0.67, 1.52, 0.95, 0.98),
            )
        ],
        "phases": phase_rows(),
        "roofline": {
            "devices": [
                {"name": "h200", "role": "weak", "dtype": "bf16", "peak_flops_per_s": 9.89e14,
                 "bandwidth_bytes_per_s": 4.8e12, "n_devices": 1},
                {"name": "h200", "role": "strong", "dtype": "fp8", "peak_flops_per_s": 1.979e15,
                 "bandwidth_bytes_per_s": 4.8e12, "n_devices": 8},
            ],
            "points": [
                {"label": "draft decode", "role": "weak", "intensity_flops_per_byte": 1.02,
                 "achieved_flops_per_s": 3.4e12, "bound": "memory"},
                {"label": "strong decode", "role": "strong", "intensity_flops_per_byte": 1.9,
                 "achieved_flops_per_s": 1.6e12, "bound": "overhead"},
                {"label": "verify prefill", "role": "strong", "intensity_flops_per_byte": 61.0,
                 "achieved_flops_per_s": 1.1e14, "bound": "memory"},
            ],
        },
        "timeline": spans(),
        "provenance": [
            {"input": "h200 bandwidth_bytes_per_s", "value": 4.8e12, "tier": "datasheet",
             "source": "NVIDIA H200 datasheet, https://nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet"},
            {"input": "acceptance", "value": {"value": 0.85, "low": 0.81, "high": 0.88}, "tier": "measured",
             "source": "agreement of two traces, 89 tasks, 1,204 steps"},
            {"input": "output tokens per step", "value": 118.4, "tier": "measured", "source": "the retail trace"},
            {"input": "memory efficiency e_m", "value": 0.74, "tier": "fitted", "source": "vLLM step times on H200"},
            {"input": "verifier detection d", "value": {"value": 0.55, "low": 0.40, "high": 0.65}, "tier": "assumed",
             "source": "prior over published agent evaluations"},
            {"input": "thinking", "value": False, "tier": "assumed", "source": "scenario"},
            {"input": "step_ratio", "value": 1, "tier": "assumed", "source": "default"},
        ],
        "warnings": ["The trace has no cached token counts; the prefix cache is modelled, not read."],
    }  # fmt: skip
