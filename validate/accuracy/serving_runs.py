"""Open loops by simulation: requests at constant rates through `simulator.request_stream`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.deployment import kv_capacity_tokens
from costmodel.step import StepModel
from simulator.arrivals import TraceRequest
from simulator.request_stream import at_rate, stream
from validate.accuracy.kinds import Subject
from validate.accuracy.serving_load import Load
from validate.accuracy.steps import deployment

Array = np.ndarray[Any, np.dtype[np.float64]]

COUNTED = 400
"""Requests of each stage that are counted, at least; those before them fill the engine."""
_WARM_UP = 4.5
"""Warm-up in times that a request takes by itself."""


def played(subject: Subject, load: Load, factors: Mapping[str, float]) -> dict[str, Array]:
    """Seconds of every counted request: `ttft`, `tpot`, `e2e`; and requests per second, `rate`.

    Every stage counts with as many requests as it has, the stages being equally long.
    """
    dep = deployment(subject)
    dep = replace(dep, engine=replace(dep.engine, chunk_tokens=load.chunk_tokens, max_seqs=load.max_seqs))
    host_s = factors["host_step_s"] + factors["host_tp_s"] * np.log2(subject.n_devices)
    model = StepModel(dep, {**factors, "host_step_s": host_s, "request_token_s": 0.0})
    model.kv_tokens = max(kv_capacity_tokens(dep), 2 * (load.prompt_tokens + load.output_tokens))
    rest = load.prompt_tokens - load.shared_tokens
    cached = int(load.shared_tokens + factors["cached_share"] * load.turns * (rest - 1))
    stages = [_stage(model, load, rate, cached) for rate in load.rates_per_s]
    found = {}
    for name in ("ttft", "tpot", "e2e"):
        kept = [stage[name] for stage in stages]
        share = np.array(load.rates_per_s) / max(load.rates_per_s)
        found[name] = np.concatenate([_thinned(v, s) for v, s in zip(kept, share, strict=True)])
    found["rate"] = np.array([np.mean([stage["rate"][0] for stage in stages])])
    return found


def _stage(model: StepModel, load: Load, rate_per_s: float, cached: int) -> dict[str, Array]:
    one = TraceRequest(0.0, load.prompt_tokens, load.output_tokens)
    warm = 0
    if not load.n_requests:
        alone = stream([one], model, shared_tokens=cached).e2e_s[0]
        warm = min(4 * COUNTED, int(_WARM_UP * rate_per_s * alone))
    requests = at_rate([one] * (load.n_requests or warm + COUNTED), rate_per_s)
    result = stream(requests, model, shared_tokens=cached)
    span_s = float(result.finish_s[warm:].max() - result.submit_s[warm:].min())
    rate = np.array([len(requests) / span_s if load.n_requests else rate_per_s])
    return {"ttft": result.ttft_s[warm:], "tpot": result.tpot_s[warm:], "e2e": result.e2e_s[warm:], "rate": rate}


def _thinned(values: Array, share: float) -> Array:
    """Evenly spaced ones of the values, that share of them."""
    n = max(1, round(len(values) * share))
    kept: Array = values[np.linspace(0, len(values) - 1, n).astype(int)]
    return kept
