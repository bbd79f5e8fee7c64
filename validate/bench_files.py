"""Result files of benchmark clients as rows of a measurement table: `vllm bench serve`, AIPerf and GuideLLM.

One client alone gives the medians of the time to the first token and between tokens. Several at a fixed concurrency
give the mean time of a request, which Little's law fixes (clients / rate): how it divides into the two depends on
whether the clients have fallen into step, as those with equal lengths do. An open loop (requests at a rate) says as
much of its queue as of a step and is refused.

Source: files written by vLLM 0.32, AIPerf 0.13 (schema 1.4), GuideLLM 0.5.4 and 0.8.1; the source of GuideLLM 0.2 to
0.4 for its keys.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hwprofiles.errors import ProfileError
from validate.accuracy.tables import COLUMNS, Row
from validate.bench_values import OpenLoop, documents, little, middle, number, open_loop, text_of

_FULL = 0.75
"""Mean concurrency over the largest, below which AIPerf's CSV is taken for an open loop (assumed; closed ones measured
0.99, a Poisson one 0.39)."""

Run = dict[str, Any]
"""One benchmark: model, engine, concurrency, input, output (tokens), medians `ttft`, `tpot`, mean `e2e` in ms."""


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
    text = text_of(path)
    found: list[Run] = []
    refused: list[OpenLoop] = []
    for read in _readers(text, path):
        try:
            found.append(read())
        except OpenLoop as error:
            refused.append(error)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise ProfileError(f"{path}: not laid out as its client lays results out ({error})") from None
    if refused and not found:
        raise refused[0]
    rows: list[Row] = []
    for run in found:
        told = {**run, "model": model or run["model"]}
        if not told["model"]:
            raise ProfileError(f"{path}: the file names no model; give --model")
        rows += _rows(told, path, hardware, n_devices, weight_dtype, len(rows))
    if not rows:
        raise ProfileError(f"{path}: holds no benchmark")
    return rows


def _readers(text: str, path: Path) -> Iterator[Callable[[], Run]]:
    """What reads each benchmark of a file."""
    found = documents(text)
    for d in found:
        if "completed" in d and "total_input_tokens" in d:
            yield partial(_vllm, d, path)
        elif isinstance(d.get("benchmarks"), list):
            yield from (partial(_guidellm, one, d, path) for one in d["benchmarks"] if isinstance(one, dict))
        elif isinstance(d.get("time_to_first_token"), dict) or isinstance(d.get("request_latency"), dict):
            yield partial(_aiperf, d, path)
        else:
            raise ProfileError(f"{path}: neither a result of `vllm bench serve`, nor of AIPerf, nor of GuideLLM")
    if not found:
        yield partial(_aiperf_csv, text, path)


def _rows(run: Run, path: Path, hardware: str, n_devices: int, weight_dtype: str | None, before: int) -> list[Row]:
    clients = number(run["concurrency"], f"{path}: concurrency")
    sizes = {key: number(run[key], f"{path}: mean {key} tokens") for key in ("input", "output")}
    wanted = {"ttft_p50_ms": "ttft", "tpot_p50_ms": "tpot"} if clients == 1 else {"e2e_mean_ms": "e2e"}
    found: list[Row] = []
    for metric, key in wanted.items():
        if run.get(key) is None:
            continue
        found.append(
            Row(
                table="serving_bench",
                line=before + len(found) + 1,
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
                metric=metric,
                value=number(run[key], f"{path}: {metric.replace('_', ' ')}"),
                unit="ms",
                kind="serving, measured",
                note={},
                text=dict.fromkeys(COLUMNS, ""),
            )
        )
    if not found:
        need = "no time to the first token and none between tokens" if clients == 1 else "no time of a request"
        raise ProfileError(f"{path}: states {need}; run the client streaming, with its usual metrics")
    return found


def _vllm(d: Mapping[str, Any], path: Path) -> Run:
    n = number(d.get("completed"), f"{path}: completed")
    rate, most = d.get("request_rate"), d.get("max_concurrency")
    better = "vllm bench serve --max-concurrency N --request-rate inf"
    if rate not in ("inf", math.inf) or d.get("ramp_up_strategy"):
        raise open_loop(path, f"requests at a rate of {rate} or rising", better)
    if most is None:
        raise open_loop(path, "all requests at once", better)
    output = number(d.get("total_output_tokens"), f"{path}: total_output_tokens") / n
    backend = str(d.get("backend") or d.get("endpoint_type") or "vllm")
    first, between = d.get("mean_ttft_ms"), d.get("mean_tpot_ms")
    e2e = d.get("mean_e2el_ms")
    if e2e is None and first is not None and between is not None:
        e2e = number(first, f"{path}: mean_ttft_ms") + (output - 1) * number(between, f"{path}: mean_tpot_ms")
    return {
        "model": d.get("model_id"),
        "engine": "vllm" if backend.startswith("openai") else backend,
        "concurrency": min(n, number(most, f"{path}: max_concurrency")),
        "input": number(d.get("total_input_tokens"), f"{path}: total_input_tokens") / n,
        "output": output,
        "ttft": d.get("median_ttft_ms", first),
        "tpot": d.get("median_tpot_ms", between),
        "e2e": e2e,
    }


def _aiperf(d: Mapping[str, Any], path: Path) -> Run:
    config = d.get("input_config") or {}
    load = _aiperf_load(config, path)
    named = [m.get("name") for m in (config.get("models") or {}).get("items") or [] if isinstance(m, dict)]
    names = named or (config.get("endpoint") or {}).get("model_names") or [None]
    e2e = middle(d, "request_latency", "avg")
    clients = load.get("concurrency")
    if clients is None:
        clients = little(middle(d, "request_throughput", "avg"), e2e)
    return {
        "model": names[0],
        "concurrency": clients,
        "input": middle(d, "input_sequence_length", "avg"),
        "output": middle(d, "output_sequence_length", "avg"),
        "ttft": middle(d, "time_to_first_token"),
        "tpot": middle(d, "inter_token_latency"),
        "e2e": e2e,
    }


def _aiperf_load(config: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """What says the concurrency: the profiling phase, or `loadgen` before AIPerf 0.13."""
    phases = [p for p in config.get("phases") or [] if isinstance(p, dict) and p.get("kind") in (None, "profiling")]
    if len(phases) > 1:
        raise ProfileError(f"{path}: {len(phases)} profiling phases in one result; profile one concurrency at a time")
    load: Mapping[str, Any] = phases[0] if phases else config.get("loadgen") or {}
    rate = load.get("rate", load.get("request_rate"))
    kind = load.get("type", "concurrency")
    if rate is not None or kind != "concurrency":
        raise open_loop(path, f"requests of kind {kind} at {rate}/s", "aiperf profile --concurrency N")
    return load


def _aiperf_csv(text: str, path: Path) -> Run:
    """The statistics of AIPerf's CSV: `Metric, avg, ..., p50, ...`; the concurrency asked for is not in it."""
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

    e2e = at("request latency", "avg")
    clients = little(at("request throughput", "avg", "Value"), e2e)
    mean, most = at("effective concurrency", "avg"), at("effective concurrency", "max")
    if mean and most:
        clients = number(most, f"{path}: effective concurrency")
        if number(mean, f"{path}: effective concurrency") < _FULL * clients:
            raise open_loop(
                path, f"on average {mean} of at most {most} requests at once", "aiperf profile --concurrency N"
            )
    return {
        "model": None,
        "concurrency": clients,
        "input": at("input sequence length", "avg"),
        "output": at("output sequence length", "avg"),
        "ttft": at("time to first token", "p50", "avg"),
        "tpot": at("inter token latency", "p50", "avg"),
        "e2e": e2e,
    }


def _guidellm(d: Mapping[str, Any], whole: Mapping[str, Any], path: Path) -> Run:
    config = d.get("config") or d.get("args") or {}
    strategy = config.get("strategy") or {}
    kind = strategy.get("type_") or strategy.get("kind")
    clients = 1 if kind == "synchronous" else strategy.get("streams") or strategy.get("max_concurrency")
    if kind not in ("synchronous", "concurrent", "throughput") or clients is None:
        raise open_loop(path, f"strategy {kind}, rate {strategy.get('rate')}", "guidellm with the concurrent profile")
    backend = config.get("backend")
    named = (
        (backend.get("model") if isinstance(backend, dict) else None)
        or (d.get("worker") or {}).get("backend_model")
        or (whole.get("args") or {}).get("model")
    )
    metrics = d.get("metrics") or {}
    ok = {key: (value or {}).get("successful") for key, value in metrics.items() if isinstance(value, dict)}
    seconds = middle(ok, "request_latency", "mean")
    return {
        "model": named,
        "concurrency": clients,
        "input": middle(ok, "prompt_token_count", "mean"),
        "output": middle(ok, "output_token_count", "mean"),
        "ttft": middle(ok, "time_to_first_token_ms"),
        "tpot": middle(ok, "inter_token_latency_ms"),
        "e2e": seconds * 1e3 if isinstance(seconds, int | float) else None,
    }
