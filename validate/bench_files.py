"""Result files of benchmark clients as rows of a measurement table: `vllm bench serve`, AIPerf and GuideLLM.

Each gives medians of the time to the first token and between tokens at a fixed concurrency. An open loop (requests at a
rate) says as much of its queue as of a step and is refused.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwprofiles.errors import InputError, ProfileError
from validate.accuracy.tables import COLUMNS, Row

MAX_BYTES = 200_000_000

Run = dict[str, Any]
"""One benchmark: model, engine, concurrency, input, output (tokens), and medians `ttft`, `tpot` in ms."""


def read_bench(path: Path, hardware: str, n_devices: int, model: str | None, weight_dtype: str | None) -> list[Row]:
    """The rows of a result file, of any of the three clients.

    Parameters
    ----------
    hardware, n_devices : str, int
        What the server ran on: no client knows it.
    model, weight_dtype : str or None
        In place of what the file says.

    Raises
    ------
    ProfileError
        Not a result file that is known, or one without lengths, concurrency or times.
    """
    text = _text(path)
    document = _json(text)
    if document is None:
        runs = [_aiperf_csv(text, path)]
    elif "mean_ttft_ms" in document or "median_ttft_ms" in document:
        runs = [_vllm(document, path)]
    elif isinstance(document.get("benchmarks"), list):
        runs = [_guidellm(one, document, path) for one in document["benchmarks"] if isinstance(one, dict)]
    elif isinstance(document.get("time_to_first_token"), dict):
        runs = [_aiperf(document, path)]
    else:
        raise ProfileError(f"{path}: neither a result of `vllm bench serve`, nor of AIPerf, nor of GuideLLM")
    rows = []
    for run in runs:
        told = {**run, "model": model or run["model"]}
        if not told["model"]:
            raise ProfileError(f"{path}: the file names no model; give --model")
        rows += _rows(told, path, hardware, n_devices, weight_dtype)
    if not rows:
        raise ProfileError(f"{path}: holds no benchmark")
    return rows


def _rows(run: Run, path: Path, hardware: str, n_devices: int, weight_dtype: str | None) -> list[Row]:
    clients = _number(run["concurrency"], f"{path}: concurrency")
    sizes = {key: _number(run[key], f"{path}: mean {key} tokens") for key in ("input", "output")}
    found = []
    for line, metric in enumerate(("ttft", "tpot"), 1):
        if run.get(metric) is None:
            continue
        value = _number(run[metric], f"{path}: median {metric}")
        found.append(
            Row(
                table="serving_bench",
                line=line,
                source=path.name,
                hardware=hardware,
                n_devices=n_devices,
                model=str(run["model"]),
                weight_dtype=weight_dtype or "",
                kv_dtype="",
                engine=str(run.get("engine") or "vllm"),
                phase="e2e",
                batch=clients,
                input_tokens=round(sizes["input"]),
                context_tokens=None,
                output_tokens=max(2, round(sizes["output"])),
                metric=f"{metric}_p50_ms",
                value=value,
                unit="ms",
                kind="serving, measured",
                note={},
                text=dict.fromkeys(COLUMNS, ""),
            )
        )
    if not found:
        raise ProfileError(
            f"{path}: states no time to the first token and none between tokens; run the client streaming"
        )
    return found


def _vllm(d: Mapping[str, Any], path: Path) -> Run:
    n = _number(d.get("completed"), f"{path}: completed")
    rate, most = d.get("request_rate"), d.get("max_concurrency")
    if most is None and rate not in ("inf", math.inf):
        raise ProfileError(
            f"{path}: an open loop at {rate} requests/s; run `vllm bench serve --max-concurrency N --request-rate inf`"
        )
    return {
        "model": d.get("model_id"),
        "engine": d.get("endpoint_type") or d.get("backend"),
        "concurrency": min(n, most) if isinstance(most, int | float) and not isinstance(most, bool) else n,
        "input": _number(d.get("total_input_tokens"), f"{path}: total_input_tokens") / n,
        "output": _number(d.get("total_output_tokens"), f"{path}: total_output_tokens") / n,
        "ttft": d.get("median_ttft_ms", d.get("mean_ttft_ms")),
        "tpot": d.get("median_tpot_ms", d.get("mean_tpot_ms")),
    }


def _aiperf(d: Mapping[str, Any], path: Path) -> Run:
    config = d.get("input_config") or {}
    load = config.get("loadgen") or {}
    names = (config.get("endpoint") or {}).get("model_names") or [d.get("model")]
    clients = load.get("concurrency") or d.get("concurrency")
    if clients is None:
        _open(path, load.get("request_rate"), "aiperf profile --concurrency N")
    return {
        "model": names[0],
        "concurrency": clients,
        "input": _middle(d, "input_sequence_length", "avg"),
        "output": _middle(d, "output_sequence_length", "avg"),
        "ttft": _middle(d, "time_to_first_token"),
        "tpot": _middle(d, "inter_token_latency"),
    }


def _aiperf_csv(text: str, path: Path) -> Run:
    """The statistics of AIPerf's CSV: `Metric, avg, ..., p50, ...`; it does not say the concurrency of the run."""
    found: dict[str, dict[str, str]] = {}
    header: list[str] = []
    try:
        for cells in csv.reader(io.StringIO(text), strict=True):
            if cells and cells[0].strip() == "Metric":
                header = [c.strip() for c in cells]
            elif header and len(cells) == len(header):
                found[cells[0].partition("(")[0].strip().casefold()] = dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise ProfileError(f"{path}: neither JSON nor CSV: {error}") from None
    if "time to first token" not in found:
        raise ProfileError(f"{path}: neither a result of `vllm bench serve`, nor of AIPerf, nor of GuideLLM")

    def at(name: str, *columns: str) -> str | None:
        return next((found[name][c] for c in columns if found.get(name, {}).get(c)), None)

    clients = at("concurrency", "avg") or _little(
        at("request throughput", "avg", "Value"), at("request latency", "avg")
    )
    return {
        "model": None,
        "concurrency": clients,
        "input": at("input sequence length", "avg"),
        "output": at("output sequence length", "avg"),
        "ttft": at("time to first token", "p50", "avg"),
        "tpot": at("inter token latency", "p50", "avg"),
    }


def _little(rate_per_s: str | None, latency_ms: str | None) -> float | None:
    """Requests at once, by Little's law: rate times latency."""
    try:
        return max(1.0, round(float(rate_per_s or "") * float((latency_ms or "").replace(",", "")) / 1e3))
    except ValueError:
        return None


def _guidellm(d: Mapping[str, Any], whole: Mapping[str, Any], path: Path) -> Run:
    config = d.get("config") or d.get("args") or {}
    strategy = config.get("strategy") or {}
    metrics = d.get("metrics") or {}
    kind = strategy.get("type_") or strategy.get("kind")
    clients = strategy.get("streams") or strategy.get("max_concurrency")
    if kind == "synchronous":
        clients = 1
    if kind in ("constant", "poisson") or (clients is None and strategy.get("rate") is not None):
        _open(path, strategy.get("rate"), "guidellm benchmark --rate-type concurrent --rate N")
    backend = config.get("backend") or whole.get("backend") or {}
    named = backend.get("model") if isinstance(backend, dict) else None
    ok = {key: (value or {}).get("successful") for key, value in metrics.items() if isinstance(value, dict)}
    return {
        "model": named or (whole.get("args") or {}).get("model"),
        "concurrency": clients if clients is not None else _middle(ok, "request_concurrency", "mean"),
        "input": _middle(ok, "prompt_token_count", "mean"),
        "output": _middle(ok, "output_token_count", "mean"),
        "ttft": _middle(ok, "time_to_first_token_ms"),
        "tpot": _middle(ok, "inter_token_latency_ms"),
    }


def _open(path: Path, rate: object, better: str) -> None:
    raise ProfileError(f"{path}: an open loop at {rate} requests/s, not a fixed concurrency; run `{better}`")


def _middle(d: Mapping[str, Any], key: str, *first: str) -> Any:
    """The median of a metric, or its mean; `first` goes before both."""
    stats = d.get(key)
    if not isinstance(stats, dict):
        return None
    value = next((stats[k] for k in (*first, "p50", "median", "avg", "mean") if stats.get(k) is not None), None)
    return value * 1e3 if stats.get("unit") == "s" and isinstance(value, int | float) else value


def _number(value: object, where: str) -> float:
    try:
        found = math.nan if value is None or isinstance(value, bool) else float(str(value).replace(",", ""))
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found <= 0:
        raise ProfileError(f"{where} must be a finite number above 0, got {value!r:.40}")
    return found


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes() if path.stat().st_size <= MAX_BYTES else None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if raw is None:
        raise ProfileError(f"{path}: larger than {MAX_BYTES:,} bytes")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: not UTF-8 at byte {error.start}") from None


def _json(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is, None where it is none; a log before it is passed over."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        found = json.loads(text[start:])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
