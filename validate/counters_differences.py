"""Where vLLM's count of an engine step parts from the cost model's: `differences`, each with its name and reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from costmodel.arch import Attention, Layer, MoeMlp
from costmodel.counts import head_dtype, product_dtype
from costmodel.dtypes import weight_bytes_each
from costmodel.products import Product, products
from costmodel.roof import touched_experts
from costmodel.shares import kv_bytes_per_rank
from costmodel.step import StepModel
from costmodel.step_parts import attention_window
from validate.counters import (
    ACTIVATION_BYTES,
    MLP_PRODUCTS,
    Step,
    Sums,
    Work,
    depth,
    expert_operand_bytes,
    expert_width,
    is_low,
    routed_rows,
)

_Add = Callable[[str, str, Work], None]


class Difference(NamedTuple):
    """What vLLM counts more than the cost model (less, where negative) in a component; `WHY` has the reason by name."""

    name: str
    component: str
    work: Work


WHY = {
    "mask": "vLLM multiplies all new tokens with the whole context; a causal kernel does the half that is seen",
    "partial_head": "vLLM samples from every prefill chunk; the cost model has the head run for the last one only",
    "router": "vLLM leaves out the product that chooses the experts",
    "experts_read": "vLLM has every token touch other experts, min(k tokens, experts); the cost model expects overlap",
    "window": "vLLM reads at most a window per sequence; the first of the new tokens see others than the last",
    "attention_rows": "vLLM counts queries in and no output; the cost model both in a prefill, neither in a decode",
    "norms": "vLLM leaves out norms and residual sums",
    "cache_precision": "vLLM has a prefill read keys and values in the model's precision, not in the cache's",
    "operand_precision": "vLLM has operands of products in the model's precision; 8-bit products quantise theirs first",
    "idle_steps": "vLLM charges the weights for steps in which nothing ran, as when the last request has just left",
}
"""Why vLLM's count differs, by `Difference.name`."""


def differences(model: StepModel, steps: Sequence[Step]) -> list[Difference]:
    """What vLLM counts more than `validate.counters.ours` for the same steps, in no order; nothing where they agree.

    Limits
    ------
    Latent and linear attention, shared experts, biases and mixed weight types are not taken apart: what remains of
    them stays unexplained.
    """
    sums = Sums(model, steps)
    found: dict[tuple[str, str], Work] = {}

    def add(name: str, component: str, work: Work) -> None:
        found[name, component] = found.get((name, component), Work()).plus(work)

    rows = float(np.sum(sums.rows))
    _head_difference(model, sums, add)
    for layer, count in model.groups:
        norms = -8.0 * count * rows * model.dep.model.hidden
        add("norms", "norms", Work(input_bytes=norms, output_bytes=norms))
        if isinstance(layer.attention, Attention):
            _attention_difference(model, layer, count, sums, add)
        for p in products(layer, model.dep.model.hidden):
            component = "mlp" if p.name in MLP_PRODUCTS else "projections"
            if is_low(model, p):
                extra = -count * rows * depth(p, model.rank.n)
                add("operand_precision", component, Work(input_bytes=extra, output_bytes=extra))
        if isinstance(layer.mlp, MoeMlp):
            _expert_difference(model, layer.mlp, count, sums, add)
    return [Difference(*key, work) for key, work in found.items() if any(work)]


def idle_step(model: StepModel) -> Work:
    """What vLLM charges for a step without a token: all weights but those of routed experts and their router."""
    row = Sums(model, [Step(decode=(0,))])
    ops = model.ops(row.rows, row.emits, row.prefill, row.decode)
    weight = sum(count * float(np.sum(op.weight_bytes)) for op, count in ops if op.name not in ("experts", "router"))
    return Work(weight_bytes=weight)


def _head_difference(model: StepModel, sums: Sums, add: _Add) -> None:
    arch, n = model.dep.model, model.rank.n
    extra, columns = float(np.sum(sums.partial)), arch.vocab / n
    weight = arch.hidden * columns * weight_bytes_each(head_dtype(arch, model.dep.weight_dtype))
    work = Work(
        flops=2.0 * extra * arch.hidden * columns,
        weight_bytes=weight * float(np.sum(sums.emits == 0)),
        input_bytes=ACTIVATION_BYTES * extra * arch.hidden,
        output_bytes=ACTIVATION_BYTES * extra * columns,
    )
    add("partial_head", "head", work)


def _attention_difference(model: StepModel, layer: Layer, count: int, sums: Sums, add: _Add) -> None:
    a, n, w = layer.attention, model.rank.n, attention_window(layer.attention)
    assert isinstance(a, Attention)
    width = count * a.n_heads * a.d_head / n
    token_bytes = count * kv_bytes_per_rank(a, n, model.dep.kv_dtype)
    hidden_tokens = float(np.sum(sums.box_tokens[w] - sums.prefill[w].context_tokens))
    add("mask", "attention", Work(flops=4.0 * width * hidden_tokens))
    unseen = float(np.sum(sums.box_touched[w] - sums.prefill[w].touched_tokens))
    add("window", "attention", Work(kv_read_bytes=token_bytes * unseen))
    wider = (ACTIVATION_BYTES - model.rank.kv_each) / model.rank.kv_each
    read = float(np.sum(sums.box_touched[w]))
    add("cache_precision", "attention", Work(kv_read_bytes=token_bytes * wider * read))
    rows = Work(
        input_bytes=ACTIVATION_BYTES * width * float(np.sum(sums.n_decode)),
        output_bytes=-ACTIVATION_BYTES * width * float(np.sum(sums.new)),
    )
    add("attention_rows", "attention", rows)


def _expert_difference(model: StepModel, mlp: MoeMlp, count: int, sums: Sums, add: _Add) -> None:
    hidden, n = model.dep.model.hidden, model.rank.n
    rows = float(np.sum(sums.rows))
    router = Product("router", hidden, mlp.n_experts, quantised=False)
    weight = router.params * weight_bytes_each(product_dtype(model.dep.model, model.dep.weight_dtype, router))
    left_out = Work(
        flops=2.0 * rows * router.params,
        weight_bytes=weight * len(sums.rows),
        input_bytes=ACTIVATION_BYTES * rows * hidden,
        output_bytes=ACTIVATION_BYTES * rows * mlp.n_experts,
    )
    add("router", "mlp", Work(*(-count * x for x in left_out)))
    k, every = mlp.top_k, float(mlp.n_experts)
    expected = np.minimum(
        touched_experts(mlp.n_experts, k, sums.rows, model.factors["expert_correlation"]), sums.rows * k
    )
    more = float(np.sum(np.minimum(sums.rows * k, every) - expected))
    each = 3.0 * hidden * mlp.width / n * weight_bytes_each(model.dep.weight_dtype)
    add("experts_read", "mlp", Work(weight_bytes=count * more * each))
    wider = (ACTIVATION_BYTES - expert_operand_bytes(model)) * count * routed_rows(model, mlp, rows)
    width = expert_width(model, mlp)
    add("operand_precision", "mlp", Work(input_bytes=wider * (hidden + width), output_bytes=wider * 2.0 * width))
