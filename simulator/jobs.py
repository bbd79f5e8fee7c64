"""What goes into an engine and what comes out: the cost model it asks, the job it is given, the result it answers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from costmodel.request import CacheRule, Pass

Shares = NDArray[np.float64]


class EngineCost(Protocol):
    """What an engine needs to know of a deployment.

    `step` and `decode_run_s` must return finite seconds >= 0; shares have one row per item (prefills first) and one
    column per quantity of `costmodel.cost.QUANTITIES`.
    """

    @property
    def rule(self) -> CacheRule:
        """Token budget of an iteration and prefix-cache granularity."""

    @property
    def kv_tokens(self) -> int:
        """Tokens the KV cache holds."""

    @property
    def max_seqs(self) -> int:
        """Most sequences running at once."""

    def step(self, prefill: Sequence[Pass], decode_contexts: Sequence[int]) -> tuple[float, Shares]:
        """Seconds of one iteration and its cost by item; contexts are tokens in the cache before it."""

    def decode_run_s(self, decode_contexts: Sequence[int], n_steps: int) -> Shares:
        """Seconds of each of `n_steps` decode-only iterations in a row, contexts growing by one each."""

    def decode_run_shares(self, decode_contexts: Sequence[int], n_steps: int) -> Shares:
        """Cost of those iterations by sequence, summed over them."""

    def request_s(self, prompt_tokens: int) -> float:
        """Host time before a request enters the queue."""


@dataclass(frozen=True, slots=True)
class EngineJob:
    """One request: `key` names the sequence whose earlier prefix it may reuse, up to `reusable_tokens` of it."""

    key: Hashable
    prompt_tokens: int
    reusable_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What became of one job; `finish_s - submit_s = host_s + queued_s + sum(pass_s) + decode_s + stalled_s`.

    Parameters
    ----------
    submit_s, ready_s, start_s, first_token_s, finish_s : float
        Submitted; in the queue after its host time; start of its first iteration; ends of the iterations that gave its
        first and last token.
    cached_tokens : int
        Prefix-cache hit of the first admission.
    prefill : tuple of (Pass, array)
        Every pass that ran and its cost; after a preemption passes recompute earlier positions, output included.
    pass_s : tuple of float
        Seconds of the iteration of each pass.
    decode, decode_s : array, float
        Cost of the decode passes, and the seconds of their iterations.
    saved_tokens : tuple of int
        Prefix lengths a later job of this key may reuse, as in `plan_request`.
    """

    job: EngineJob
    submit_s: float
    ready_s: float
    start_s: float
    first_token_s: float
    finish_s: float
    cached_tokens: int
    saved_tokens: tuple[int, ...]
    n_preemptions: int
    prefill: tuple[tuple[Pass, Shares], ...]
    pass_s: tuple[float, ...]
    decode: Shares
    decode_s: float

    @property
    def host_s(self) -> float:
        """Host time before the queue."""
        return self.ready_s - self.submit_s

    @property
    def queued_s(self) -> float:
        """Wait in the queue before the first iteration."""
        return self.start_s - self.ready_s

    @property
    def stalled_s(self) -> float:
        """Time after the start in which the job had no part in an iteration: preempted, or out of token budget."""
        return max(0.0, self.finish_s - self.start_s - sum(self.pass_s) - self.decode_s)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The prefill passes that ran."""
        return tuple(part for part, _ in self.prefill)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One iteration, or `n_steps` decode-only ones in a row; blocks and queue as they are when it ends."""

    start_s: float
    time_s: float
    n_steps: int
    n_prefill_tokens: int
    n_decode: int
    kv_used_tokens: int
    n_waiting: int
