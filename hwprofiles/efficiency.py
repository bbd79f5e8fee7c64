"""How much of a datasheet a kernel library reaches: fitted or assumed factors, kept apart from datasheet facts.

The factors are those of one engine step (see `costmodel.step`):

========================= ===== ==================================================================================
name                      unit  meaning
========================= ===== ==================================================================================
gemm_compute              1     share of peak FLOP/s a large 16-bit matrix product reaches (e_c)
gemm_compute_8bit         1     the same for fp8 and int8 products
gemm_memory               1     share of peak bandwidth a memory-bound 16-bit product reaches (e_m)
gemm_memory_8bit          1     the same for fp8 and int8 products
roof_exponent             1     p of the smooth roof (tc^p + tm^p)^(1/p)
roof_exponent_8bit        1     the same for fp8 and int8 products
gemm_s                    s     fixed time of one 16-bit product (launch, ramp-up) (c)
gemm_8bit_s               s     the same for fp8 and int8 products
gemm_fill_k               1     depth K a product loses to filling its pipeline: compute time times 1 + K / k
gemm_fill_n               1     columns N it loses to filling the device: compute time times 1 + N / n
gemm_narrow_n             1     columns below which a product streams its operands slower: memory time times 1 + N / n
attention_prefill_compute 1     share of 16-bit peak in prefill attention (e_ap)
attention_prefill_s       s     fixed time of one prefill attention call (c_ap)
attention_tile_tokens     1     context tokens a new token costs on top of those it sees (masked tiles, softmax)
attention_decode_memory   1     share of peak bandwidth in decode attention (e_ad)
attention_decode_s        s     fixed time of one decode attention call (c_ad)
elementwise_memory        1     share of peak bandwidth of norms, rotary, activation (e_el)
elementwise_s             s     fixed time of one element-wise kernel (c_el)
allreduce_s               s     latency of one all-reduce over two devices, L(2); L(n) = L(2) * (n / 2) ** 0.44
link_bandwidth            1     share of the link's bandwidth a collective reaches (e_link)
expert_compute            1     e_c of grouped expert products
expert_memory             1     e_m of grouped expert products
expert_s                  s     fixed time of one layer's grouped expert products
expert_correlation        1     kappa: distinct experts N(t) = k + (E-k)(1 - (1-k/E)^(kappa (t-1)))
linear_attention_compute  1     share of 16-bit peak in a gated-delta prefill scan
linear_attention_s        s     fixed time of one gated-delta call
flop_j                    J     energy of one 16-bit FLOP above idle (8-bit: half, 4-bit: a quarter)
byte_j                    J     energy of one byte moved from device memory, above idle
idle_w_share              1     idle power as a share of the board power limit
========================= ===== ==================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hwprofiles.hardware import Tier

FACTOR_NAMES: tuple[str, ...] = (
    "gemm_compute",
    "gemm_compute_8bit",
    "gemm_memory",
    "gemm_memory_8bit",
    "roof_exponent",
    "roof_exponent_8bit",
    "gemm_s",
    "gemm_8bit_s",
    "gemm_fill_k",
    "gemm_fill_n",
    "gemm_narrow_n",
    "attention_prefill_compute",
    "attention_prefill_s",
    "attention_tile_tokens",
    "attention_decode_memory",
    "attention_decode_s",
    "elementwise_memory",
    "elementwise_s",
    "allreduce_s",
    "link_bandwidth",
    "expert_compute",
    "expert_memory",
    "expert_s",
    "expert_correlation",
    "linear_attention_compute",
    "linear_attention_s",
    "flop_j",
    "byte_j",
    "idle_w_share",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One efficiency factor: its value, its 90 % band [`low`, `high`], tier and source."""

    value: float
    low: float
    high: float
    tier: Tier
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlations:
    """How what is known of some factors of a device hangs together: `matrix` (n, n) of `names`, engine's included."""

    device: str
    names: tuple[str, ...]
    matrix: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """The factors of one device class (or of one device, where a calibration names it).

    `correlations` are those of its own calibration and None elsewhere: factors are then taken to be independent.
    """

    name: str
    factors: Mapping[str, Factor]
    correlations: Correlations | None = None

    def values(self) -> dict[str, float]:
        """The central value of every factor, by name."""
        return {name: f.value for name, f in self.factors.items()}


def factor_range(name: str) -> tuple[float, float]:
    """Smallest and largest value of a factor: shares, seconds and joules end at 1, exponents run from 1 to 8."""
    if name.startswith("roof_exponent"):
        return 1.0, 8.0
    return (0.0, 10_000.0) if name.endswith(("_k", "_n", "_tokens")) else (0.0, 1.0)
