"""How the devices of a deployment share a layer: heads, KV cache, recurrent state, experts."""

from __future__ import annotations

import math

from costmodel.arch import Attention, AttentionSpec, LinearAttention, ModelArch, MoeMlp
from costmodel.counts import kv_bytes_per_token_of, layer_groups
from hwprofiles.errors import InputError


def kv_heads_per_rank(attention: Attention, n_devices: int) -> int:
    """KV heads each device keeps: `max(1, ceil(n_kv_heads / n_devices))`; more devices than heads replicate them."""
    return max(1, -(-attention.n_kv_heads // n_devices))


def kv_bytes_per_rank(attention: AttentionSpec, n_devices: int, kv_dtype: str) -> float:
    """KV-cache bytes one token takes in one layer on one device; latent attention keeps all of it on each."""
    total = float(kv_bytes_per_token_of(attention, kv_dtype))
    if isinstance(attention, Attention):
        return total * kv_heads_per_rank(attention, n_devices) / attention.n_kv_heads
    return total


def state_bytes_per_rank(a: LinearAttention, n_devices: int) -> float:
    """Recurrent state and convolution tail of a sequence in one layer: (V dk dv s + (2 K dk + V dv)(w - 1) 2) / n."""
    state = a.n_value_heads * a.d_key * a.d_value * a.state_bytes_each
    conv = (2 * a.n_key_heads * a.d_key + a.n_value_heads * a.d_value) * (a.conv_width - 1) * 2
    return (state + conv) / n_devices


def check_heads(model: ModelArch, n_devices: int) -> None:
    """Raise `InputError` unless the devices can share every layer's heads evenly."""
    for layer, _ in layer_groups(model):
        heads = _splittable_heads(layer.attention)
        if any(h % n_devices for h in heads.values()):
            every = [h for each, _ in layer_groups(model) for h in _splittable_heads(each.attention).values()]
            named = " and ".join(f"{n} {what}" for what, n in heads.items())
            raise InputError(
                f"{model.name}: n_devices = {n_devices} does not divide the {named} of its layers evenly; "
                f"allowed: divisors of {math.gcd(*every)}"
            )


def check_experts(model: ModelArch, n_devices: int, n: int) -> None:
    """Raise `InputError` unless the devices can share the routed experts out over `n` groups."""
    if n == 1:
        return
    counts = {layer.mlp.n_experts for layer, _ in layer_groups(model) if isinstance(layer.mlp, MoeMlp)}
    if not counts:
        raise InputError(f"{model.name} has no routed experts, so expert_parallel must be 1, got {n}")
    if n < 1 or n_devices % n or any(c % n for c in counts):
        raise InputError(
            f"{model.name}: expert_parallel must divide n_devices and the {' and '.join(map(str, sorted(counts)))} "
            f"experts of a layer; allowed: divisors of {math.gcd(n_devices, *counts)}, got {n}"
        )


def _splittable_heads(attention: AttentionSpec) -> dict[str, int]:
    if isinstance(attention, LinearAttention):
        return {"linear-attention value heads": attention.n_value_heads, "key heads": attention.n_key_heads}
    return {"query heads": attention.n_heads}
