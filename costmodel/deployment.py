"""A model on its devices: dtypes, tensor parallelism, memory fit and cache rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from costmodel.arch import Attention, LinearAttention, ModelArch
from costmodel.counts import layer_groups, product_dtype, weight_bytes
from costmodel.dtypes import compute_dtype, kv_bytes_each, weight_bytes_each
from costmodel.engines import ENGINE_FACTORS, EngineProfile, engine
from costmodel.models import model as find_model
from costmodel.products import prediction_product, products
from costmodel.request import CacheRule
from costmodel.shares import check_experts, check_heads, kv_bytes_per_rank, state_bytes_per_rank
from costmodel.speculation import TokenSpeculation
from hwprofiles.calibration import engine_factors, timed_on
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
    speculation : TokenSpeculation or None
        How decoding drafts tokens; None: one token per sequence and pass.
    expert_parallel : int
        Groups of devices that share the routed experts out whole; within a group each expert is split. 1: tensor
        parallel experts.
    """

    hardware: Hardware
    model: ModelArch
    n_devices: int
    weight_dtype: str
    kv_dtype: str
    engine: EngineProfile
    efficiency: Efficiency
    speculation: TokenSpeculation | None = None
    expert_parallel: int = 1

    @property
    def label(self) -> str:
        """Short text such as `Qwen3.5-4B bf16 on 1 x h200`, and what is special, such as `mtp drafts of 3`."""
        text = f"{self.model.name.split('/')[-1]} {self.weight_dtype} on {self.n_devices} x {self.hardware.name}"
        text += f", experts over {self.expert_parallel}" if self.expert_parallel > 1 else ""
        s = self.speculation
        return text + (f", {s.method} drafts of {s.length}" if s else "")

    @property
    def drafter(self) -> Deployment | None:
        """What drafts tokens, as a deployment on the same devices."""
        s = self.speculation
        if s is None or s.length == 0:
            return None
        own = s.model.quantisation.weight_dtype if s.model.quantisation else "bf16"
        dtype = s.weight_dtype or (self.weight_dtype if s.method == "mtp" else own)
        ranks = self.expert_parallel if s.method == "mtp" else 1
        return replace(self, model=s.model, weight_dtype=dtype, speculation=None, expert_parallel=ranks)

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
    page_tokens: int | None = None,
    efficiency: Efficiency | None = None,
    calibration: Path | None = None,
    speculation: TokenSpeculation | None = None,
    expert_parallel: int = 1,
    memory_share: float | None = None,
) -> Deployment:
    """Put a model on devices and check that it fits.

    Parameters
    ----------
    weight_dtype : str or None
        None: what the checkpoint's configuration says (its quantisation, else bf16).
    calibration : Path or None
        A calibration file in place of the bundled one.
    expert_parallel : int
        As in `Deployment`; must divide `n_devices` and the number of experts.
    page_tokens : int or None
        Tokens of a page of the KV cache, in which plain prefixes are found again; None: the engine's default.
    memory_share : float or None
        Share of each device's memory for this engine; None: the engine's default.
    efficiency : Efficiency or None
        None: the device's own fitted factors, else those of its class.
    speculation : TokenSpeculation or None
        A decode option of `costmodel.speculation.token_speculation`.

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
    stated_limits = (("max_seqs", max_seqs), ("chunk_tokens", chunk_tokens), ("page_tokens", page_tokens))
    limits = {k: v for k, v in stated_limits if v is not None}
    if any(v < 1 for v in limits.values()):
        raise InputError(f"engine limits must be >= 1, got {limits}")
    share = profile.memory_share if memory_share is None else memory_share
    if not 0 < share <= 1:
        raise InputError(f"memory_share must be above 0 and at most 1, got {share:g}")
    if calibration is not None:
        own = engine_factors(engine_name, ENGINE_FACTORS, calibration, device.name)
        here = device.name if device.name in timed_on(engine_name, calibration) else None
        profile = replace(profile, factors={**profile.factors, **own}, timed_on=here)
    profile = replace(profile, memory_share=share, **limits)  # type: ignore[arg-type]  # ints
    stated = arch.quantisation.weight_dtype if arch.quantisation else "bf16"
    dep = Deployment(
        hardware=device,
        model=arch,
        n_devices=n_devices,
        weight_dtype=weight_dtype or stated,
        kv_dtype=kv_dtype,
        engine=profile,
        efficiency=efficiency or find_efficiency(device, calibration),
        speculation=speculation,
        expert_parallel=expert_parallel,
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
    drafter = dep.drafter
    if drafter is not None:
        check_heads(drafter.model, dep.n_devices)
        weight_bytes_each(drafter.weight_dtype)
        compute_dtype(drafter.weight_dtype, device.peak_flops_per_s)
    check_heads(dep.model, dep.n_devices)
    check_experts(dep.model, dep.n_devices, dep.expert_parallel)
    rule = cache_rule(dep)
    if rule.chunk_tokens < dep.engine.max_seqs * rule.pass_tokens and rule.pass_tokens > 1:
        raise InputError(
            f"{dep.label}: a step of max_seqs = {dep.engine.max_seqs} sequences checks {rule.pass_tokens} tokens each, "
            f"more than its token budget of {rule.chunk_tokens}; lower max_seqs or the decode length"
        )
    _check_memory(dep, rule)


def _check_memory(dep: Deployment, rule: CacheRule) -> None:
    """One cache block fits beside weights and reserve."""
    assert dep.hardware.memory_bytes is not None
    if rule.state_aligned and rule.chunk_tokens < rule.block_tokens:
        raise InputError(
            f"{dep.label}: chunk_tokens = {rule.chunk_tokens} is below the cache block of {rule.block_tokens} tokens"
        )
    if kv_capacity_tokens(dep) < rule.block_tokens:
        least = rule.block_tokens * kv_bytes_per_token_per_rank(dep) + sequence_bytes_per_rank(dep)
        needed = weights_per_device_bytes(dep) + dep.engine.reserve_bytes + least
        available = dep.hardware.memory_bytes.value * dep.engine.memory_share
        raise CapacityError(
            f"{dep.label} does not fit: each device needs {needed / 1e9:.1f} GB for weights, reserve and a cache block "
            f"and has {available / 1e9:.1f} GB usable; use more devices, a smaller weight_dtype or larger memory",
            needed_bytes=needed,
            available_bytes=available,
        )


def kv_bytes_per_token_per_rank(dep: Deployment) -> float:
    """KV-cache bytes one token costs on one device, over the layers that keep the whole context; a drafter's too."""
    own = sum(
        count * kv_bytes_per_rank(layer.attention, dep.n_devices, dep.kv_dtype)
        for layer, count in layer_groups(dep.model)
        if not (isinstance(layer.attention, Attention) and layer.attention.window is not None)
    )
    return own + (kv_bytes_per_token_per_rank(dep.drafter) if dep.drafter else 0.0)


def kv_bytes_per_token(dep: Deployment) -> float:
    """KV-cache bytes of one token summed over all devices, replication included."""
    return kv_bytes_per_token_per_rank(dep) * dep.n_devices


def sequence_bytes_per_rank(dep: Deployment) -> float:
    """Bytes one running sequence needs on one device whatever its length: recurrent state and full sliding windows.

    A state per token that a pass checks is kept, so that a rejected draft can be undone; a drafter's own on top.
    """
    total = sequence_bytes_per_rank(dep.drafter) if dep.drafter else 0.0
    states = 1 if dep.speculation is None else dep.speculation.pass_tokens
    for layer, count in layer_groups(dep.model):
        a = layer.attention
        if isinstance(a, LinearAttention):
            total += count * states * state_bytes_per_rank(a, dep.n_devices)
        elif isinstance(a, Attention) and a.window is not None:
            total += count * kv_bytes_per_rank(a, dep.n_devices, dep.kv_dtype) * a.window
    return total


def weights_per_device_bytes(dep: Deployment) -> float:
    """Weight bytes resident on one device: an even part of what is split, all of the products that are replicated.

    A draft model comes on top; of a prediction layer its layer and the product before it, embedding and head being the
    model's own.
    """
    n = dep.n_devices
    drafter = dep.drafter
    extra = weights_per_device_bytes(drafter) if drafter else 0.0
    if drafter and dep.speculation and dep.speculation.method == "mtp":
        extra -= weight_bytes(replace(drafter.model, layers=()), drafter.weight_dtype) / n
        projection = prediction_product(drafter.model.hidden)
        each = weight_bytes_each(product_dtype(drafter.model, drafter.weight_dtype, projection))
        extra += projection.params * each / n
    replicated = sum(
        count * p.params * weight_bytes_each(product_dtype(dep.model, dep.weight_dtype, p))
        for layer, count in layer_groups(dep.model)
        for p in products(layer, dep.model.hidden)
        if p.split == "none"
    )
    return (weight_bytes(dep.model, dep.weight_dtype) + (n - 1) * replicated) / n + extra


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
        return _with_passes(dep, CacheRule(block_tokens=page, chunk_tokens=dep.engine.chunk_tokens))
    state = max(state_bytes_per_rank(a, dep.n_devices) for a in linear)
    kv = max(kv_bytes_per_rank(g.attention, dep.n_devices, dep.kv_dtype) for g, _ in groups)
    block = page * math.ceil(state / (page * kv)) if kv else dep.engine.chunk_tokens
    rule = CacheRule(block_tokens=block, chunk_tokens=dep.engine.chunk_tokens, state_aligned=True)
    return _with_passes(dep, rule)


def _with_passes(dep: Deployment, rule: CacheRule) -> CacheRule:
    s = dep.speculation
    return rule if s is None else replace(rule, tokens_per_pass=s.tokens_per_pass, pass_tokens=s.pass_tokens)


def factor_values(dep: Deployment) -> Mapping[str, float]:
    """Central values of device and engine factors together, by name."""
    return {**dep.efficiency.values(), **{k: f.value for k, f in dep.engine.factors.items()}}
