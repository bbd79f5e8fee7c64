"""vLLM's own counters of FLOPs and bytes beside the cost model's, for the same engine steps, every difference named.

With `--enable-mfu-metrics` vLLM estimates the work of each step from the model's shape and what it scheduled
(`vllm/v1/metrics/perf.py`, read in 0.32). `ours` counts the same steps with the cost model's operations;
`validate.counters_differences` says where the two definitions part, so that

    theirs = ours + sum of differences

exactly, for grouped softmax attention and feed-forward layers that are dense or of experts without a shared one. All of
one device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from costmodel.arch import Attention, DenseMlp, Layer, MoeMlp
from costmodel.counts import product_dtype
from costmodel.ops import Op
from costmodel.products import Product, products
from costmodel.request import Pass, RequestPlan
from costmodel.shares import kv_bytes_per_rank
from costmodel.spans import Span, clipped_sum
from costmodel.step import Array, StepModel

COMPONENTS = ("projections", "attention", "mlp", "head", "norms")
MLP_PRODUCTS = {"gate_up", "up", "down", "router", "shared_gate_up", "shared_down", "shared_gate", "experts"}
ACTIVATION_BYTES = 2.0
"""Of one number, in both counts: models compute in 16 bit."""


class Step(NamedTuple):
    """What an engine step holds: prefill passes, and the cached tokens of every sequence that decodes one token."""

    prefill: tuple[Pass, ...] = ()
    decode: tuple[int, ...] = ()


class Work(NamedTuple):
    """FLOPs and bytes of one device; `input_bytes` and `output_bytes` are activations read and written."""

    flops: float = 0.0
    weight_bytes: float = 0.0
    kv_read_bytes: float = 0.0
    kv_write_bytes: float = 0.0
    input_bytes: float = 0.0
    output_bytes: float = 0.0

    @property
    def read_bytes(self) -> float:
        """What the counter of bytes read adds up."""
        return self.weight_bytes + self.kv_read_bytes + self.input_bytes

    @property
    def write_bytes(self) -> float:
        """What the counter of bytes written adds up."""
        return self.kv_write_bytes + self.output_bytes

    def plus(self, other: Work) -> Work:
        """The sum."""
        return Work(*(a + b for a, b in zip(self, other, strict=True)))


def solo_steps(plans: Iterable[tuple[int, RequestPlan]]) -> list[Step]:
    """The steps of requests that each have the engine to themselves; a plan comes with its prompt tokens."""
    steps = []
    for prompt_tokens, plan in plans:
        steps += [Step(prefill=(p,)) for p in plan.passes]
        steps += [Step(decode=(prompt_tokens + i,)) for i in range(plan.decode_passes)]
    return steps


class Sums:
    """Sums over the sequences of each step, arrays (n_steps,), by attention window where they depend on one.

    `box_tokens` are new tokens times context and `box_touched` contexts, both as vLLM counts them.
    """

    def __init__(self, model: StepModel, steps: Sequence[Step]) -> None:
        new = [[float(p.new_tokens) for p in s.prefill] for s in steps]
        old = [[float(p.context_tokens) for p in s.prefill] for s in steps]
        self.n_decode = np.array([float(len(s.decode)) for s in steps])
        self.new = np.array([sum(n) for n in new])
        self.rows = self.new + self.n_decode
        self.partial = np.array([float(sum(not p.emits for p in s.prefill)) for s in steps])
        n_prefill = np.array([float(len(s.prefill)) for s in steps])
        self.emits = n_prefill - self.partial + self.n_decode
        self.prefill: dict[int | None, Span] = {}
        self.decode: dict[int | None, Span] = {}
        self.box_tokens: dict[int | None, Array] = {}
        self.box_touched: dict[int | None, Array] = {}
        for w in model.spans:
            top = np.inf if w is None else float(w)
            pairs = [list(zip(n, c, strict=True)) for n, c in zip(new, old, strict=True)]
            seen = np.array([sum(clipped_sum(c, n, w) for n, c in p) for p in pairs])
            touched = np.array([sum(min(c, top) + n for n, c in p) for p in pairs])
            self.prefill[w] = Span(seen, touched, self.new, n_prefill)
            decoded = np.array([sum(min(c + 1.0, top) for c in s.decode) for s in steps])
            self.decode[w] = Span(decoded, decoded, self.n_decode, self.n_decode)
            self.box_tokens[w] = np.array([sum(n * min(c + n, top) for n, c in p) for p in pairs])
            self.box_touched[w] = np.array([sum(min(c + n, top) for n, c in p) for p in pairs])


def ours(model: StepModel, steps: Sequence[Step]) -> dict[str, Work]:
    """The cost model's count of some steps, by component.

    A product's activations are its operands in and its result out, both in 16 bit; written KV is that of new tokens
    (the ledger's `kv_bytes` counts each entry that a step touches once, which is what `kv_read_bytes` holds).

    Raises
    ------
    ValueError
        The deployment speculates on tokens: vLLM then counts decode passes as prefills.
    """
    if model.tokens > 1:
        raise ValueError("steps with token-level speculation are not counted")
    sums = Sums(model, steps)
    total = dict.fromkeys(COMPONENTS, Work())
    for op, count in model.ops(sums.rows, sums.emits, sums.prefill, sums.decode):
        for component, work in _split(model, op, sums):
            total[component] = total[component].plus(Work(*(count * x for x in work)))
    for component, work in _inputs(model, sums):
        total[component] = total[component].plus(work)
    return total


def _split(model: StepModel, op: Op, sums: Sums) -> list[tuple[str, Work]]:
    """An operation as work with all its activations as outputs; `_inputs` moves those that are read."""
    each_step = np.zeros_like(sums.rows)
    flops, weight, kv, activation = (
        float(np.sum(x + each_step)) for x in (op.flops, op.weight_bytes, op.kv_bytes, op.activation_bytes)
    )
    work = Work(flops, weight, kv, 0.0, 0.0, activation)
    if op.name == "elementwise":
        norms = 16.0 * model.dep.model.hidden * float(np.sum(sums.rows))
        return [("mlp", Work(output_bytes=activation - norms)), ("norms", Work(0, 0, 0, 0, norms / 2, norms / 2))]
    if op.name == "head":
        return [("head", work)]
    if op.name.startswith(("attention_", "indexer_", "linear_attention", "kv_b_cached")):
        return [("attention", work)]
    return [("mlp" if op.name in MLP_PRODUCTS else "projections", work)]


def _inputs(model: StepModel, sums: Sums) -> list[tuple[str, Work]]:
    """Activations read rather than written, and KV entries written."""
    n, rows = model.rank.n, float(np.sum(sums.rows))
    head = 2.0 * float(np.sum(sums.emits)) * model.dep.model.hidden
    moved: list[tuple[str, float]] = [("head", head)]
    written = 0.0
    for layer, count in model.groups:
        for p in products(layer, model.dep.model.hidden):
            each = 3.0 if is_low(model, p) else 2.0
            moved.append(("mlp" if p.name in MLP_PRODUCTS else "projections", count * each * rows * depth(p, n)))
        if isinstance(layer.mlp, MoeMlp):
            routed = expert_operand_bytes(model) * routed_rows(model, layer.mlp, rows)
            moved.append(("mlp", count * routed * (model.dep.model.hidden + expert_width(model, layer.mlp))))
        moved.append(("mlp", count * 4.0 * rows * _width(layer) / n))
        if isinstance(layer.attention, Attention):
            queries = 2.0 * layer.attention.n_heads * layer.attention.d_head / n
            moved.append(("attention", count * queries * float(np.sum(sums.new))))
        written += count * rows * kv_bytes_per_rank(layer.attention, n, model.dep.kv_dtype)
    found = [(component, Work(input_bytes=b, output_bytes=-b)) for component, b in moved]
    return [*found, ("attention", Work(kv_write_bytes=written))]


def depth(p: Product, n: int) -> float:
    """Inputs of a product's row on one device."""
    return p.k / n if p.split == "k" else float(p.k)


def is_low(model: StepModel, p: Product) -> bool:
    """Whether a product multiplies below 16 bit."""
    return model.rank.precision(product_dtype(model.dep.model, model.dep.weight_dtype, p))[1]


def _width(layer: Layer) -> float:
    """Channels of a layer's activation function."""
    mlp = layer.mlp
    return float(mlp.width if isinstance(mlp, DenseMlp) else mlp.top_k * mlp.width)


def expert_operand_bytes(model: StepModel) -> float:
    """Bytes of an operand of the experts' products."""
    return 1.0 if model.rank.precision(model.dep.weight_dtype)[1] else ACTIVATION_BYTES


def expert_width(model: StepModel, mlp: MoeMlp) -> float:
    """Channels of a routed expert on one device."""
    return mlp.width * model.rank.expert_ranks / model.rank.n


def routed_rows(model: StepModel, mlp: MoeMlp, rows: float) -> float:
    """Tokens times experts that one device has to do with."""
    return rows * mlp.top_k / model.rank.expert_ranks
