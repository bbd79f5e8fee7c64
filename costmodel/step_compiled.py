"""Step costs of one deployment from tables and straight lines: `CompiledStep`, for the inner loop of a simulator.

A step splits into parts that depend on whole numbers alone (tables, filled in blocks when first asked), attention of
decoding sequences (a straight line in the sum of their contexts) and attention of prefill passes (per kind of layer
one smooth roof, whose sides are linear in the passes' sums):

    t = decode(n, seen) + rest,   decode = rows(t n) + head(t n) + attention(n) + slopes . seen + host_step + host_seq n
    rest = rows(m) - rows(t n) + head(e) - head(t n) + prefill_attention(spans) + host_seq * passes

with t tokens per decoding sequence. Exact: the same sums as `StepModel.ops`, in another order (1e-12).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from costmodel.cost import QUANTITIES
from costmodel.ops import Op, dense_ops
from costmodel.ops_attention import attention_ops
from costmodel.request import Pass
from costmodel.spans import Num, decode_span
from costmodel.step_parts import BUSY, PrefillAttention, Table, attention_window

if TYPE_CHECKING:
    from costmodel.step import StepModel

Array = np.ndarray[Any, np.dtype[np.float64]]
_OWN_COLUMNS = [QUANTITIES.index(q) for q in ("flops", "kv_bytes", "state_bytes")]


class CompiledStep:
    """Step costs of a `StepModel` with scalar factors in a few microseconds each.

    Parameters
    ----------
    model : StepModel
        Its factors must be numbers.
    windows : tuple or None
        More windows than the model's own, for a drafter beside a model that has them.

    Attributes
    ----------
    windows : tuple of (int or None)
        Attention windows of the model; the first is None, the whole context.
    tokens : int
        New tokens of a decoding sequence in one pass, t.
    slope_s : tuple of float
        Seconds per token of `seen`, by window; the same for every number of sequences.
    slopes : array (n_windows, len(QUANTITIES))
        All columns per token of `seen`.

    Limits
    ------
    `seen[i]` is the sum over decoding sequences of `min(context + t, windows[i])`, contexts taken before the pass.
    """

    def __init__(self, model: StepModel, windows: tuple[int | None, ...] | None = None) -> None:
        self.model = model
        self.tokens = model.tokens
        own = (None, *sorted(w for w in model.windows if w is not None))
        self.windows: tuple[int | None, ...] = windows or own
        self._drafter = CompiledStep(model.drafter, windows=self.windows) if model.drafter else None
        f = model.factors
        self._host_step_s, self._host_seq_s = float(f["host_step_s"]), float(f["host_seq_s"])
        self._rows = Table(self._rows_cost)
        self._head = Table(self._head_cost)
        self._fixed = Table(self._fixed_cost)
        self.slopes = self._decode_slopes()
        self.slope_s: tuple[float, ...] = tuple(self.slopes[:, BUSY].tolist())
        self._attention = PrefillAttention(model, self.windows)

    # -- tables -----------------------------------------------------------------------------------------------------

    def _rows_cost(self, m: Array) -> Array:
        rows = np.maximum(m, 1.0)
        ops = [(op, n) for layer, n in self.model.groups for op in dense_ops(self.model.rank, layer, rows)]
        if self.model.projected:
            ops.append((self.model.rank.projection(rows), 1))
        return self._stack(ops, m) * (m > 0)

    def _head_cost(self, emits: Array) -> Array:
        return self._stack([(self.model.rank.head(emits), 1)], emits)

    def _fixed_cost(self, n_seqs: Array) -> Array:
        cost = self._stack(self._decode_ops(dict.fromkeys(self.windows, 0.0), n_seqs), n_seqs)
        cost[BUSY] += self._host_step_s + self._host_seq_s * n_seqs
        rows = (self.tokens * n_seqs).astype(int)
        cost += np.stack([self._rows.cost(r) + self._head.cost(r) for r in rows.tolist()], axis=-1)
        if self._drafter:
            cost += (self.tokens - 1) * self._drafter._fixed_cost(n_seqs)
        return cost * (n_seqs > 0)

    def _decode_ops(self, seen: dict[int | None, float], n_seqs: Num) -> list[tuple[Op, int]]:
        full = decode_span(seen[None], n_seqs, self.tokens)
        out = []
        for layer, count in self.model.groups:
            span = decode_span(seen[attention_window(layer.attention)], n_seqs, self.tokens)
            ops = attention_ops(self.model.rank, layer.attention, span, full, decode=True)
            out += [(op, count) for op in ops]
        return out

    def _stack(self, ops: list[tuple[Op, int]], like: Num) -> Array:
        columns, seconds = self.model.summed(ops)
        return np.stack([np.broadcast_to(np.asarray(c, dtype=float), np.shape(like)) for c in [*columns, seconds]])

    def _decode_slopes(self) -> Array:
        probe = 1e6
        none = dict.fromkeys(self.windows, 0.0)
        base = self._stack(self._decode_ops(none, 1.0), 0.0)
        slopes: Array = np.stack(
            [(self._stack(self._decode_ops({**none, w: probe}, 1.0), 0.0) - base) / probe for w in self.windows]
        )
        return slopes + (self.tokens - 1) * self._drafter.slopes if self._drafter else slopes

    # -- decoding ---------------------------------------------------------------------------------------------------

    def seen(self, contexts: Sequence[float]) -> tuple[float, ...]:
        """Sums of `min(context + t, window)` over sequences, by window; `contexts` are cached before the pass."""
        t = self.tokens
        return tuple(
            float(sum(contexts) + t * len(contexts)) if w is None else float(sum(min(c + t, w) for c in contexts))
            for w in self.windows
        )

    def fixed_s(self, n_seqs: int) -> float:
        """Seconds of a decode step of `n_seqs` sequences before any context, host time included."""
        return self._fixed.seconds(n_seqs)

    def fixed(self, n_seqs: int) -> Array:
        """All columns of the same, shared equally by its sequences: array (len(QUANTITIES),), read-only."""
        return self._fixed.cost(n_seqs)

    def decode_s(self, n_seqs: int, seen: Sequence[float]) -> float:
        """Seconds of a decode-only step: `fixed_s(n_seqs) + slope_s . seen`."""
        total = self._fixed.seconds(n_seqs)
        for slope, tokens in zip(self.slope_s, seen, strict=True):
            total += slope * tokens
        return total

    # -- prefill and mixed steps ------------------------------------------------------------------------------------

    def step_s(self, prefill: Sequence[Pass], n_decode: int = 0, seen: Sequence[float] = ()) -> float:
        """Seconds of a step with these passes and `n_decode` decoding sequences beside them."""
        rest = self._rest_s(prefill, n_decode) if prefill else 0.0
        return rest + self.decode_s(n_decode, seen) if n_decode else rest

    def prefill_shares(self, prefill: Sequence[Pass], n_decode: int = 0) -> Array:
        """What these passes add to a step of `n_decode` decoding sequences, by pass.

        Attention, KV and state go by each pass's own work, everything else by tokens.

        Returns
        -------
        array (len(prefill), len(QUANTITIES)); with the decode step's own cost it sums to the whole step's.
        """
        new = sum(p.new_tokens for p in prefill)
        rest = self._rest(prefill, n_decode)
        if len(prefill) == 1:
            return np.asarray(rest[None, :])
        by_tokens: Array = np.array([p.new_tokens for p in prefill]) / new
        shares: Array = by_tokens[:, None] * rest[None, :]
        own = np.array([self._attention_columns([p])[_OWN_COLUMNS] for p in prefill])
        shares[:, _OWN_COLUMNS] = own + by_tokens[:, None] * (rest[_OWN_COLUMNS] - own.sum(axis=0))
        seconds = np.array([self._attention_s([p]) for p in prefill])
        if seconds.sum() < rest[BUSY]:
            shares[:, BUSY] = seconds + by_tokens * (rest[BUSY] - seconds.sum())
        return shares

    def _rest_s(self, prefill: Sequence[Pass], n_decode: int) -> float:
        checked, new = self.tokens * n_decode, sum(p.new_tokens for p in prefill)
        rest = self._rows.seconds(new + checked) + self._head.seconds(checked + sum(p.emits for p in prefill))
        if n_decode:
            rest -= self._rows.seconds(checked) + self._head.seconds(checked)
        if self._drafter:
            rest += self._drafter._rows.seconds(new)
        return rest + self._attention_s(prefill) + self._host_s(prefill, n_decode)

    def _rest(self, prefill: Sequence[Pass], n_decode: int) -> Array:
        checked, new = self.tokens * n_decode, sum(p.new_tokens for p in prefill)
        rest = self._rows.cost(new + checked) + self._head.cost(checked + sum(p.emits for p in prefill))
        if n_decode:
            rest = rest - self._rows.cost(checked) - self._head.cost(checked)
        if self._drafter:
            rest = rest + self._drafter._rows.cost(new)
        rest = rest + self._attention_columns(prefill)
        rest[BUSY] += self._attention_s(prefill) + self._host_s(prefill, n_decode)
        return rest

    def _attention_s(self, prefill: Sequence[Pass]) -> float:
        own = self._attention.seconds(prefill)
        return own + self._drafter._attention.seconds(prefill) if self._drafter else own

    def _attention_columns(self, prefill: Sequence[Pass]) -> Array:
        own = self._attention.columns(prefill)
        return own + self._drafter._attention.columns(prefill) if self._drafter else own

    def _host_s(self, prefill: Sequence[Pass], n_decode: int) -> float:
        return self._host_seq_s * len(prefill) + (0.0 if n_decode else self._host_step_s)

    # -- many steps at once -----------------------------------------------------------------------------------------

    def steps_s(self, new: Array, context: Array, emits: Array, n_decode: Array, seen: Array) -> Array:
        """Seconds of many steps, each with one prefill pass and `n_decode` decoding sequences; either may be absent.

        Parameters
        ----------
        new, context, emits, n_decode : arrays (n_steps,)
            New tokens of the pass (0: none), tokens cached before it, 1 where it yields a token, decoding sequences.
        seen : array (n_windows, n_steps)
            As in `decode_s`.

        Limits
        ------
        A step must hold some work; up to a few thousand rows a step (tables grow with the largest).
        """
        out = np.empty(len(new))
        for at in range(0, len(new), 1 << 14):
            part = slice(at, at + (1 << 14))
            out[part] = self._steps_s(new[part], context[part], emits[part], n_decode[part], seen[:, part])
        return out

    def _steps_s(self, new: Array, context: Array, emits: Array, n_decode: Array, seen: Array) -> Array:
        checked = self.tokens * n_decode
        rest = self._rows.seconds_at(new + checked) + self._head.seconds_at(emits + checked)
        rest -= self._rows.seconds_at(checked) + self._head.seconds_at(checked)
        rest += self._attention.seconds_at(new, context) + self._host_seq_s + self._host_step_s * (n_decode == 0)
        if self._drafter:
            rest += self._drafter._rows.seconds_at(new) + self._drafter._attention.seconds_at(new, context)
        decode = self._fixed.seconds_at(n_decode) + np.asarray(self.slope_s) @ seen
        return np.asarray(rest * (new > 0) + decode)
