"""A model on its devices: dtypes, tensor parallelism, memory fit and cache rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from costmodel.arch import Attention, AttentionSpec, LinearAttention, ModelArch
from costmodel.counts import kv_bytes_per_token_of, layer_groups, product_dtype, weight_bytes
from costmodel.dtypes import compute_dtype, kv_bytes_each, weight_bytes_each
from costmodel.engines import EngineProfile, engine
from costmodel.models import model as find_model
from costmodel.products import products
from costmodel.request import CacheRule
from hwprofiles.efficiency import Efficiency
from hwprofiles.errors import CapacityError, InputError
from hwprofiles.hardware import Hardware
from hwprofiles.load import efficiency as find_efficiency
from hwprofiles.load import hardware as find_hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One replica of a model: `n_devices` of one kind with tensor parallelism over all of them.

    Parameters
    ----------
    weight_dtype, kv_dtype : str
        Storage of the layers' products and of the KV cache.
    engine : EngineProfile
        Scheduler limits and host times.
    efficiency : Efficiency
        Factors of the device.
    """

    hardware: Hardware
    model: ModelArch
    n_devices: int
    weight_dtype: str
    kv_dtype: str
    engine: EngineProfile
    efficiency: Efficiency

    @property
    def label(self) -> str:
        """Short text such as `Qwen3.5-4B bf16 on 1 x h200`."""
        return f"{self.model.name.split('/')[-1]} {self.weight_dtype} on {self.n_devices} x {self.hardware.name}"

    @property
    def compute_dtype(self) -> str:
        """Operand type of the layers' products, hence the peak that binds them."""
        return compute_dtype(self.weight_dtype, self.hardware.peak_flops_per_s)


def deploy(
    model: str | ModelArch,
    hardware: str | Hardware,
    *,
    n_devices: int = 1,
    weight_dtype: str | None = None,
    kv_dtype: str = "bf16",
    engine_name: str = "vllm-v1",
    max_seqs: int | None = None,
    chunk_tokens: int | None = None,
    efficiency: Efficiency | None = None,
    calibration: Path | None = None,
) -> Deployment:
    """Put a model on devices and check that it fits.

    Parameters
    ----------
    weight_dtype : str or None
        None: what the checkpoint's configuration says (its quantisation, else bf16).
    calibration : Path or None
        A calibration file in place of the bundled one.
    efficiency : Efficiency or None
        None: the device's own fitted factors, else those of its class.

    Raises
    ------
    InputError
        Unknown name, a device without memory or bandwidth figures, heads that the devices cannot split.
    CapacityError
        Weights and reserve leave no room for a KV cache.
    """
    arch = find_model(model) if isinstance(model, str) else model
    device = find_hardware(hardware) if isinstance(hardware, str) else hardware
    profile = engine(engine_name)
    limits: dict[str, int] = {}
    if max_seqs is not None:
        limits["max_seqs"] = max_seqs
    if chunk_tokens is not None:
        limits["chunk_tokens"] = chunk_tokens
    if any(v < 1 for v in limits.values()):
        raise InputError(f"engine limits must be >= 1, got {limits}")
    profile = replace(profile, **limits)  # type: ignore[arg-type]  # both limits are int fields
    stated = arch.quantisation.weight_dtype if arch.quantisation else "bf16"
    dep = Deployment(
        hardware=device,
        model=arch,
        n_devices=n_devices,
        weight_dtype=weight_dtype or stated,
        kv_dtype=kv_dtype,
        engine=profile,
        efficiency=efficiency or find_efficiency(device, calibration),
    )
    _check(dep)
    return dep


def _check(dep: Deployment) -> None:
    if dep.n_devices < 1:
        raise InputError(f"n_devices must be >= 1, got {dep.n_devices}")
    device = dep.hardware
    if device.memory_bytes is None or device.bandwidth_bytes_per_s is None:
        raise InputError(
            f"hardware {device.name!r} states no memory size or bandwidth, so nothing can be deployed on it"
        )
    if dep.n_devices > 1 and device.link is None:
        raise InputError(
            f"hardware {device.name!r} has no link between devices, so n_devices must be 1, got {dep.n_devices}"
        )
    weight_bytes_each(dep.weight_dtype)
    kv_bytes_each(dep.kv_dtype)
    compute_dtype(dep.weight_dtype, device.peak_flops_per_s)
    for layer, _ in layer_groups(dep.model):
        heads = _splittable_heads(layer.attention)
        if any(h % dep.n_devices for h in heads.values()):
            every = [h for each, _ in layer_groups(dep.model) for h in _splittable_heads(each.attention).values()]
            named = " and ".join(f"{n} {what}" for what, n in heads.items())
            raise InputError(
                f"{dep.model.name}: n_devices = {dep.n_devices} does not divide the {named} of its layers evenly; "
                f"allowed: divisors of {math.gcd(*every)}"
            )
    rule = cache_rule(dep)
    if rule.state_aligned and rule.chunk_tokens < rule.block_tokens:
        raise InputError(
            f"{dep.label}: chunk_tokens = {rule.chunk_tokens} is below the cache block of {rule.block_tokens} tokens"
        )
    if kv_capacity_tokens(dep) < rule.block_tokens:
        least = rule.block_tokens * kv_bytes_per_token_per_rank(dep) + sequence_bytes_per_rank(dep)
        needed = weights_per_device_bytes(dep) + dep.engine.reserve_bytes + least
        available = device.memory_bytes.value * dep.engine.memory_share
        raise CapacityError(
            f"{dep.label} does not fit: each device needs {needed / 1e9:.1f} GB for weights, reserve and a cache block "
            f"and has {available / 1e9:.1f} GB usable; use more devices, a smaller weight_dtype or larger memory",
            needed_bytes=needed,
            available_bytes=available,
        )


def _splittable_heads(attention: AttentionSpec) -> dict[str, int]:
    if isinstance(attention, LinearAttention):
        return {"linear-attention value heads": attention.n_value_heads, "key heads": attention.n_key_heads}
    return {"query heads": attention.n_heads}


def kv_heads_per_rank(attention: Attention, n_devices: int) -> int:
    """KV heads each device keeps: `max(1, ceil(n_kv_heads / n_devices))`; more devices than heads replicate them."""
    return max(1, -(-attention.n_kv_heads // n_devices))


def kv_bytes_per_rank(attention: AttentionSpec, n_devices: int, kv_dtype: str) -> float:
    """KV-cache bytes one token takes in one layer on one device; latent attention keeps all of it on each."""
    total = float(kv_bytes_per_token_of(attention, kv_dtype))
    if isinstance(attention, Attention):
        return total * kv_heads_per_rank(attention, n_devices) / attention.n_kv_heads
    return total


def kv_bytes_per_token_per_rank(dep: Deployment) -> float:
    """KV-cache bytes one token costs on one device, over the layers that keep the whole context."""
    return sum(
        count * kv_bytes_per_rank(layer.attention, dep.n_devices, dep.kv_dtype)
        for layer, count in layer_groups(dep.model)
        if not (isinstance(layer.attention, Attention) and layer.attention.window is not None)
    )


def kv_bytes_per_token(dep: Deployment) -> float:
    """KV-cache bytes of one token summed over all devices, replication included."""
    return kv_bytes_per_token_per_rank(dep) * dep.n_devices


def sequence_bytes_per_rank(dep: Deployment) -> float:
    """Bytes one running sequence needs on one device whatever its length: recurrent state and full sliding windows."""
    total = 0.0
    for layer, count in layer_groups(dep.model):
        a = layer.attention
        if isinstance(a, LinearAttention):
            total += count * state_bytes_per_rank(a, dep.n_devices)
        elif isinstance(a, Attention) and a.window is not None:
            total += count * kv_bytes_per_rank(a, dep.n_devices, dep.kv_dtype) * a.window
    return total


def state_bytes_per_rank(a: LinearAttention, n_devices: int) -> float:
    """Recurrent state and convolution tail of a sequence in one layer: (V dk dv s + (2 K dk + V dv)(w - 1) 2) / n."""
    state = a.n_value_heads * a.d_key * a.d_value * a.state_bytes_each
    conv = (2 * a.n_key_heads * a.d_key + a.n_value_heads * a.d_value) * (a.conv_width - 1) * 2
    return (state + conv) / n_devices


def weights_per_device_bytes(dep: Deployment) -> float:
    """Weight bytes resident on one device: an even part of what is split, all of the products that are replicated."""
    n = dep.n_devices
    replicated = sum(
        count * p.params * weight_bytes_each(product_dtype(dep.model, dep.weight_dtype, p))
        for layer, count in layer_groups(dep.model)
        for p in products(layer, dep.model.hidden)
        if p.split == "none"
    )
    return (weight_bytes(dep.model, dep.weight_dtype) + (n - 1) * replicated) / n


def kv_capacity_tokens(dep: Deployment) -> int:
    """Tokens the KV cache holds: what memory leaves after weights, reserve and `n` sequences' fixed part.

    The fixed part (state, sliding windows) is charged for at most 8 sequences or a quarter of what is left.
    """
    assert dep.hardware.memory_bytes is not None
    free = (
        dep.hardware.memory_bytes.value * dep.engine.memory_share
        - weights_per_device_bytes(dep)
        - dep.engine.reserve_bytes
    )
    free -= min(8 * sequence_bytes_per_rank(dep), max(0.0, free) / 4)
    per_token = kv_bytes_per_token_per_rank(dep)
    if per_token == 0:
        return 0 if free <= 0 else dep.model.max_context_tokens or 1 << 20
    return max(0, int(free / per_token))


def cache_rule(dep: Deployment) -> CacheRule:
    """Chunking and prefix-cache granularity.

    Plain attention: one page. Hybrid: `block = page * ceil(state_page / (page * kv_page_per_token))`, both per device
    and layer, so that one cache block is at least as large as one saved state.

    Source
    ------
    vLLM v1 hybrid KV-cache groups: 528 tokens for Qwen3.5-4B; 2096 (1 or 2 devices), 1056 (4), 528 (8) for 397B-A17B.
    """
    page = dep.engine.page_tokens
    groups = layer_groups(dep.model)
    linear = [g.attention for g, _ in groups if isinstance(g.attention, LinearAttention)]
    if not linear:
        return CacheRule(block_tokens=page, chunk_tokens=dep.engine.chunk_tokens)
    state = max(state_bytes_per_rank(a, dep.n_devices) for a in linear)
    kv = max(kv_bytes_per_rank(g.attention, dep.n_devices, dep.kv_dtype) for g, _ in groups)
    block = page * math.ceil(state / (page * kv)) if kv else dep.engine.chunk_tokens
    return CacheRule(block_tokens=block, chunk_tokens=dep.engine.chunk_tokens, state_aligned=True)


def factor_values(dep: Deployment) -> Mapping[str, float]:
    """Central values of device and engine factors together, by name."""
    return {**dep.efficiency.values(), **{k: f.value for k, f in dep.engine.factors.items()}}
