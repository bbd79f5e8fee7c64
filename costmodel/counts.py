"""Exact counts on a `ModelArch`: parameters, bytes, KV cache, recurrent state, attention FLOPs.

Everything here is arithmetic on dimensions; the products of one layer are in `costmodel.products`.
"""

from __future__ import annotations

from costmodel.arch import Attention, AttentionSpec, LatentAttention, Layer, LinearAttention, ModelArch, MoeMlp
from costmodel.dtypes import WHOLE_FILE_DTYPES, kv_bytes_each, weight_bytes_each
from costmodel.products import (
    Product,
    conv_channels,
    expert_matrix_params,
    expert_params,
    layer_params,
    layer_vector_params,
    products,
)


def layer_groups(arch: ModelArch) -> tuple[tuple[Layer, int], ...]:
    """Distinct layers with how often each occurs, in order of first appearance."""
    counts: dict[Layer, int] = {}
    by_identity: dict[int, Layer] = {}
    for layer in arch.layers:
        known = by_identity.setdefault(id(layer), layer)
        if known not in counts:
            counts[known] = 0
        counts[known] += 1
    return tuple(counts.items())


def head_params(arch: ModelArch) -> int:
    """Weights of the output head, `hidden * vocab`; with tied embeddings the same matrix is the input embedding."""
    return arch.hidden * arch.vocab


def n_params(arch: ModelArch) -> int:
    """Parameters of the language model: every tensor, a tied embedding once; vision and MTP parts left out."""
    return _outside_layers(arch) + sum(n * layer_params(layer, arch.hidden) for layer, n in layer_groups(arch))


def n_active_params(arch: ModelArch) -> int:
    """Parameters with `top_k` routed experts in place of all, both embeddings included."""
    layers = sum(n * layer_params(layer, arch.hidden, active=True) for layer, n in layer_groups(arch))
    return _outside_layers(arch) + layers


def matmul_params_per_token(arch: ModelArch) -> int:
    """Weights one decoded token passes through: active ones, less the input embedding (a lookup) when it is separate.

    sum over layers (products + top_k experts + vectors) + head + final norm. Norms, biases and convolutions stay in,
    as in published tables; they are below 0.1 %. FLOPs are about twice this.
    """
    lookups = arch.learned_positions * arch.hidden + (0 if arch.tied_embeddings else head_params(arch))
    return n_active_params(arch) - lookups


def _outside_layers(arch: ModelArch) -> int:
    embeddings = head_params(arch) * (1 if arch.tied_embeddings else 2)
    return embeddings + arch.learned_positions * arch.hidden + arch.hidden


def product_dtype(arch: ModelArch, weight_dtype: str, product: Product) -> str:
    """Stored type of one product's weights when the model is served in `weight_dtype`.

    bf16 for the small products that stay in 16 bit, and for all products when the checkpoint quantises experts only.
    """
    if weight_dtype in {"fp32", "bf16", "fp16"} or weight_dtype in WHOLE_FILE_DTYPES:
        return weight_dtype
    return weight_dtype if product.quantised and not _experts_only(arch, weight_dtype) else "bf16"


def head_dtype(arch: ModelArch, weight_dtype: str) -> str:
    """Stored type of the output head (and embedding) when the model is served in `weight_dtype`."""
    if weight_dtype in {"fp32", "bf16", "fp16"} or weight_dtype in WHOLE_FILE_DTYPES:
        return weight_dtype
    own = arch.quantisation
    return weight_dtype if own is not None and own.weight_dtype == weight_dtype and own.head else "bf16"


def _experts_only(arch: ModelArch, weight_dtype: str) -> bool:
    own = arch.quantisation
    return own is not None and own.weight_dtype == weight_dtype and own.experts_only


def weight_bytes(arch: ModelArch, weight_dtype: str) -> float:
    """Bytes of the language model's weights served in `weight_dtype`.

    products * bytes(product_dtype) + experts * bytes(weight_dtype) + embeddings * bytes(head_dtype) + vectors * 2.

    Parameters
    ----------
    weight_dtype : str
        A key of `costmodel.dtypes.BYTES_PER_WEIGHT`. A checkpoint's own exclusions (`arch.quantisation`) apply when
        it is the type it was quantised to; otherwise layers are quantised and embedding, head, routers stay bf16.

    Raises
    ------
    InputError
        Unknown `weight_dtype`.

    Limits
    ------
    The gated delta net's decay and norm are fp32 (4 bytes) as checkpoints store them; a router's correction bias is
    counted as 16 bit; blocks are not padded; vision and MTP parts are left out.
    """
    each = weight_bytes_each(weight_dtype)
    vector_each = 4.0 if weight_dtype == "fp32" else 2.0
    embeddings = head_params(arch) * (1 if arch.tied_embeddings else 2) + arch.learned_positions * arch.hidden
    total = embeddings * weight_bytes_each(head_dtype(arch, weight_dtype)) + arch.hidden * vector_each
    for layer, n in layer_groups(arch):
        layer_bytes = layer_vector_params(layer, arch.hidden) * vector_each
        for product in products(layer, arch.hidden):
            layer_bytes += product.params * weight_bytes_each(product_dtype(arch, weight_dtype, product))
        if isinstance(layer.mlp, MoeMlp):
            matrix = expert_matrix_params(layer.mlp, arch.hidden)
            bias = expert_params(layer.mlp, arch.hidden) - matrix
            layer_bytes += layer.mlp.n_experts * (matrix * each + bias * vector_each)
        if isinstance(layer.attention, LinearAttention):
            layer_bytes += (layer.attention.n_value_heads + layer.attention.d_value) * (4.0 - vector_each)
        total += n * layer_bytes
    return total


def kv_bytes_per_token_of(attention: AttentionSpec, kv_dtype: str = "bf16") -> int:
    """KV-cache bytes one token takes in one layer (0 for a recurrent layer), on one copy.

    grouped: 2 * n_kv_heads * d_head * b; latent: (kv_rank + d_rope) * b, plus the indexer's key when there is one:
    one byte per number and an fp32 scale per 128, whatever `kv_dtype` is (DeepSeek-V3.2 keeps that cache in fp8).
    """
    each = kv_bytes_each(kv_dtype)
    match attention:
        case Attention():
            return 2 * attention.n_kv_heads * attention.d_head * each
        case LatentAttention():
            index = attention.index_d_head + 4 * -(-attention.index_d_head // 128) if attention.index_heads else 0
            return (attention.kv_rank + attention.d_rope) * each + index
        case LinearAttention():
            return 0


def window_tokens(attention: AttentionSpec) -> int | None:
    """Context tokens whose KV a layer keeps at most; None when it keeps all."""
    return attention.window if isinstance(attention, Attention) else None


def kv_bytes_per_token(arch: ModelArch, kv_dtype: str = "bf16") -> int:
    """KV-cache bytes per context token over the layers that keep the whole context (sliding ones left out)."""
    return sum(
        n * kv_bytes_per_token_of(layer.attention, kv_dtype)
        for layer, n in layer_groups(arch)
        if window_tokens(layer.attention) is None
    )


def sliding_kv_cap_bytes(arch: ModelArch, kv_dtype: str = "bf16") -> int:
    """KV-cache bytes per sequence of all sliding layers once the context fills their windows."""
    return sum(
        n * kv_bytes_per_token_of(layer.attention, kv_dtype) * (window_tokens(layer.attention) or 0)
        for layer, n in layer_groups(arch)
    )


def state_bytes_of(attention: AttentionSpec) -> int:
    """Recurrent state of one sequence in one layer, bytes (0 for softmax attention).

    n_value_heads * d_key * d_value * state_bytes_each + conv channels * (conv_width - 1) * 2
    """
    if not isinstance(attention, LinearAttention):
        return 0
    state = attention.n_value_heads * attention.d_key * attention.d_value * attention.state_bytes_each
    return state + conv_channels(attention) * (attention.conv_width - 1) * 2


def state_bytes_per_sequence(arch: ModelArch) -> int:
    """Recurrent state of one sequence over all layers, bytes, whatever its context."""
    return sum(n * state_bytes_of(layer.attention) for layer, n in layer_groups(arch))


def attention_flops_of(attention: AttentionSpec, context_tokens: float) -> float:
    """FLOPs of the attention core of one new token that sees `context_tokens`, in one layer, projections left out.

    grouped: 4 * n_heads * d_head * min(context, window);
    latent, absorbed: 2 * n_heads * (2 * kv_rank + d_rope) * min(context, index_topk)
    + 2 * index_heads * index_d_head * context;
    gated delta: 7 * n_value_heads * d_key * d_value, independent of context (decay, read, delta, write, query).
    """
    match attention:
        case Attention():
            seen = context_tokens if attention.window is None else min(context_tokens, attention.window)
            return 4 * attention.n_heads * attention.d_head * seen
        case LatentAttention():
            seen = min(context_tokens, attention.index_topk) if attention.index_topk else context_tokens
            core = 2 * attention.n_heads * (2 * attention.kv_rank + attention.d_rope) * seen
            return core + 2 * attention.index_heads * attention.index_d_head * context_tokens
        case LinearAttention():
            return 7 * attention.n_value_heads * attention.d_key * attention.d_value


def attention_flops_per_context_token(arch: ModelArch) -> int:
    """Attention FLOPs of a decoded token per token of context, over the layers that see the whole context.

    Sliding layers and a sparse layer's chosen tokens are capped, so they are left out; a sparse layer counts its
    indexer. `attention_flops_of` has the capped parts.
    """
    total = 0
    for layer, n in layer_groups(arch):
        match layer.attention:
            case Attention(window=None) as a:
                total += n * 4 * a.n_heads * a.d_head
            case LatentAttention(index_topk=0) as a:
                total += n * 2 * a.n_heads * (2 * a.kv_rank + a.d_rope)
            case LatentAttention() as a:
                total += n * 2 * a.index_heads * a.index_d_head
    return total
