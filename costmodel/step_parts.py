"""The parts of a compiled step: tables over whole numbers, and attention of prefill passes in closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from costmodel.arch import Attention, AttentionSpec, LatentAttention
from costmodel.cost import QUANTITIES
from costmodel.ops_attention import attention_ops
from costmodel.request import Pass
from costmodel.roof import smooth
from costmodel.spans import Num, Span, clipped_sum, prefill_span

if TYPE_CHECKING:
    from costmodel.step import StepModel

Array = np.ndarray[Any, np.dtype[np.float64]]
Line = tuple[float, float, float, float]

BUSY = QUANTITIES.index("busy_s")
OP_COLUMNS = tuple(q.replace("energy_j", "dynamic_j") for q in QUANTITIES if q != "busy_s")
_BLOCK_BITS = 8
_BLOCK = 1 << _BLOCK_BITS


def attention_window(attention: AttentionSpec) -> int | None:
    """Tokens of context that a new token sees at most; None: all of it."""
    if isinstance(attention, Attention):
        return attention.window
    if isinstance(attention, LatentAttention) and attention.index_topk:
        return attention.index_topk
    return None


class Table:
    """Costs (len(QUANTITIES)) of whole numbers from 0, evaluated 256 at a time when first asked.

    `evaluate` takes an array (256,) of numbers and gives an array (len(QUANTITIES), 256).
    """

    def __init__(self, evaluate: Callable[[Array], Array]) -> None:
        self._evaluate = evaluate
        self._costs: dict[int, Array] = {}
        self._seconds: dict[int, list[float]] = {}

    def _fill(self, block: int) -> list[float]:
        costs = self._evaluate(np.arange(block * _BLOCK, (block + 1) * _BLOCK, dtype=float)).T.copy()
        costs.setflags(write=False)
        self._costs[block] = costs
        self._seconds[block] = costs[:, BUSY].tolist()
        return self._seconds[block]

    def seconds(self, i: int) -> float:
        """Seconds at `i`."""
        block = self._seconds.get(i >> _BLOCK_BITS)
        if block is None:
            block = self._fill(i >> _BLOCK_BITS)
        return block[i & _BLOCK - 1]

    def cost(self, i: int) -> Array:
        """All columns at `i`, read-only."""
        if i >> _BLOCK_BITS not in self._costs:
            self._fill(i >> _BLOCK_BITS)
        found: Array = self._costs[i >> _BLOCK_BITS][i & _BLOCK - 1]
        return found

    def seconds_at(self, i: Array) -> Array:
        """Seconds at an array of whole numbers."""
        index = i.astype(np.int64)
        blocks = index >> _BLOCK_BITS
        first = int(blocks.min(initial=0))
        flat = [self._seconds.get(b) or self._fill(b) for b in range(first, int(blocks.max(initial=first)) + 1)]
        return np.concatenate(flat)[index - first * _BLOCK]


class _Operation(NamedTuple):
    """One attention operation of prefill passes; lines are over (context, touched, new tokens, sequences)."""

    window: int
    sparse: bool
    n_layers: int
    exponent: float
    compute: Line
    memory: Line
    power: Line
    fixed_s: float
    columns: Array


class PrefillAttention:
    """Attention of a step's prefill passes, whose roofs' sides are linear in the passes' sums.

    t = sum over operations of n_layers (max(smooth(compute . v, memory . v), power . v) + fixed_s)

    Parameters
    ----------
    model : StepModel
        With numbers as factors.
    windows : tuple of (int or None)
        Attention windows, None first.
    """

    def __init__(self, model: StepModel, windows: tuple[int | None, ...]) -> None:
        self.windows = windows
        self._operations = list(_operations(model, windows))

    def seconds(self, prefill: Sequence[Pass]) -> float:
        """Seconds of these passes together."""
        sums = self._sums(prefill)
        total = 0.0
        for a in self._operations:
            v = _clamped(sums, a)
            compute, memory = _dot(a.compute, v), _dot(a.memory, v)
            high, low = (compute, memory) if compute > memory else (memory, compute)
            if low > 0.0:  # a side that is nothing may come out at -1e-22
                high *= (1.0 + (low / high) ** a.exponent) ** (1.0 / a.exponent)
            total += a.n_layers * (max(high, _dot(a.power, v), 0.0) + a.fixed_s)
        return total

    def columns(self, prefill: Sequence[Pass]) -> Array:
        """Work of these passes together: array (len(QUANTITIES),), seconds left 0."""
        sums = self._sums(prefill)
        total = np.zeros(len(QUANTITIES))
        for a in self._operations:
            total[:-1] += a.columns @ _clamped(sums, a)
        return total

    def seconds_at(self, new: Array, context: Array) -> Array:
        """Seconds of many steps with one pass each."""
        spans = [prefill_span(new, context, w) for w in self.windows]
        total = 0.0 * new
        for a in self._operations:
            span = spans[a.window]
            touched = np.minimum(spans[0].touched_tokens, span.context_tokens) if a.sparse else span.touched_tokens
            v = (span.context_tokens, touched, span.new_tokens, span.n_seqs)
            compute, memory = (np.maximum(_dot(line, v), 0.0) for line in (a.compute, a.memory))
            work = smooth(compute, memory, a.exponent)
            total += a.n_layers * (np.maximum(work, _dot(a.power, v)) + a.fixed_s)
        return total

    def _sums(self, prefill: Sequence[Pass]) -> list[Line]:
        """Sums over passes of (context, touched, new tokens, sequences), by window."""
        new = float(sum(p.new_tokens for p in prefill))
        n = float(len(prefill))
        out = []
        for w in self.windows:
            context = touched = 0.0
            for p in prefill:
                start = float(p.context_tokens)
                context += clipped_sum(start, float(p.new_tokens), w)
                touched += (start if w is None else min(start, w)) + p.new_tokens
            out.append((context, touched, new, n))
        return out


def _operations(model: StepModel, windows: tuple[int | None, ...]) -> list[_Operation]:
    """Every attention operation, its lines found by evaluating it at a base point and one step along each axis."""
    base = (4.0, 2.0, 0.0, 1.0)
    probes = [base, *(tuple(x + (i == j) for j, x in enumerate(base)) for i in range(4))]
    power_w = float(model.rank.dynamic_w)
    out = []
    for layer, count in model.groups:
        a = layer.attention
        spans = [Span(*v) for v in probes]
        found = [attention_ops(model.rank, a, span, span, decode=False) for span in spans]
        for ops in zip(*found, strict=True):
            whole = ops[0].name.startswith("indexer")
            columns = np.array([_line([getattr(op, c) for op in ops]) for c in OP_COLUMNS])
            out.append(
                _Operation(
                    window=0 if whole else windows.index(attention_window(a)),
                    sparse=isinstance(a, LatentAttention) and a.index_topk > 0 and not whole,
                    n_layers=count,
                    exponent=float(ops[0].exponent),
                    compute=_line([op.compute_s for op in ops]),
                    memory=_line([op.memory_s for op in ops]),
                    power=_line([op.dynamic_j / power_w for op in ops]),
                    fixed_s=float(ops[0].seconds - ops[0].work_s),
                    columns=columns * (count * model.rank.n),
                )
            )
    return out


def _line(values: Sequence[Num]) -> Line:
    """Slopes along each axis from the value at a base point and at one step along each."""
    base, *rest = (float(v) for v in values)
    a, b, c, d = (v - base for v in rest)
    return a, b, c, d


def _dot(line: Line, v: Any) -> Any:
    a, b, c, d = line
    return a * v[0] + b * v[1] + c * v[2] + d * v[3]


def _clamped(sums: list[Line], a: _Operation) -> Line:
    v = sums[a.window]
    return (v[0], min(sums[0][1], v[0]), v[2], v[3]) if a.sparse else v
