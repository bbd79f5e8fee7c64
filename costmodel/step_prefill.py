"""What one prefill pass adds to an engine step, in plain numbers: the same as `CompiledStep.prefill_shares`, quicker.

A simulator asks this once per request and more; eight numbers are added up faster as floats than as an array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from costmodel.request import Pass
from costmodel.spans import clipped_sum
from costmodel.step_parts import BUSY, Line, PrefillAttention, Table

if TYPE_CHECKING:
    from costmodel.step_compiled import CompiledStep

Costs = tuple[float, ...]


class _Rows(dict[int, Costs]):
    """The rows of a `Table` as tuples, each made when first asked."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table

    def __missing__(self, i: int) -> Costs:
        found = self[i] = tuple(self._table.cost(i).tolist())
        return found


class _Attention:
    """Attention of one pass: the work of all operations of a window is one linear map, their seconds are not."""

    def __init__(self, attention: PrefillAttention) -> None:
        self._windows = attention.windows
        self._operations = attention._operations
        self._work: list[tuple[int, bool, list[tuple[int, Line]]]] = []
        for key in dict.fromkeys((a.window, a.sparse) for a in self._operations):
            found = np.sum([a.columns for a in self._operations if (a.window, a.sparse) == key], axis=0)
            lines = [(i, (a, b, c, d)) for i, (a, b, c, d) in enumerate(found.tolist()) if a or b or c or d]
            self._work.append((*key, lines))

    def add_to(self, cost: list[float], one: Pass) -> None:
        """Add work and seconds of `one` to `cost`."""
        new, start = float(one.new_tokens), float(one.context_tokens)
        seen = [(clipped_sum(start, new, w), (start if w is None else min(start, w)) + new) for w in self._windows]
        for window, sparse, lines in self._work:
            x, y = seen[window]
            if sparse:
                y = min(seen[0][1], x)
            for i, (a, b, c, d) in lines:
                cost[i] += a * x + b * y + c * new + d
        total = 0.0
        for op in self._operations:
            x, y = seen[op.window]
            if op.sparse:
                y = min(seen[0][1], x)
            a, b, c, d = op.compute
            high = a * x + b * y + c * new + d
            a, b, c, d = op.memory
            low = a * x + b * y + c * new + d
            if low > high:
                high, low = low, high
            if low > 0.0:  # a side that is nothing may come out at -1e-22
                high *= (1.0 + (low / high) ** op.exponent) ** (1.0 / op.exponent)
            a, b, c, d = op.power
            total += op.n_layers * (max(high, a * x + b * y + c * new + d, 0.0) + op.fixed_s)
        cost[BUSY] += total


class AddedPrefill:
    """`CompiledStep.prefill_shares` of a single pass, as a tuple."""

    def __init__(self, compiled: CompiledStep) -> None:
        self._tokens = compiled.tokens
        self._rows, self._head = _Rows(compiled._rows), _Rows(compiled._head)
        self._host_step_s, self._host_seq_s = compiled._host_step_s, compiled._host_seq_s
        self._attention = _Attention(compiled._attention)
        drafter = compiled._drafter
        self._drafter = None if drafter is None else (_Rows(drafter._rows), _Attention(drafter._attention))

    def cost(self, one: Pass, n_decode: int) -> Costs:
        """What the pass adds to a step of `n_decode` decoding sequences: a number per quantity."""
        checked = self._tokens * n_decode
        rows, head = self._rows[checked + one.new_tokens], self._head[checked + one.emits]
        if n_decode:
            less, fewer = self._rows[checked], self._head[checked]
            cost = [a + b - c - d for a, b, c, d in zip(rows, head, less, fewer, strict=True)]
            cost[BUSY] += self._host_seq_s
        else:
            cost = [a + b for a, b in zip(rows, head, strict=True)]
            cost[BUSY] += self._host_seq_s + self._host_step_s
        self._attention.add_to(cost, one)
        if self._drafter is not None:
            drafted, attention = self._drafter
            cost = [a + b for a, b in zip(cost, drafted[one.new_tokens], strict=True)]
            attention.add_to(cost, one)
        return tuple(cost)
