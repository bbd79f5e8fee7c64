"""Bytes per weight and per KV number of every storage format, and the peak a product of such weights runs at."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from hwprofiles.errors import InputError, unknown_name
from hwprofiles.hardware import Fact, Tier


def _fact(value: float, source: str, tier: Tier = "datasheet") -> Fact:
    return Fact(value=value, tier=tier, source=source)


BYTES_PER_WEIGHT: Mapping[str, Fact] = MappingProxyType(
    {
        "fp32": _fact(4.0, "IEEE 754 binary32"),
        "bf16": _fact(2.0, "16-bit float"),
        "fp16": _fact(2.0, "IEEE 754 binary16"),
        "fp8": _fact(1 + 4 / 128**2, "one byte and an fp32 scale per 128 x 128 block, as DeepSeek-V3 and Qwen ship it"),
        "int8": _fact(1.0, "one byte; the scale per output channel is left out"),
        "int4": _fact(0.5 + 2 / 128, "half a byte and an fp16 scale per group of 128, symmetric"),
        "mxfp4": _fact(17 / 32, "OCP Microscaling formats 1.0: 32 values of 4 bit and one scale byte"),
        "nvfp4": _fact(9 / 16, "16 values of 4 bit and one fp8 scale; the fp32 scale per tensor is left out"),
        "q4_k_m": _fact(0.606, "llama.cpp GGUF: average over a file, varies with the mix of its tensors", "assumed"),
        "q4_0": _fact(18 / 32, "llama.cpp GGUF: 32 values of 4 bit and one fp16 scale"),
        "q3_k_m": _fact(0.49, "llama.cpp GGUF: average over a file, varies with the mix of its tensors", "assumed"),
        "q6_k": _fact(210 / 256, "llama.cpp GGUF: 256 values of 6 bit in 210 bytes"),
        "iq4_nl": _fact(18 / 32, "llama.cpp GGUF: 32 values of 4 bit and one fp16 scale"),
        "q8_0": _fact(34 / 32, "llama.cpp GGUF: 32 values of 8 bit and one fp16 scale"),
    }
)
"""Bytes of one stored weight, its share of the scales included."""

BYTES_PER_KV: Mapping[str, int] = MappingProxyType({"bf16": 2, "fp16": 2, "fp8": 1, "int8": 1})
"""Bytes of one number in the KV cache; scales of 8-bit caches are left out (one per tensor or head)."""

WHOLE_FILE_DTYPES: frozenset[str] = frozenset({"q4_0", "q3_k_m", "q4_k_m", "q6_k", "iq4_nl", "q8_0"})
"""Formats of llama.cpp files, which quantise the embedding and the head like every other matrix."""

_OWN_PEAK: Mapping[str, str] = {"fp8": "fp8", "int8": "int8", "nvfp4": "fp4"}
_SIXTEEN_BIT = ("bf16", "fp16", "fp32")


def weight_bytes_each(dtype: str) -> float:
    """Bytes of one weight stored as `dtype`; an unknown name is an `InputError` with the nearest known one."""
    if dtype not in BYTES_PER_WEIGHT:
        raise unknown_name("weight dtype", dtype, BYTES_PER_WEIGHT)
    return BYTES_PER_WEIGHT[dtype].value


def kv_bytes_each(dtype: str) -> int:
    """Bytes of one number of the KV cache in `dtype`; an unknown name is an `InputError` with the nearest known one."""
    if dtype not in BYTES_PER_KV:
        raise unknown_name("kv dtype", dtype, BYTES_PER_KV)
    return BYTES_PER_KV[dtype]


def compute_dtype(weight_dtype: str, peak_dtypes: Collection[str]) -> str:
    """Operand type whose peak bounds a product with weights in `weight_dtype`.

    fp8, int8 and nvfp4 weights multiply in fp8, int8 and fp4 where the device has that peak; every other quantised
    format is unpacked and multiplies in 16 bit: bf16, else fp16, else fp32. fp16 weights prefer fp16.

    Parameters
    ----------
    weight_dtype : str
        A key of `BYTES_PER_WEIGHT`.
    peak_dtypes : collection of str
        Operand types the device states a peak for (keys of `Hardware.peak_flops_per_s`).

    Raises
    ------
    InputError
        Unknown `weight_dtype`, or no peak that could serve it.

    Limits
    ------
    Activations are assumed to be quantised with the weights where that peak exists; int4 never uses an int4 peak.
    """
    weight_bytes_each(weight_dtype)
    wanted = ["fp32"] if weight_dtype == "fp32" else list(_SIXTEEN_BIT)
    if weight_dtype == "fp16":
        wanted = ["fp16", "bf16", "fp32"]
    if weight_dtype in _OWN_PEAK:
        wanted.insert(0, _OWN_PEAK[weight_dtype])
    for dtype in wanted:
        if dtype in peak_dtypes:
            return dtype
    have = ", ".join(sorted(peak_dtypes)) or "none"
    raise InputError(f"no peak for {weight_dtype} weights: needs one of {', '.join(wanted)}, the device states {have}")
