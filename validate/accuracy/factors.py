"""Which factors price a row: of its device, dtype and kernel library, and of the engine generation that ran it.

Both come as mappings of mappings, the most special key last to speak:

- `efficiency_by_device`: `class:dc_gpu`, `class:dc_gpu/fp8`, `class:dc_gpu/fp8/vllm`, then `h100`, `h100/fp8`,
  `h100/fp8/vllm`, on top of the device class's values;
- `generations`: `vllm-2023`, `vllm-2023/h100` on top of zero host time. A generation may also replace device factors
  (an old engine's `gemm_compute`, `link_bandwidth`). The generation `none` has no host time at all.

Values are numbers, or arrays (n_samples, 1) that price many samples at once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from hwprofiles.efficiency import FACTOR_NAMES
from hwprofiles.errors import unknown_name
from hwprofiles.load import efficiency
from validate.accuracy.kinds import Subject

Num = Any
FactorTable = Mapping[str, Mapping[str, Num]]

HOST: Mapping[str, float] = {
    "host_step_s": 0.0,
    "host_seq_s": 0.0,
    "host_tp_s": 0.0,
    "layer_floor_s": 0.0,
    "prefill_s": 0.0,
    "request_s": 0.0,
    "pipeline_gain": 0.25,
    "row_split_token_s": 0.0,
    "row_split_layer_s": 0.0,
    "burst_share": 0.0,
    "admit_steps": 0.5,
    "cached_share": 0.0,
    "compute_scale": 1.0,
    "memory_scale": 1.0,
    "link_scale": 1.0,
    "launch_scale": 1.0,
    "qk_prefill_s": 0.0,
    "qk_decode_s": 0.0,
    "cache_speed": 1.0,
    "prefix_read_share": 1.0,
}
"""Host times of a generation: t = max(device, layer_floor_s layers) + host_step_s + host_tp_s log2(n) + host_seq_s b;
a prefill takes `prefill_s` more, a request `request_s` once. Layer split over n devices: prefill / n^pipeline_gain; row
split: `row_split_token_s` (n - 1)^0.7 hidden / 4096 per token and layer in prefill, `row_split_layer_s` (n - 1)^0.5 per
layer and step.
`burst_share`: share of a closed loop's requests that come all at once and wait for each other's prefill; `admit_steps`:
decode steps that a request waits before a busy engine looks at it;
`cached_share`: share of a prompt of several turns that an open loop finds in the prefix cache.

`*_scale` multiply the device's shares of peak, bandwidth and link, and its fixed times: what an engine's kernels reach
of what the device's best ones do.

Quirks of one source, kept with its generation: seconds a layer that normalises its queries and keys is priced in
prefill and decode (`qk_*_s`); bandwidth of single operators that fit into the device's cache (`cache_speed`); how much
of a cached prefix's keys and values a prefill on top of it is charged for reading (`prefix_read_share`)."""


@cache
def bundled_generations() -> FactorTable:
    """The engine generations of `data/generations.toml`."""
    raw = tomllib.loads((files("validate.accuracy") / "data" / "generations.toml").read_text(encoding="utf-8"))
    return {key: {name: value for name, value in table.items() if name != "source"} for key, table in raw.items()}


def device_factors(subject: Subject, table: FactorTable) -> dict[str, Num]:
    """The factors of the subject's device, dtype and library."""
    name = subject.device.name
    found: dict[str, Num] = dict(efficiency(subject.device.device_class).values())
    of_class = f"class:{subject.device.device_class}"
    for first in (of_class, name):
        for key in (first, f"{first}/{subject.dtype}", f"{first}/{subject.dtype}/{subject.library}"):
            found.update(table.get(key, {}))
    return found


def has_own_factors(subject: Subject, table: FactorTable, generations: FactorTable) -> bool:
    """Whether factors of the subject's device hold for its dtype and library, or its engine was fitted there."""
    name = subject.device.name
    if f"{subject.generation}/{name}" in generations:
        return True
    return any(key in table for key in (name, f"{name}/{subject.dtype}", f"{name}/{subject.dtype}/{subject.library}"))


def row_factors(subject: Subject, table: FactorTable, generations: FactorTable) -> dict[str, Num]:
    """Device and generation factors together.

    Raises
    ------
    InputError
        A generation sets a name that is neither a host time nor a device factor.
    """
    found = {**device_factors(subject, table), **HOST}
    for key in (subject.generation, f"{subject.generation}/{subject.device.name}"):
        for name, value in generations.get(key, {}).items():
            if name not in found and name not in FACTOR_NAMES:
                raise unknown_name(f"factor of the engine generation {key!r}", name, {*HOST, *FACTOR_NAMES})
            found[name] = value
    return _scaled(found)


_SCALED: Mapping[str, tuple[str, ...]] = {
    "compute_scale": ("gemm_compute", "gemm_compute_8bit", "expert_compute", "attention_prefill_compute"),
    "memory_scale": ("gemm_memory", "gemm_memory_8bit", "expert_memory", "attention_decode_memory"),
    "link_scale": ("link_bandwidth",),
    "launch_scale": ("gemm_s", "gemm_8bit_s", "attention_prefill_s", "attention_decode_s", "elementwise_s", "expert_s"),
}


def _scaled(found: dict[str, Num]) -> dict[str, Num]:
    for scale, names in _SCALED.items():
        if isinstance(found[scale], float) and found[scale] == 1.0:
            continue
        for name in names:
            found[name] = found[name] * found[scale]
    return found
