"""What is fitted to operators and device-only steps, and which rows feel which factor.

Starts are values of an earlier fit. Quirks of one source stand beside the device factors: what the silicon database
asks for normalised queries and keys, and the cache that a repeated micro-benchmark reads from.
"""

from __future__ import annotations

from validate.accuracy.kinds import Subject
from validate.fit_layout import Parameter, amount, exponent, share

SOURCES = frozenset({"silicon-database", "micro-benchmark", "vidur"})
"""Generations without host time: device factors come from these alone."""
STEPS = "silicon-database"
QUIRKS = {
    "qk_prefill_s": STEPS,
    "qk_decode_s": STEPS,
    "prefix_read_share": STEPS,
    "cache_speed": "micro-benchmark",
}
MAX_KV_SHARE = 0.05
"""Warm-prefix rows that read more KV than this share of their time show a quirk of their source: they are reported
apart, and what they say of the prefix read stays with the source."""

_PRODUCT = ("gemm_compute", "gemm_memory", "roof_exponent", "gemm_s")
_SHAPE = ("gemm_fill_k", "gemm_fill_n", "gemm_narrow_n")
_PRODUCT_8BIT = ("gemm_compute_8bit", "gemm_memory_8bit", "roof_exponent_8bit", "gemm_8bit_s")
_PREFILL = ("attention_prefill_compute", "attention_tile_tokens", "attention_prefill_s")
_DECODE = ("attention_decode_s",)
_ATTENTION = ("attention_decode_memory", "roof_exponent")
_ELEMENTWISE = ("elementwise_memory", "elementwise_s")
_COLLECTIVE = ("allreduce_s", "link_bandwidth")
_EXPERTS = ("expert_compute", "expert_memory", "expert_s", "expert_correlation")

PARAMETERS: tuple[Parameter, ...] = (
    share("gemm_compute", 0.85),
    share("gemm_compute_8bit", 0.65, device_sd=0.15),
    share("gemm_memory", 0.84),
    share("gemm_memory_8bit", 0.77, device_sd=0.15),
    exponent("roof_exponent", 2.4),
    exponent("roof_exponent_8bit", 1.9),
    amount("gemm_s", 3e-6),
    amount("gemm_8bit_s", 6e-6),
    amount("gemm_fill_k", 220.0, device_sd=0.3),
    amount("gemm_fill_n", 150.0, device_sd=0.3),
    amount("gemm_narrow_n", 300.0),
    share("attention_prefill_compute", 0.6),
    amount("attention_tile_tokens", 300.0, device_sd=0.3),
    share("attention_decode_memory", 0.86),
    amount("attention_prefill_s", 12e-6),
    amount("attention_decode_s", 11e-6),
    share("elementwise_memory", 0.5, device_sd=0.2),
    amount("elementwise_s", 3e-6),
    amount("allreduce_s", 5e-6),
    share("link_bandwidth", 0.45, device_sd=0.2),
    share("expert_compute", 0.42, device_sd=0.15),
    share("expert_memory", 0.82),
    amount("expert_s", 20e-6),
    share("expert_correlation", 0.6, device_sd=0.1),
    amount("qk_prefill_s", 28e-6, device_sd=0.1),
    amount("qk_decode_s", 1.5e-6, device_sd=0.2),
    amount("prefix_read_share", 0.05),
    amount("cache_speed", 1.5, device_sd=0.5),
)


def felt(subject: Subject) -> frozenset[str]:
    """The factors a kind of row depends on."""
    low = subject.dtype in ("fp8", "int8")
    products = (*_SHAPE, *(_PRODUCT_8BIT if low else _PRODUCT))
    match subject.kind:
        case "gemm":
            return frozenset((*products, "cache_speed", *(_ELEMENTWISE[:1] if low else ())))
        case "linear":
            return frozenset(products)
        case "elementwise":
            return frozenset(_ELEMENTWISE)
        case "attention":
            return frozenset((*_PREFILL, *_DECODE, *_ATTENTION, "cache_speed"))
    decode = subject.kind == "decode"
    names = [*_SHAPE, *_PRODUCT, *_ATTENTION, *_ELEMENTWISE, *(_DECODE if decode else _PREFILL)]
    names.append("qk_decode_s" if decode else "qk_prefill_s")
    names += ("prefix_read_share",) if subject.kind == "warm" else ()
    names += _PRODUCT_8BIT if low else ()
    names += _COLLECTIVE if subject.n_devices > 1 else ()
    names += _EXPERTS if subject.family == "moe" else ()
    return frozenset(names)


def cell(subject: Subject) -> tuple[str, str]:
    """Device and kernel library of a row; older kernels of one source count as a library of their own."""
    return subject.device.name, "vidur" if subject.generation == "vidur" else subject.library
