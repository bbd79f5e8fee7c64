"""The cost of one engine step and of the passes of one request: `StepModel`.

    t_step = sum over layers and operations of t_o + head + host_step_s + host_seq_s * n_seqs

`prefill` prices many passes at once, `decode_run` many stretches of single-sequence decoding; `step` prices one mixed
batch and shares it among its sequences. All three evaluate the same operations (`costmodel.ops`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from costmodel.cost import QUANTITIES
from costmodel.counts import layer_groups
from costmodel.deployment import Deployment, cache_rule, factor_values, kv_capacity_tokens
from costmodel.ops import Op, Rank, dense_ops
from costmodel.ops_attention import attention_ops
from costmodel.request import Pass
from costmodel.spans import Num, Span, decode_span, prefill_span, run_sum
from costmodel.step_compiled import CompiledStep
from costmodel.step_parts import OP_COLUMNS, attention_window
from costmodel.step_prefill import AddedPrefill

Array = np.ndarray[Any, np.dtype[np.float64]]


class StepModel:
    """Step costs of one deployment under one set of factors.

    Parameters
    ----------
    dep : Deployment
    factors : mapping name -> float or array (n_samples, 1)
        Device and engine factors together; None takes the central values. Arrays price all samples at once and are
        only for `prefill` and `decode_run`.

    projected : bool
        The model is a prediction layer, which has a product of its own before the layer.

    Limits
    ------
    One node; no pipeline or data-parallel attention; no overlap of collectives with products. A drafter prefills what
    its model does and runs once per drafted token, on the context that the pass ends with.
    """

    def __init__(self, dep: Deployment, factors: Mapping[str, Num] | None = None, *, projected: bool = False) -> None:
        self.dep = dep
        self.factors = dict(factor_values(dep) if factors is None else factors)
        self.rank = Rank(dep, self.factors)
        self.rule = cache_rule(dep)
        self.kv_tokens = kv_capacity_tokens(dep)
        self.max_seqs = dep.engine.max_seqs
        self.tokens = self.rule.pass_tokens
        self.projected = projected
        self.drafter = self._drafter()
        self.groups = layer_groups(dep.model)
        windows = {attention_window(layer.attention) for layer, _ in self.groups}
        windows |= set(self.drafter.windows) if self.drafter else set()
        self.windows: list[int | None] = sorted(windows, key=lambda w: w or 0)
        self.spans: tuple[int | None, ...] = tuple(dict.fromkeys([*self.windows, None]))
        self.decode_coefficients = lru_cache(maxsize=None)(self._decode_coefficients)

    def _drafter(self) -> StepModel | None:
        dep, speculation = self.dep.drafter, self.dep.speculation
        if dep is None or speculation is None:
            return None
        unhosted = {**self.factors, "host_step_s": 0.0, "host_seq_s": 0.0}
        return StepModel(dep, unhosted, projected=speculation.method == "mtp")

    # -- operations -------------------------------------------------------------------------------------------------

    def ops(
        self, m: Num, emits: Num, prefill: Mapping[int | None, Span] | None, decode: Mapping[int | None, Span] | None
    ) -> list[tuple[Op, int]]:
        """Operations of one step with `m` rows and `emits` sampled rows, each with how often it occurs.

        `decode` holds spans of `decode_span`; a drafter's operations come last.
        """
        out: list[tuple[Op, int]] = []
        for layer, count in self.groups:
            found = dense_ops(self.rank, layer, m)
            window = attention_window(layer.attention)
            for spans, is_decode in ((prefill, False), (decode, True)):
                if spans is not None:
                    found += attention_ops(
                        self.rank, layer.attention, spans[window], spans.get(None, spans[window]), decode=is_decode
                    )
            out += [(op, count) for op in found]
        out.append((self.rank.head(emits), 1))
        if self.projected:
            out.append((self.rank.projection(m), 1))
        return out + (self._draft_ops(prefill, decode) if self.drafter else [])

    def _draft_ops(
        self, prefill: Mapping[int | None, Span] | None, decode: Mapping[int | None, Span] | None
    ) -> list[tuple[Op, int]]:
        assert self.drafter is not None
        found: list[tuple[Op, int]] = []
        if prefill is not None:
            found += self.drafter.ops(next(iter(prefill.values())).new_tokens, 0.0, prefill, None)
        if decode is not None:
            n_seqs = next(iter(decode.values())).n_seqs
            one = {w: decode_span(span.touched_tokens, n_seqs, 1) for w, span in decode.items()}
            drafted = self.tokens - 1
            found += [(op, count * drafted) for op, count in self.drafter.ops(n_seqs, n_seqs, None, one)]
        return [(op._replace(name=f"draft_{op.name}"), count) for op, count in found]

    def _spans(self, new: Num, context: Num) -> dict[int | None, Span]:
        return {w: prefill_span(new, context, w) for w in self.spans}

    def total(self, ops: list[tuple[Op, int]], n_seqs: Num) -> tuple[list[Num], Num]:
        """Sum operations into the ledger columns (all devices) and the step's seconds, host included."""
        columns, seconds = self.summed(ops)
        seconds = seconds + self.factors["host_step_s"] + self.factors["host_seq_s"] * n_seqs
        return columns, seconds

    def summed(self, ops: list[tuple[Op, int]]) -> tuple[list[Num], Num]:
        """Sum operations into the ledger columns (all devices) and their seconds."""
        n = self.rank.n
        columns = [sum(count * getattr(op, field) for op, count in ops) * n for field in OP_COLUMNS]
        return columns, sum(count * op.seconds for op, count in ops)

    @cached_property
    def compiled(self) -> CompiledStep:
        """The same costs from tables, for numbers as factors."""
        return CompiledStep(self)

    # -- what an engine of the simulator asks -----------------------------------------------------------------------

    @cached_property
    def slopes(self) -> tuple[tuple[int | None, tuple[float, ...]], ...]:
        """Cost of each token of context that a decoding sequence sees, by attention window."""
        return tuple((w, tuple(s.tolist())) for w, s in zip(self.compiled.windows, self.compiled.slopes, strict=True))

    def decode_fixed(self, n_seqs: int) -> tuple[float, ...]:
        """Cost of a step in which `n_seqs` sequences decode, contexts apart."""
        return tuple(self.compiled.fixed(n_seqs).tolist())

    def prefill_added(self, passes: Sequence[Pass], n_decode: int) -> list[tuple[float, ...]]:
        """What each pass adds to a step in which `n_decode` sequences decode."""
        if len(passes) == 1:
            return [self._added.cost(passes[0], n_decode)]
        return [tuple(share) for share in self.compiled.prefill_shares(passes, n_decode).tolist()]

    @cached_property
    def _added(self) -> AddedPrefill:
        return AddedPrefill(self.compiled)

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
        """Cost of `n_steps` decode passes of one sequence whose cache holds `context` tokens before the first.

        A pass is affine in its context, so the run costs n_steps * fixed + sum over windows of slope * sum(context).
        """
        fixed, slopes = self.decode_coefficients(1)
        cost = [f * n_steps for f in fixed]
        for w, slope in slopes.items():
            seen = self._run_sum(context, n_steps, w)
            cost = [c + s * seen for c, s in zip(cost, slope, strict=True)]
        return _stack(cost)

    def _decode_coefficients(self, n_seqs: int) -> tuple[list[Num], dict[int | None, list[Num]]]:
        """A decode step of `n_seqs` sequences: cost = fixed + sum over windows w of slope_w * sum(min(context, w))."""

        def at(unit: int | None, value: float) -> list[Num]:
            n = float(n_seqs)
            spans = {w: decode_span(value if w == unit else 0.0, n, self.tokens) for w in self.spans}
            columns, seconds = self.total(self.ops(self.tokens * n, self.tokens * n, None, spans), n)
            return [*columns, seconds]

        probe = 1e6
        fixed = at(-1, 0.0)
        used = self.spans
        slopes = {w: [(b - a) / probe for a, b in zip(fixed, at(w, probe), strict=True)] for w in used}
        return fixed, slopes

    # -- a mixed batch, shared among its sequences ------------------------------------------------------------------

    def step(self, prefill: Sequence[Pass], decode_contexts: Sequence[float]) -> tuple[float, Array]:
        """Seconds of one engine iteration, and its cost shared per sequence.

        A decoding sequence is charged its part of the decode-only iteration; what prefill adds is shared among the
        passes, attention and FLOPs by each one's own work, the rest by tokens.

        Returns
        -------
        seconds, array (len(prefill) + len(decode_contexts), len(QUANTITIES)); every column sums to the step's total.
        """
        n_decode = len(decode_contexts)
        seen = self.compiled.seen(decode_contexts)
        seconds = self.compiled.step_s(prefill, n_decode, seen)
        decode = self.decode_run_shares(decode_contexts, 1) if n_decode else np.zeros((0, len(QUANTITIES)))
        if not prefill:
            return seconds, decode
        return seconds, np.vstack([self.compiled.prefill_shares(prefill, n_decode), decode])

    def _decode_spans(self, contexts: Sequence[float]) -> dict[int | None, Span]:
        c = np.array(contexts, dtype=float)
        spans = {}
        for w in self.spans:
            seen = float(np.sum(self._run_sum(c, 1.0, w)))
            spans[w] = decode_span(seen, float(len(c)), self.tokens)
        return spans

    def _run_sum(self, context: Num, n: Num, window: int | None) -> Num:
        return run_sum(context, n, window, self.tokens, self.rule.tokens_per_pass)

    def decode_run_s(self, decode_contexts: Sequence[float], n_steps: int) -> Array:
        """Seconds of each of `n_steps` consecutive decode-only iterations.

        Every context grows by `rule.tokens_per_pass` a step.
        """
        compiled = self.compiled
        c = np.array(decode_contexts, dtype=float)
        steps: Array = self.tokens + self.rule.tokens_per_pass * np.arange(float(n_steps))
        seconds: Array = np.full(n_steps, compiled.fixed_s(len(c)))
        for w, slope in zip(compiled.windows, compiled.slope_s, strict=True):
            if slope == 0:
                continue
            grown = c.sum() + len(c) * steps if w is None else np.minimum(c[:, None] + steps[None, :], w).sum(axis=0)
            seconds += slope * grown
        return seconds

    def decode_run_shares(self, decode_contexts: Sequence[float], n_steps: int) -> Array:
        """Cost of those iterations per sequence: equal parts of what is fixed, each one's own context on top."""
        compiled = self.compiled
        c = np.array(decode_contexts, dtype=float)
        shares = np.tile(compiled.fixed(len(c)) * n_steps / len(c), (len(c), 1))
        for w, slope in zip(compiled.windows, compiled.slopes, strict=True):
            shares += np.asarray(self._run_sum(c, float(n_steps), w))[:, None] * slope[None, :]
        return shares

    def request_s(self, prompt_tokens: Num) -> Num:
        """Host time before a request enters the queue: `request_s + request_token_s * prompt`."""
        return self.factors["request_s"] + self.factors["request_token_s"] * prompt_tokens


def _stack(columns: list[Num]) -> Array:
    return np.stack(np.broadcast_arrays(*[np.asarray(c, dtype=float) for c in columns]))
