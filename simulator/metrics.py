"""Serving metrics of requests, with the names, definitions and units of AIPerf, so that exports compare line by line.

`METRICS` is the glossary. Source: AIPerf metrics reference (docs.nvidia.com/aiperf, version 0.14).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwprofiles.errors import InputError, unknown_name

Array = NDArray[np.float64]

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


class Metric(NamedTuple):
    """A metric: unit, whether there is one per request, and its formula in this module's terms."""

    unit: str
    per_request: bool
    formula: str
    meaning: str


METRICS: dict[str, Metric] = {
    "time_to_first_token": Metric("ms", True, "first_token_s - submit_s", "TTFT: host time, queue and prefill"),
    "inter_token_latency": Metric(
        "ms",
        True,
        "(request_latency - time_to_first_token) / (output_sequence_length - 1)",
        "ITL, elsewhere called TPOT: mean gap between the tokens of a request; none for a single token",
    ),
    "request_latency": Metric("ms", True, "finish_s - submit_s", "E2E: until the last token"),
    "decode_duration": Metric("ms", True, "request_latency - time_to_first_token", "from the first token to the last"),
    "output_token_throughput_per_user": Metric(
        "tokens/sec/user", True, "1 / inter_token_latency", "speed at which one user sees tokens"
    ),
    "prefill_throughput_per_user": Metric(
        "tokens/sec/user", True, "input_sequence_length / time_to_first_token", "prompt tokens over TTFT"
    ),
    "input_sequence_length": Metric("tokens", True, "prompt_tokens", "ISL, cached tokens included"),
    "output_sequence_length": Metric("tokens", True, "output_tokens", "OSL, thinking included"),
    "request_count": Metric("requests", False, "number of requests", "answered ones; cancelled ones do not count"),
    "benchmark_duration": Metric("sec", False, "max(finish_s) - min(submit_s)", "first request to last answer"),
    "request_throughput": Metric("requests/sec", False, "request_count / benchmark_duration", ""),
    "output_token_throughput": Metric(
        "tokens/sec", False, "sum(output_sequence_length) / benchmark_duration", "of all users together"
    ),
    "total_token_throughput": Metric(
        "tokens/sec",
        False,
        "sum(input_sequence_length + output_sequence_length) / benchmark_duration",
        "prompts count in full, cached or not",
    ),
    "goodput": Metric(
        "requests/sec", False, "good requests / benchmark_duration", "requests that meet every objective; needs some"
    ),
}
_HIGHER_IS_BETTER = ("output_token_throughput_per_user", "prefill_throughput_per_user")


def serving_metrics(
    submit_s: Array,
    first_token_s: Array,
    finish_s: Array,
    prompt_tokens: NDArray[Any],
    output_tokens: NDArray[Any],
    objectives: Mapping[str, float] | None = None,
) -> dict[str, dict[str, Any]]:
    """The metrics of answered requests, by AIPerf's tag: its unit and `avg`, per request also its spread.

    Parameters
    ----------
    submit_s, first_token_s, finish_s, prompt_tokens, output_tokens : arrays (n_requests,)
    objectives : mapping from per-request metric to its limit, in the metric's unit
        A request is good when every latency is at most, and every throughput at least, its limit.

    Raises
    ------
    InputError
        An objective on something that is no per-request metric, or that is not above 0.

    Limits
    ------
    Times are the engine's: no client, no link. A metric without any value has `avg` None.
    """
    latency = finish_s - submit_s
    ttft = first_token_s - submit_s
    gaps = np.where(output_tokens > 1, output_tokens - 1.0, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        itl = (latency - ttft) / gaps
        each: dict[str, Array] = {
            "time_to_first_token": 1e3 * ttft,
            "inter_token_latency": 1e3 * itl,
            "request_latency": 1e3 * latency,
            "decode_duration": 1e3 * (latency - ttft),
            "output_token_throughput_per_user": 1.0 / itl,
            "prefill_throughput_per_user": prompt_tokens / ttft,
            "input_sequence_length": prompt_tokens.astype(float),
            "output_sequence_length": output_tokens.astype(float),
        }
    n = len(submit_s)
    duration_s = float(finish_s.max() - submit_s.min()) if n else 0.0
    totals: dict[str, float] = {"request_count": n, "benchmark_duration": duration_s}
    if duration_s > 0:
        tokens = float(output_tokens.sum())
        totals |= {
            "request_throughput": n / duration_s,
            "output_token_throughput": tokens / duration_s,
            "total_token_throughput": (tokens + float(prompt_tokens.sum())) / duration_s,
        }
        if objectives:
            totals["goodput"] = float(_good(each, objectives).sum()) / duration_s
    found = {name: {"unit": METRICS[name].unit, **_spread(values)} for name, values in each.items()}
    return found | {name: {"unit": METRICS[name].unit, "avg": value} for name, value in totals.items()}


def _good(each: Mapping[str, Array], objectives: Mapping[str, float]) -> NDArray[np.bool_]:
    good = np.ones(len(each["request_latency"]), dtype=bool)
    for name, limit in objectives.items():
        if name not in each:
            raise unknown_name("objective", name, each)
        if not limit > 0:
            raise InputError(f"objective {name} must be above 0 {METRICS[name].unit}, got {limit}")
        values = each[name]
        met = values >= limit if name in _HIGHER_IS_BETTER else values <= limit
        good &= met | np.isnan(values)
    return good


def _spread(values: Array) -> dict[str, float | None]:
    known = values[np.isfinite(values)]
    if not len(known):
        return {"avg": None}
    points = np.percentile(known, PERCENTILES).tolist()
    return {
        "avg": float(known.mean()),
        "min": float(known.min()),
        "max": float(known.max()),
        "std": float(known.std()),
        **{f"p{p}": point for p, point in zip(PERCENTILES, points, strict=True)},
    }
