"""Seconds of whole steps and static batches of one deployment, for many rows at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.arch import Attention, LinearAttention
from costmodel.counts import layer_groups
from costmodel.deployment import Deployment, weights_per_device_bytes
from costmodel.engines import engine
from costmodel.ops import Op
from costmodel.shares import kv_bytes_per_rank, state_bytes_per_rank
from costmodel.spans import Span, clipped_sum, prefill_span
from costmodel.step import StepModel
from hwprofiles.load import efficiency
from validate.accuracy.kinds import Subject

Num = Any

_UNIFIED_SHARE = 0.75
"""Share of Apple's unified memory that the GPU may hold by default; above it a run pages."""
_MEMORY_SHARE, _RESERVE_BYTES = 0.9, 1e9
"""Of a device's memory, what engines use by default; and what activations take of it."""
_ROW_SPLIT_HIDDEN = 4096.0
"""Hidden width for which `row_split_token_s` is given: split rows send activations, which grow with it."""
_EMPTY = {"host_step_s": 0.0, "host_seq_s": 0.0}


def deployment(subject: Subject) -> Deployment:
    """The subject as a deployment, without the checks that a user's deployment passes.

    A measured row is known to have run, so a reserve that leaves no room for a cache is no reason to refuse it.
    """
    assert subject.model is not None
    return Deployment(
        hardware=subject.device,
        model=subject.model,
        n_devices=1 if subject.split == "layer" else subject.n_devices,
        weight_dtype=subject.weight_dtype,
        kv_dtype=subject.kv_dtype,
        engine=engine("vllm-v1"),
        efficiency=efficiency(subject.device.device_class),
        expert_parallel=subject.expert_parallel,
    )


def problem(subject: Subject) -> str | None:
    """Why nothing can be priced on this deployment, or None."""
    dep = deployment(subject)
    assert dep.hardware.memory_bytes is not None
    if dep.n_devices > 1 and dep.hardware.link is None:
        return "several devices, and the profile states no link"
    shared = subject.n_devices if subject.split == "layer" else 1
    usable = dep.hardware.memory_bytes.value * (_UNIFIED_SHARE if dep.hardware.vendor == "Apple" else 1.0)
    if weights_per_device_bytes(dep) / shared > usable:
        return "weights exceed the memory of the stated devices"
    return None


class Steps:
    """Prices steps of one deployment: `seconds(factors)` of each kind, factors device and generation together.

    Every count is an array over rows; a factor may have a leading sample axis.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.dep = deployment(subject)
        self._kept: tuple[Mapping[str, Num], StepModel] | None = None
        self.n_layers = len(self.dep.model.layers)
        self.n_qk_norm = sum(getattr(layer.attention, "qk_norm", "none") != "none" for layer in self.dep.model.layers)

    def model(self, factors: Mapping[str, Num]) -> StepModel:
        """The step model under some factors; the last one is kept."""
        if self._kept is None or self._kept[0] is not factors:
            self._kept = (factors, StepModel(self.dep, {**factors, **_EMPTY}))
        return self._kept[1]

    def decode_ops(self, model: StepModel, batch: Num, context: Num) -> list[tuple[Op, int]]:
        """Operations of a decode step of `batch` sequences with `context` cached tokens each."""
        spans = {}
        for w in {*model.windows, None}:
            seen = batch * clipped_sum(context, 1.0, w)
            spans[w] = Span(seen, seen, batch, batch)
        return model.ops(batch, batch, None, spans)

    def prefill_ops(
        self, model: StepModel, batch: Num, new: Num, context: Num, read_share: Num = 1.0
    ) -> list[tuple[Op, int]]:
        """Operations of a prefill of `new` tokens on `context` cached ones in each of `batch` sequences.

        `read_share` of what is cached is charged for reading: less than 1 only where a source does so.
        """
        spans = {}
        for w in {*model.windows, None}:
            one = prefill_span(new, context, w)
            touched = new + read_share * (one.touched_tokens - new)
            spans[w] = Span(one.context_tokens * batch, touched * batch, new * batch, batch)
        return model.ops(batch * new, batch, spans, None)

    def decode_s(self, factors: Mapping[str, Num], batch: Num, context: Num) -> Num:
        """Seconds of a decode step, host time included."""
        ops = self.decode_ops(self.model(factors), batch, context)
        device = _seconds(ops) + factors["qk_decode_s"] * self.n_qk_norm
        return self._with_host(factors, device, batch)

    def prefill_s(self, factors: Mapping[str, Num], batch: Num, new: Num, context: Num) -> Num:
        """Seconds of a prefill step, host time included."""
        ops = self.prefill_ops(self.model(factors), batch, new, context, factors["prefix_read_share"])
        device = _seconds(ops)
        device = device + factors["qk_prefill_s"] * self.n_qk_norm
        n = self.subject.n_devices
        if self.subject.split == "layer":
            device = device / n ** factors["pipeline_gain"]
        elif self.subject.split == "row" and n > 1:
            sent = (n - 1.0) ** 0.7 * batch * new * self.n_layers * self.dep.model.hidden / _ROW_SPLIT_HIDDEN
            device = device + factors["row_split_token_s"] * sent
        return self._with_host(factors, device, batch) + factors["prefill_s"]

    def _room_bytes(self) -> float:
        """Bytes of one device that the engine leaves for sequences."""
        assert self.dep.hardware.memory_bytes is not None
        shared = self.subject.n_devices if self.subject.split == "layer" else 1
        memory = self.dep.hardware.memory_bytes.value * shared * _MEMORY_SHARE
        return max(0.0, memory - weights_per_device_bytes(self.dep) - _RESERVE_BYTES)

    def _sequence_bytes(self, tokens: Num) -> Num:
        """Bytes of one device that one sequence of that length needs at its end."""
        total = 0.0 * tokens + 1.0
        for layer, count in layer_groups(self.dep.model):
            a = layer.attention
            if isinstance(a, LinearAttention):
                total = total + count * state_bytes_per_rank(a, self.dep.n_devices)
                continue
            seen = np.minimum(tokens, a.window) if isinstance(a, Attention) and a.window else tokens
            total = total + count * kv_bytes_per_rank(a, self.dep.n_devices, self.dep.kv_dtype) * seen
        return total

    def mixed_s(self, factors: Mapping[str, Num], batch: Num, context: Num, new: Num, cached: Num) -> Num:
        """Seconds of a step in which `batch` sequences decode and one prompt is prefilled beside them."""
        model = self.model(factors)
        pre, dec = {}, {}
        for w in {*model.windows, None}:
            pre[w] = prefill_span(new, cached, w)
            seen = batch * clipped_sum(context, 1.0, w)
            dec[w] = Span(seen, seen, batch, batch)
        ops = model.ops(batch + new, batch + 1.0, pre, dec)
        return self._with_host(factors, _seconds(ops), batch + 1.0)

    def fitting(self, tokens: Num) -> Num:
        """Sequences of that length that the KV cache holds at once, at least 1."""
        return np.maximum(1.0, self._room_bytes() / self._sequence_bytes(tokens))

    def batch_s(self, factors: Mapping[str, Num], batch: Num, prompt: Num, output: Num) -> Num:
        """Seconds of a static batch: prefill, then output - 1 decode steps; in waves where the KV cache is too small.

        A decode step is affine in its context, so all of them take as long as one at the mean context.
        """
        waves = np.maximum(1.0, batch / self.fitting(prompt + output))
        at_once = batch / waves
        decode = self.decode_s(factors, at_once, prompt + output / 2.0)
        once = self.prefill_s(factors, at_once, prompt, 0.0 * prompt) + (output - 1.0) * decode
        return waves * once + factors["request_s"]

    def kv_s(self, batch: Num, new: Num, context: Num, *, decode: bool) -> Num:
        """Seconds in which one device reads the KV cache and the state of a step at full bandwidth."""
        return self._read_s(batch, new, context, decode, ("kv_bytes", "state_bytes"))

    def floor_s(self, batch: Num, new: Num, context: Num, *, decode: bool) -> Num:
        """Seconds in which one device reads weights, KV cache and state of a step at full bandwidth."""
        return self._read_s(batch, new, context, decode, ("weight_bytes", "kv_bytes", "state_bytes"))

    def _read_s(self, batch: Num, new: Num, context: Num, decode: bool, kinds: tuple[str, ...]) -> Num:
        model = self.model(self.dep.efficiency.values())
        ops = self.decode_ops(model, batch, context) if decode else self.prefill_ops(model, batch, new, context)
        return sum(count * getattr(op, kind) for op, count in ops for kind in kinds) / model.rank.bandwidth

    def _with_host(self, factors: Mapping[str, Num], device_s: Num, batch: Num) -> Num:
        n = self.subject.n_devices
        host = factors["host_step_s"] + factors["host_tp_s"] * np.log2(n)
        if self.subject.split == "row":
            host = host + factors["row_split_layer_s"] * (n - 1.0) ** 0.5 * self.n_layers
        return np.maximum(device_s, factors["layer_floor_s"] * self.n_layers) + host + factors["host_seq_s"] * batch


def _seconds(ops: list[tuple[Op, int]]) -> Num:
    return sum(count * op.seconds for op, count in ops)
