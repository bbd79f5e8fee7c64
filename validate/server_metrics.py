"""Counters of a server from its Prometheus page, under the names that the engine in this process uses too."""

from __future__ import annotations

import re

COUNTERS = {
    "vllm:prefix_cache_queries_total": "prefix_cache_queries_tokens",
    "vllm:prefix_cache_hits_total": "prefix_cache_hits_tokens",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:request_prefill_kv_computed_tokens_sum": "computed_prompt_tokens",
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:request_queue_time_seconds_sum": "queued_s",
    "vllm:request_prefill_time_seconds_sum": "prefill_s",
    "vllm:request_decode_time_seconds_sum": "decode_s",
    "vllm:estimated_flops_per_gpu_total": "flops",
    "vllm:estimated_read_bytes_per_gpu_total": "read_bytes",
    "vllm:estimated_write_bytes_per_gpu_total": "write_bytes",
}

_SAMPLE = re.compile(
    r"""(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
        (?P<labels>\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\})?
        [ \t]+(?P<value>\S+)(?:[ \t]+-?\d+)?[ \t]*""",
    re.VERBOSE,
)


def samples(page: str) -> dict[str, float]:
    """Metric name -> value, summed over its labels.

    Raises
    ------
    ValueError
        A line is no comment and no sample of the Prometheus text format.
    """
    out: dict[str, float] = {}
    for number, line in enumerate(page.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _SAMPLE.fullmatch(line)
        if found is None:
            raise ValueError(f"line {number} of the metrics page is no sample: {line[:80]!r}")
        name = found["name"]
        out[name] = out.get(name, 0.0) + float(found["value"])
    return out


def counters(page: str) -> dict[str, float]:
    """The counters of `COUNTERS` that the page has, under our names."""
    values = samples(page)
    return {ours: values[name] for name, ours in COUNTERS.items() if name in values}


_LABEL = re.compile(r"""([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)\"""")


def labels(page: str, name: str) -> dict[str, str]:
    """Labels of the first sample of a metric, such as the settings in `vllm:cache_config_info`; empty without one."""
    for line in page.splitlines():
        found = _SAMPLE.fullmatch(line)
        if found is not None and found["name"] == name:
            return dict(_LABEL.findall(found["labels"] or ""))
    return {}
