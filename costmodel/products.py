"""The matrix products of a layer and the parameters around them.

"Products" are dense matrix products applied to every token; routed experts are apart, because how many of them a pass
touches depends on the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from costmodel.arch import (
    Attention,
    AttentionSpec,
    DenseMlp,
    LatentAttention,
    Layer,
    LinearAttention,
    MlpSpec,
    MoeMlp,
)


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix product of a layer, `rows x k` times `k x n`.

    `quantised` is False for the small products that quantised checkpoints keep in 16 bit; `split` is the dimension
    tensor parallelism divides (`n` column-wise, `k` row-wise, with a sum over ranks after it, or none: replicated).
    """

    name: str
    k: int
    n: int
    quantised: bool = True
    split: Literal["k", "n", "none"] = "n"

    @property
    def params(self) -> int:
        """Weights of the product, `k * n`."""
        return self.k * self.n


def attention_products(attention: AttentionSpec, hidden: int) -> tuple[Product, ...]:
    """Matrix products of one attention layer, in the order they run (those that share an input are fused)."""
    match attention:
        case Attention():
            query = attention.n_heads * attention.d_head
            kv = 2 * attention.n_kv_heads * attention.d_head
            gate = query if attention.output_gate else 0
            return (Product("qkv", hidden, query + gate + kv), Product("out", query, hidden, split="k"))
        case LinearAttention():
            key = attention.n_key_heads * attention.d_key
            value = attention.n_value_heads * attention.d_value
            return (
                Product("in_qkvz", hidden, 2 * key + 2 * value),
                Product("in_ba", hidden, 2 * attention.n_value_heads, quantised=False),
                Product("out", value, hidden, split="k"),
            )
        case LatentAttention():
            return _latent_products(attention, hidden)


def _latent_products(a: LatentAttention, hidden: int) -> tuple[Product, ...]:
    query = a.n_heads * (a.d_nope + a.d_rope)
    if a.q_rank is None:
        parts = [Product("q", hidden, query)]
    else:
        parts = [Product("q_a", hidden, a.q_rank, split="none"), Product("q_b", a.q_rank, query)]
    parts.append(Product("kv_a", hidden, a.kv_rank + a.d_rope, split="none"))
    if a.index_heads:
        parts.append(Product("index_q", a.q_rank or hidden, a.index_heads * a.index_d_head, split="none"))
        parts.append(Product("index_k", hidden, a.index_d_head, split="none"))
        parts.append(Product("index_weights", hidden, a.index_heads, quantised=False, split="none"))
    parts.append(Product("kv_b", a.kv_rank, a.n_heads * (a.d_nope + a.d_value)))
    parts.append(Product("out", a.n_heads * a.d_value, hidden, split="k"))
    return tuple(parts)


def attention_vector_params(attention: AttentionSpec, hidden: int) -> int:
    """Parameters of an attention layer outside its products: biases, norms of q and k, sinks, convolution, decays."""
    match attention:
        case Attention():
            query, kv = attention.n_heads * attention.d_head, attention.n_kv_heads * attention.d_head
            bias = (query + 2 * kv if attention.qkv_bias else 0) + (hidden if attention.out_bias else 0)
            norm = {"none": 0, "head": 2 * attention.d_head, "full": query + kv}[attention.qk_norm]
            return bias + norm + (attention.n_heads if attention.sinks else 0)
        case LinearAttention():
            conv = conv_channels(attention) * attention.conv_width
            return conv + 2 * attention.n_value_heads + attention.d_value
        case LatentAttention():
            return (attention.q_rank or 0) + attention.kv_rank + 2 * attention.index_d_head


def attention_projection_params(attention: AttentionSpec, hidden: int) -> int:
    """Weights of the matrix products of one attention layer."""
    return sum(p.params for p in attention_products(attention, hidden))


def prediction_product(hidden: int) -> Product:
    """What a multi-token-prediction layer applies first: last hidden state and next token's embedding, 2 h x h."""
    return Product("mtp_projection", 2 * hidden, hidden)


def mlp_products(mlp: MlpSpec, hidden: int) -> tuple[Product, ...]:
    """Matrix products of a feed-forward layer that every token passes: dense, or router and shared expert of a MoE."""
    match mlp:
        case DenseMlp():
            up = Product("gate_up", hidden, 2 * mlp.width) if mlp.gated else Product("up", hidden, mlp.width)
            return (up, Product("down", mlp.width, hidden, split="k"))
        case MoeMlp():
            parts = [Product("router", hidden, mlp.n_experts, quantised=False, split="none")]
            if mlp.shared_width:
                parts.append(Product("shared_gate_up", hidden, 2 * mlp.shared_width))
                parts.append(Product("shared_down", mlp.shared_width, hidden, split="k"))
            if mlp.shared_gate:
                parts.append(Product("shared_gate", hidden, 1, quantised=False, split="none"))
            return tuple(parts)


def mlp_vector_params(mlp: MlpSpec, hidden: int) -> int:
    """Bias parameters of a feed-forward layer, biases of routed experts left out."""
    match mlp:
        case DenseMlp():
            return (2 if mlp.gated else 1) * mlp.width + hidden if mlp.bias else 0
        case MoeMlp():
            return mlp.n_experts if mlp.router_bias else 0


def expert_matrix_params(mlp: MoeMlp, hidden: int) -> int:
    """Matrix weights of one routed expert, `3 * hidden * width`."""
    return 3 * hidden * mlp.width


def expert_params(mlp: MoeMlp, hidden: int) -> int:
    """Parameters of one routed expert, its biases included."""
    return expert_matrix_params(mlp, hidden) + (2 * mlp.width + hidden if mlp.expert_bias else 0)


def mlp_params(mlp: MlpSpec, hidden: int, *, active: bool = False) -> int:
    """Parameters of a feed-forward layer; `active` takes `top_k` routed experts in place of all."""
    total = sum(p.params for p in mlp_products(mlp, hidden)) + mlp_vector_params(mlp, hidden)
    if isinstance(mlp, MoeMlp):
        total += (mlp.top_k if active else mlp.n_experts) * expert_params(mlp, hidden)
    return total


def products(layer: Layer, hidden: int) -> tuple[Product, ...]:
    """Matrix products of one layer that every token passes, in order; routed experts are not among them."""
    return attention_products(layer.attention, hidden) + mlp_products(layer.mlp, hidden)


def layer_vector_params(layer: Layer, hidden: int) -> int:
    """Parameters of one layer outside its products and routed experts: norms, biases, convolution, sinks."""
    vectors = attention_vector_params(layer.attention, hidden) + mlp_vector_params(layer.mlp, hidden)
    return vectors + layer.n_norms * hidden


def layer_params(layer: Layer, hidden: int, *, active: bool = False) -> int:
    """Parameters of one layer; `active` takes `top_k` routed experts in place of all."""
    attention = attention_projection_params(layer.attention, hidden)
    attention += attention_vector_params(layer.attention, hidden)
    return attention + mlp_params(layer.mlp, hidden, active=active) + layer.n_norms * hidden


def conv_channels(attention: LinearAttention) -> int:
    """Channels of a gated delta net's depthwise convolution: queries, keys and values side by side."""
    return 2 * attention.n_key_heads * attention.d_key + attention.n_value_heads * attention.d_value
