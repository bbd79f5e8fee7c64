"""What goes into an engine and what comes out: the cost model it asks, the job it is given, the result it answers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

from costmodel.request import CacheRule, Pass

Shares = tuple[float, ...]
"""What one request is charged of an iteration, one number per quantity of `costmodel.cost.QUANTITIES`."""


class EngineCost(Protocol):
    """What an engine needs to know of a deployment.

    An iteration in which n sequences with c_j cached tokens decode beside some prefill passes costs

        decode_fixed(n) + sum over (w, slope) of slope * sum_j min(c_j + t, w) + sum(prefill_added(passes, n))

    in every quantity, t = `rule.pass_tokens`; c_j grows by `rule.tokens_per_pass` an iteration. All of `busy_s` must be
    finite and >= 0.
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

    @property
    def slopes(self) -> Sequence[tuple[int | None, Shares]]:
        """Cost of each token of context that a decoding sequence sees, by attention window."""

    def decode_fixed(self, n_seqs: int) -> Shares:
        """Cost of a decode-only iteration, contexts apart."""

    def prefill_added(self, passes: Sequence[Pass], n_decode: int) -> Sequence[Shares]:
        """What each pass adds to that iteration."""

    def request_s(self, prompt_tokens: int) -> float:
        """Host time before a request enters the queue."""


class EngineJob(NamedTuple):
    """One request: `key` names the sequence whose earlier prefix it may reuse, up to `reusable_tokens` of it."""

    key: Hashable
    prompt_tokens: int
    reusable_tokens: int
    output_tokens: int


class JobResult(NamedTuple):
    """What became of one job; `finish_s - submit_s = host_s + queued_s + sum(pass_s) + decode_s + stalled_s`.

    Parameters
    ----------
    submit_s, ready_s, start_s, first_token_s, finish_s : float
        Submitted; in the queue after its host time; start of its first iteration; ends of the iterations that gave its
        first and last token.
    cached_tokens : int
        Prefix-cache hit of the first admission.
    saved_tokens : tuple of int
        Prefix lengths a later job of this key may reuse, as in `plan_request`.
    prefill : tuple of (Pass, shares)
        Every pass that ran and its cost; after a preemption passes recompute earlier positions, output included.
    pass_s : tuple of float
        Seconds of the iteration of each pass.
    decode, decode_s : shares, float
        Cost of the decode passes, and the seconds of their iterations.
    stalled_s : float
        Time after the start in which the job had no part in an iteration: preempted, or out of token budget.
    emitted_tokens : int
        Output tokens that came: the job's, unless `cancelled`.
    cancelled : bool
        Given up before its last token; `first_token_s` is NaN when it had none, `start_s` its end when it never ran.
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
    stalled_s: float
    emitted_tokens: int
    cancelled: bool

    @property
    def host_s(self) -> float:
        """Host time before the queue."""
        return self.ready_s - self.submit_s

    @property
    def queued_s(self) -> float:
        """Wait in the queue before the first iteration."""
        return self.start_s - self.ready_s

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The prefill passes that ran."""
        return tuple([part for part, _ in self.prefill])


class LogEntry(NamedTuple):
    """One iteration, or `n_steps` decode-only ones in a row; blocks and queue as they are when it ends."""

    start_s: float
    time_s: float
    n_steps: int
    n_prefill_tokens: int
    n_decode: int
    kv_used_tokens: int
    n_waiting: int
