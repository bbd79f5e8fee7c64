"""`specroof calibrate` from the command line, and what other commands do with its file."""

from __future__ import annotations

import csv
import json

import pytest

from costmodel.deployment import deploy, factor_values
from validate.accuracy.factors import HOST
from validate.accuracy.predict import prepare
from validate.accuracy.tables import COLUMNS
from validate.bench_files import read_bench

STEP = ("step", "--model", "Qwen/Qwen3-8B", "--hardware", "h200", "--decode", "8@1000", "--json")


def table(path, rows):
    """A measurement table of one deployment: (phase, metric, batch, input, context, ms)."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        for phase, metric, batch, new, context, value in rows:
            writer.writerow(
                {
                    "source": "mine",
                    "hardware": "H200 SXM",
                    "n_devices": 1,
                    "model": "Qwen3-8B",
                    "weight_dtype": "bf16",
                    "engine": "vllm",
                    "phase": phase,
                    "batch": batch,
                    "input_tokens": new,
                    "context_tokens": context,
                    "metric": metric,
                    "value": value,
                    "unit": "ms",
                    "kind": "measured",
                }
            )
    return path


DECODES = [("decode", "step_ms", b, 1, c, 7.0 + 0.05 * b + b * c * 1e-4) for b in (1, 8, 32) for c in (128, 1024, 4096)]
PREFILLS = [("prefill", "ttft_ms", 1, n, "", 12.0 + n * 0.026) for n in (64, 512, 2048, 4096)]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A calibration file and the command's document."""
    from contextlib import redirect_stdout
    from io import StringIO

    from specroof.cli import main

    folder = tmp_path_factory.mktemp("calibrated")
    file = table(folder / "mine.csv", [*DECODES, *PREFILLS])
    with redirect_stdout(StringIO()) as out:
        code = main(["calibrate", "--measurements", str(file), "-o", str(folder / "mine.toml"), "--json"])
    assert code == 0
    return folder / "mine.toml", json.loads(out.getvalue())


def test_json_has_the_keys_of_the_contract(written):
    _, document = written
    assert {"factors", "residuals", "n", "engine_version", "not_identified"} <= set(document)
    assert document["n"] == len(document["residuals"]) == 13
    for factor in document["factors"].values():
        assert factor["low"] <= factor["value"] <= factor["high"]
    assert set(document["factors"]) & {"host_step_s", "request_s", "attention_decode_memory"}
    assert all(f["why"] for f in document["not_identified"].values())


def test_other_commands_price_with_it(written, run_cli):
    path, _ = written
    plain = json.loads(run_cli(*STEP).out)
    outcome = run_cli(*STEP, "--calibration", path)
    assert outcome.err == ""
    ours = json.loads(outcome.out)
    measured = 7.0e-3 + 0.05e-3 * 8 + 8 * 1000 * 1e-7
    assert abs(ours["time_s"] / measured - 1) < abs(plain["time_s"] / measured - 1)
    assert abs(ours["time_s"] / measured - 1) < 0.1
    other = ("step", "--model", "Qwen/Qwen3-8B", "--hardware", "h100", "--prefill", "900@0", "--json")
    here, there = (json.loads(run_cli(*other, *more).out)["parts_s"] for more in ((), ("--calibration", path)))
    assert here["compute"] == pytest.approx(there["compute"], rel=1e-9)


def test_an_old_file_is_named_so(written, run_cli, tmp_path):
    path, _ = written
    text = path.read_text(encoding="utf-8")
    start = text.index('date = "') + 8
    old = tmp_path / "old.toml"
    old.write_text(text[:start] + "2020-01-01" + text[start + 10 :], encoding="utf-8")
    outcome = run_cli(*STEP, "--calibration", old)
    assert outcome.code == 0
    assert "days ago" in outcome.err


def test_another_engine_version_is_named(run_cli, tmp_path, capsys, monkeypatch):
    from specroof import calibrated

    file = tmp_path / "mine.toml"
    file.write_text('extends = "bundled"\n[server]\nengine_version = "0.31.0"\n[factors]\n', encoding="utf-8")
    for version, said in (("0.31.0", False), ("0.33.0", True), (None, False)):
        monkeypatch.setattr("validate.calibrate_targets.server_version", lambda _, v=version: v)
        calibrated.check_version(file, "http://127.0.0.1:1/v1")
        assert ("measured on engine version 0.31.0" in capsys.readouterr().err) is said


def bench(path, clients, *times_ms):
    """A result file of `vllm bench serve` with 1024 tokens in and 128 out."""
    content = {
        "model_id": "Qwen/Qwen3-8B",
        "request_rate": "inf",
        "max_concurrency": clients,
        "completed": 200,
        "total_input_tokens": 204800,
        "total_output_tokens": 25600,
    } | dict(zip(("median_ttft_ms", "median_tpot_ms") if clients == 1 else ("mean_e2el_ms",), times_ms, strict=False))
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_benchmark_files_of_a_known_server_give_the_time_of_a_request_back(written, run_cli, tmp_path):
    """Times that the model gives for a slow host, as result files, on a second device beside an earlier calibration."""
    truth = {"request_s": 0.03}
    factors = {**HOST, **factor_values(deploy("Qwen/Qwen3-8B", "a100")), **truth}
    options = []
    for clients in (1, 4, 16, 64):
        path = bench(tmp_path / f"{clients}.json", clients, 1.0, 1.0)
        (group,) = prepare(read_bench(path, "a100", 1, None, None)).groups
        bench(path, clients, *(1e3 * group.price(factors)))
        options += ["--bench", path]
    both = tmp_path / "both.toml"
    outcome = run_cli("calibrate", *options, "--hardware", "a100", "--onto", written[0], "-o", both, "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)["factors"]
    assert all(found[name]["low"] <= value <= found[name]["high"] for name, value in truth.items())
    text = both.read_text(encoding="utf-8")
    assert "[factors.h200.gemm_memory]" in text
    assert "[factors.a100.gemm_memory]" in text
    assert "[engines.vllm-v1.on.h200]" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give one of"),
        (("--endpoint", "http://127.0.0.1:1/v1", "--bench", "x"), "give one of"),
        (("--measurements", "nowhere.csv"), "cannot be read"),
        (("--endpoint", "ftp://here", "--hardware", "h200"), "http://"),
        (("--endpoint", "http://127.0.0.1:1/v1", "--hardware", "h200", "--budget", "soon"), "--budget"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run_cli, tmp_path, args, message):
    outcome = run_cli("calibrate", *args, "-o", tmp_path / "x.toml")
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert not (tmp_path / "x.toml").exists()


def test_a_server_that_is_not_there_is_exit_3(run_cli, tmp_path):
    outcome = run_cli(
        "calibrate", "--endpoint", "http://127.0.0.1:1/v1", "--hardware", "h200", "-o", tmp_path / "x.toml"
    )
    assert outcome.code == 3
    assert len(outcome.err.strip().splitlines()) == 1


def test_what_cannot_be_used_is_said_before_anything_is_measured(run_cli, tmp_path):
    """Nobody answers at port 1: what comes first is the fault of the command line."""
    live = ("calibrate", "--endpoint", "http://127.0.0.1:1/v1", "--hardware", "h200", "-o", tmp_path / "o.toml")
    alone = tmp_path / "alone.toml"
    alone.write_text('[factors."a100"]\ngemm_compute = 0.5\n')
    for onto, words in ((tmp_path / "none.toml", "none.toml"), (alone, "stands alone")):
        outcome = run_cli(*live, "--onto", onto)
        assert outcome.code == 2
        assert words in outcome.err
    for text in ("[engines]\nvllm-v1=3", 'correlations="x"', 'server="x"', '[engines."vllm-v1"]\non=3'):
        head, _, table = text.partition("[")
        odd = tmp_path / "odd.toml"
        body = '\n[factors."a100"]\ngemm_compute = 0.5\n'
        odd.write_text(f'extends = "bundled"\n{head}{body}' + (f"[{table}" if table else ""))
        assert run_cli(*live, "--onto", odd).code == 2, text
    assert (
        run_cli("calibrate", "--endpoint", "http://[::1/v1", "--hardware", "h200", "-o", tmp_path / "o.toml").code == 2
    )


def test_a_budget_without_a_server_has_no_effect_and_is_refused(run_cli, tmp_path):
    table = tmp_path / "m.csv"
    table.write_text("x")
    outcome = run_cli("calibrate", "--measurements", table, "--budget", "1h", "-o", tmp_path / "o.toml")
    assert outcome.code == 2
    assert "--budget goes with --endpoint" in outcome.err
