"""What can be said of a model from its architecture alone, as a plain document."""

from __future__ import annotations

from dataclasses import asdict

from costmodel.arch import Attention, AttentionSpec, DenseMlp, LatentAttention, ModelArch
from costmodel.counts import (
    attention_flops_per_context_token,
    kv_bytes_per_token,
    layer_groups,
    matmul_params_per_token,
    n_active_params,
    n_params,
    sliding_kv_cap_bytes,
    state_bytes_per_sequence,
    weight_bytes,
)
from costmodel.products import layer_params


def attention_kind(attention: AttentionSpec) -> str:
    """One of full, sliding, latent, sparse_latent, gated_delta."""
    match attention:
        case Attention():
            return "full" if attention.window is None else "sliding"
        case LatentAttention():
            return "sparse_latent" if attention.index_topk else "latent"
        case _:
            return "gated_delta"


def model_facts(arch: ModelArch, kv_dtype: str = "bf16") -> dict[str, object]:
    """Counts and dimensions of a model, ready for JSON.

    `kv_bytes_per_token` and the attention FLOPs count the layers that keep the whole context; the cap of the sliding
    ones is `sliding_kv_cap_bytes`. `weight_bytes` has bf16, fp8, int4 and the type the checkpoint was quantised to.
    """
    own = [arch.quantisation.weight_dtype] if arch.quantisation else []
    return {
        "name": arch.name,
        "family": arch.family,
        "n_params": n_params(arch),
        "n_active_params": n_active_params(arch),
        "matmul_params_per_token": matmul_params_per_token(arch),
        "kv_dtype": kv_dtype,
        "kv_bytes_per_token": kv_bytes_per_token(arch, kv_dtype),
        "sliding_kv_cap_bytes": sliding_kv_cap_bytes(arch, kv_dtype),
        "state_bytes_per_sequence": state_bytes_per_sequence(arch),
        "attention_flops_per_context_token": attention_flops_per_context_token(arch),
        "weight_bytes": {dtype: weight_bytes(arch, dtype) for dtype in dict.fromkeys(["bf16", "fp8", "int4", *own])},
        "quantisation": asdict(arch.quantisation) if arch.quantisation else None,
        "hidden": arch.hidden,
        "vocab": arch.vocab,
        "tied_embeddings": arch.tied_embeddings,
        "max_context_tokens": arch.max_context_tokens,
        "n_layers": len(arch.layers),
        "layers": layer_facts(arch),
        "source": arch.source,
    }


def layer_facts(arch: ModelArch) -> list[dict[str, object]]:
    """Groups of equal layers: how many, which ones (from 0), attention and feed-forward with kind and dimensions."""
    return [
        {
            "count": count,
            "indices": [i for i, other in enumerate(arch.layers) if other is layer or other == layer],
            "attention": {"kind": attention_kind(layer.attention), **asdict(layer.attention)},
            "mlp": {"kind": "dense" if isinstance(layer.mlp, DenseMlp) else "moe", **asdict(layer.mlp)},
            "n_params": layer_params(layer, arch.hidden),
            "n_active_params": layer_params(layer, arch.hidden, active=True),
        }
        for layer, count in layer_groups(arch)
    ]
