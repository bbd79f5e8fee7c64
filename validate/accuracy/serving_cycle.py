"""A closed loop in its steady state, in closed form: what the simulation of evenly spaced clients gives.

n clients run at once, evenly spaced over the cycle of a request: k prefill steps and output - 1 decode steps. So of the
steps in which a request decodes, the share (n - 1) k / (k + output - 1) also prefills for somebody else:

    tpot = decode(n, prompt + output / 2) + added (n - 1) / (k + output - 1)
    ttft = request + wait + own prefill steps;   e2e = ttft + (output - 1) tpot

where `added` is what a prompt's prefill steps take beyond the decode steps they share (all of them where the engine
prefills alone). More clients than the KV cache or the engine holds wait for a place: (clients - n) / n cycles.

Limits: (n - 1) k must not exceed the steps of a cycle; then prefills queue behind each other and this is too short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from validate.accuracy.serving_load import Load
from validate.accuracy.steps import Steps

Num = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Means of a load, seconds, and requests per second: arrays over loads, with a leading sample axis if any."""

    ttft: Num
    tpot: Num
    e2e: Num
    rate: Num


class Cycles:
    """Prices the closed loops of one deployment."""

    def __init__(self, steps: Steps, loads: Sequence[Load]) -> None:
        self.steps = steps
        self.prompt = np.array([float(load.prompt_tokens) for load in loads])
        self.output = np.array([float(load.output_tokens) for load in loads])
        self.clients = np.array([float(load.clients) for load in loads])
        self.alone = np.array([load.alone for load in loads])
        chunk = np.array([float(load.chunk_tokens) for load in loads])
        most = np.array([float(load.max_seqs) for load in loads])
        self.n = np.minimum(np.minimum(self.clients, most), steps.fitting(self.prompt + self.output))
        room = np.maximum(1.0, chunk - np.where(self.alone, 0.0, self.n - 1.0))
        self.full = np.floor(self.prompt / room)
        self.chunk = np.where(self.full > 0, room, self.prompt)
        self.rest = self.prompt - self.full * room
        self.k = self.full + (self.rest > 0)

    def figures(self, factors: Mapping[str, Num]) -> Figures:
        """Means under some factors."""
        n, gaps = self.n, self.output - 1.0
        context = self.prompt + self.output / 2.0
        decode = self.steps.decode_s(factors, n, context)
        own, added = self._prefill(factors, decode, context)
        steps = self.k + gaps
        tpot = decode + added * (n - 1.0) / steps
        busy = np.minimum(1.0, n - 1.0)
        wait = factors["admit_steps"] * busy * tpot
        service = wait + own + gaps * tpot
        queue = (self.clients - n) / n * service
        alone = self.steps.prefill_s(factors, 1.0 + 0.0 * n, self.prompt, 0.0 * n)
        burst = factors["burst_share"] * alone * (self.clients - 1.0) / 2.0
        ttft = factors["request_s"] + wait + own + queue + burst
        return Figures(ttft=ttft, tpot=tpot, e2e=ttft + gaps * tpot, rate=n / (factors["request_s"] + service))

    def _prefill(self, factors: Mapping[str, Num], decode: Num, context: Num) -> tuple[Num, Num]:
        """Seconds of a prompt's prefill steps, and what they add to the others' decoding."""
        others = self.n - 1.0
        zero = 0.0 * self.prompt
        middle = self.chunk * np.maximum(0.0, self.full - 1.0) / 2.0
        mixed = self.full * self.steps.mixed_s(factors, others, context, self.chunk, middle)
        last = self.steps.mixed_s(factors, others, context, np.maximum(1.0, self.rest), self.prompt - self.rest)
        mixed = mixed + (self.rest > 0) * last
        alone = self.steps.prefill_s(factors, zero + 1.0, self.prompt, zero)
        return np.where(self.alone, alone, mixed), np.where(self.alone, alone, mixed - self.k * decode)
