"""The cost of one engine step and of the passes of one request: `StepModel`.

    t_step = sum over layers and operations of t_o + head + host_step_s + host_seq_s * n_seqs

`prefill` prices many passes at once, `decode_run` many stretches of single-sequence decoding; `step` prices one mixed
batch and shares it among its sequences. All three evaluate the same operations (`costmodel.ops`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from costmodel.arch import Attention, LatentAttention
from costmodel.cost import QUANTITIES
from costmodel.counts import layer_groups
from costmodel.deployment import Deployment, cache_rule, factor_values, kv_capacity_tokens
from costmodel.ops import Num, Op, Rank, Span, attention_ops, dense_ops
from costmodel.request import Pass

Array = np.ndarray[Any, np.dtype[np.float64]]

BUSY = QUANTITIES.index("busy_s")
_OP_COLUMNS = tuple(q.replace("energy_j", "dynamic_j") for q in QUANTITIES if q != "busy_s")


def clipped_sum(start: Num, n: Num, window: int | None) -> Num:
    """Sum of min(x, window) for x = start + 1 .. start + n, in closed form."""
    if window is None:
        return n * start + n * (n + 1.0) / 2.0
    linear = np.clip(window - start, 0.0, n)
    return linear * start + linear * (linear + 1.0) / 2.0 + (n - linear) * window


def prefill_span(new: Num, context: Num, window: int | None) -> Span:
    """One prefill pass of `new` tokens on top of `context` cached ones."""
    seen = context if window is None else np.minimum(context, window)
    return Span(clipped_sum(context, new, window), seen + new, new, np.minimum(new, 1.0))


def _window(attention: Any) -> int | None:
    if isinstance(attention, Attention):
        return attention.window
    if isinstance(attention, LatentAttention) and attention.index_topk:
        return attention.index_topk
    return None


class StepModel:
    """Step costs of one deployment under one set of factors.

    Parameters
    ----------
    dep : Deployment
    factors : mapping name -> float or array (n_samples, 1)
        Device and engine factors together; None takes the central values. Arrays price all samples at once and are
        only for `prefill` and `decode_run`.

    Limits
    ------
    One node; no pipeline or expert parallelism; no overlap of collectives with products.
    """

    def __init__(self, dep: Deployment, factors: Mapping[str, Num] | None = None) -> None:
        self.dep = dep
        self.factors = dict(factor_values(dep) if factors is None else factors)
        self.rank = Rank(dep, self.factors)
        self.rule = cache_rule(dep)
        self.kv_tokens = kv_capacity_tokens(dep)
        self.max_seqs = dep.engine.max_seqs
        self.groups = layer_groups(dep.model)
        self.windows = sorted({_window(layer.attention) for layer, _ in self.groups}, key=lambda w: w or 0)
        self.decode_coefficients = lru_cache(maxsize=None)(self._decode_coefficients)

    # -- operations -------------------------------------------------------------------------------------------------

    def ops(
        self, m: Num, emits: Num, prefill: Mapping[int | None, Span] | None, decode: Mapping[int | None, Span] | None
    ) -> list[tuple[Op, int]]:
        """Operations of one step with `m` rows and `emits` sampled rows, each with how often it occurs."""
        out: list[tuple[Op, int]] = []
        for layer, count in self.groups:
            found = dense_ops(self.rank, layer, m)
            window = _window(layer.attention)
            for spans, is_decode in ((prefill, False), (decode, True)):
                if spans is not None:
                    found += attention_ops(
                        self.rank, layer.attention, spans[window], spans.get(None, spans[window]), decode=is_decode
                    )
            out += [(op, count) for op in found]
        out.append((self.rank.head(emits), 1))
        return out

    def _spans(self, new: Num, context: Num) -> dict[int | None, Span]:
        return {w: prefill_span(new, context, w) for w in {*self.windows, None}}

    def total(self, ops: list[tuple[Op, int]], n_seqs: Num) -> tuple[list[Num], Num]:
        """Sum operations into the ledger columns (all devices) and the step's seconds, host included."""
        n = self.rank.n
        columns = [sum(count * getattr(op, field) for op, count in ops) * n for field in _OP_COLUMNS]
        seconds = sum(count * op.seconds for op, count in ops)
        seconds = seconds + self.factors["host_step_s"] + self.factors["host_seq_s"] * n_seqs
        return columns, seconds

    # -- one request at a time, vectorised --------------------------------------------------------------------------

    def prefill(self, new: Num, context: Num, emits: Num) -> Array:
        """Cost of prefill passes that have the engine to themselves.

        Parameters
        ----------
        new, context, emits : float arrays (n_passes,)
            New tokens, tokens already cached, 1 where the pass yields a token and 0 elsewhere.

        Returns
        -------
        array (len(QUANTITIES), ..., n_passes), with a leading sample axis where the factors have one.
        """
        columns, seconds = self.total(self.ops(new, emits, self._spans(new, context), None), 1.0)
        return _stack([*columns, seconds])

    def decode_run(self, context: Num, n_steps: Num) -> Array:
        """Cost of `n_steps` decode steps of one sequence whose cache holds `context` tokens before the first.

        A step is affine in its context, so the run costs n_steps * fixed + sum over windows of slope * sum(context).
        """
        fixed, slopes = self.decode_coefficients(1)
        cost = [f * n_steps for f in fixed]
        for w, slope in slopes.items():
            seen = clipped_sum(context, n_steps, w)
            cost = [c + s * seen for c, s in zip(cost, slope, strict=True)]
        return _stack(cost)

    def _decode_coefficients(self, n_seqs: int) -> tuple[list[Num], dict[int | None, list[Num]]]:
        """A decode step of `n_seqs` sequences: cost = fixed + sum over windows w of slope_w * sum(min(context, w))."""

        def at(unit: int | None, value: float) -> list[Num]:
            spans = {}
            for w in {*self.windows, None}:
                seen = value if w == unit else 0.0
                spans[w] = Span(seen, seen, float(n_seqs), float(n_seqs))
            columns, seconds = self.total(self.ops(float(n_seqs), float(n_seqs), None, spans), float(n_seqs))
            return [*columns, seconds]

        probe = 1e6
        fixed = at(-1, 0.0)
        used = {*self.windows, None}
        slopes = {w: [(b - a) / probe for a, b in zip(fixed, at(w, probe), strict=True)] for w in used}
        return fixed, slopes

    # -- a mixed batch, shared among its sequences ------------------------------------------------------------------

    def step(self, prefill: Sequence[Pass], decode_contexts: Sequence[int]) -> tuple[float, Array]:
        """Seconds of one engine iteration, and its cost shared per sequence.

        A decoding sequence is charged its part of the decode-only iteration; what prefill adds is shared among the
        passes, attention and FLOPs by each one's own work, the rest by tokens.

        Returns
        -------
        seconds, array (len(prefill) + len(decode_contexts), len(QUANTITIES)); every column sums to the step's total.
        """
        n_decode = len(decode_contexts)
        decode = self.decode_run_shares(decode_contexts, 1) if n_decode else np.zeros((0, len(QUANTITIES)))
        if not prefill:
            return float(decode[:, BUSY].sum()), decode
        new = np.array([float(p.new_tokens) for p in prefill])
        context = np.array([float(p.context_tokens) for p in prefill])
        emits = float(sum(p.emits for p in prefill)) + n_decode
        if n_decode == 0 and len(prefill) == 1:
            own = self.prefill(new[0], context[0], emits)
            return float(own[BUSY]), own[None, :]
        each = self._spans(new, context)
        pre = {w: Span(*(float(np.sum(x)) for x in s)) for w, s in each.items()}
        dec = self._decode_spans(decode_contexts) if n_decode else None
        columns, seconds = self.total(
            self.ops(float(new.sum()) + n_decode, emits, pre, dec), float(len(prefill) + n_decode)
        )
        total = np.array([*columns, seconds], dtype=float)
        rest = total - decode.sum(axis=0)
        return float(seconds), np.vstack([self._share_prefill(rest, new, each), decode])

    def _share_prefill(self, rest: Array, new: Array, each: Mapping[int | None, Span]) -> Array:
        by_tokens = new / new.sum()
        shares: Array = by_tokens[:, None] * rest[None, :]
        own = [0.0 * new for _ in range(3)]
        seconds = 0.0 * new
        for layer, count in self.groups:
            spans = (each[_window(layer.attention)], each[None])
            for op in attention_ops(self.rank, layer.attention, *spans, decode=False):
                for i, field in enumerate(("flops", "kv_bytes", "state_bytes")):
                    own[i] = own[i] + count * self.rank.n * getattr(op, field)
                seconds = seconds + count * op.seconds
        columns = [QUANTITIES.index(c) for c in ("flops", "kv_bytes", "state_bytes")]
        for i, column in enumerate(columns):
            shares[:, column] = own[i] + by_tokens * (rest[column] - own[i].sum())
        if seconds.sum() < rest[BUSY]:
            shares[:, BUSY] = seconds + by_tokens * (rest[BUSY] - seconds.sum())
        return shares

    def _decode_spans(self, contexts: Sequence[int]) -> dict[int | None, Span]:
        c = np.array(contexts, dtype=float)
        spans = {}
        for w in {*self.windows, None}:
            seen = float(np.sum(clipped_sum(c, 1.0, w)))
            spans[w] = Span(seen, seen, float(len(c)), float(len(c)))
        return spans

    def decode_run_s(self, decode_contexts: Sequence[int], n_steps: int) -> Array:
        """Seconds of each of `n_steps` consecutive decode-only iterations; every context grows by one a step."""
        fixed, slopes = self.decode_coefficients(len(decode_contexts))
        c = np.array(decode_contexts, dtype=float)
        steps: Array = np.arange(1.0, n_steps + 1.0)
        seconds: Array = np.full(n_steps, float(fixed[BUSY]))
        for w, slope in slopes.items():
            if slope[BUSY] == 0:
                continue
            grown = c.sum() + len(c) * steps if w is None else np.minimum(c[:, None] + steps[None, :], w).sum(axis=0)
            seconds += float(slope[BUSY]) * grown
        return seconds

    def decode_run_shares(self, decode_contexts: Sequence[int], n_steps: int) -> Array:
        """Cost of those iterations per sequence: equal parts of what is fixed, each one's own context on top."""
        fixed, slopes = self.decode_coefficients(len(decode_contexts))
        c = np.array(decode_contexts, dtype=float)
        shares = np.tile(np.array(fixed, dtype=float) * n_steps / len(c), (len(c), 1))
        for w, slope in slopes.items():
            seen = clipped_sum(c, float(n_steps), w)
            shares += np.asarray(seen)[:, None] * np.array(slope, dtype=float)[None, :]
        return shares

    def request_s(self, prompt_tokens: Num) -> Num:
        """Host time before a request enters the queue: `request_s + request_token_s * prompt`."""
        return self.factors["request_s"] + self.factors["request_token_s"] * prompt_tokens


def _stack(columns: list[Num]) -> Array:
    return np.stack(np.broadcast_arrays(*[np.asarray(c, dtype=float) for c in columns]))
