"""What a device is: datasheet facts, each with its tier and source.

Fitted efficiency factors never live here; they are in `hwprofiles.efficiency`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Tier = Literal["datasheet", "measured", "fitted", "assumed"]
TIERS: tuple[Tier, ...] = ("datasheet", "measured", "fitted", "assumed")

DeviceClass = Literal["dc_gpu", "workstation", "edge_soc", "npu", "dc_accelerator", "tpu", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One number, how well it is known (`tier`) and where it comes from (`source`)."""

    value: float
    tier: Tier
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The device-to-device link of one node, per direction."""

    name: str
    bandwidth_bytes_per_s: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One accelerator (one device, not a node).

    Parameters
    ----------
    peak_flops_per_s : mapping dtype -> Fact
        Dense peak per operand type, FLOP/s (OP/s for integers): fp32, tf32, bf16, fp16, fp8, int8, fp4, int4.
    memory_bytes, bandwidth_bytes_per_s : Fact or None
        Device memory and its peak bandwidth; None where no vendor prints it (such a device cannot be deployed on).
    link : Link or None
        Link between devices of one node; None when the device stands alone.
    tdp_w, usd_per_h : Fact or None
        Board power limit; price of one device for an hour.
    """

    name: str
    title: str
    vendor: str
    device_class: DeviceClass
    peak_flops_per_s: Mapping[str, Fact]
    memory_bytes: Fact | None
    bandwidth_bytes_per_s: Fact | None
    cache_bytes: Fact | None = None
    link: Link | None = None
    tdp_w: Fact | None = None
    usd_per_h: Fact | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""

    def ridge_flops_per_byte(self, dtype: str) -> float:
        """Ridge point `peak / bandwidth` in FLOP per byte for one operand type."""
        if self.bandwidth_bytes_per_s is None:
            raise ValueError(f"hardware {self.name!r} states no memory bandwidth")
        return self.peak_flops_per_s[dtype].value / self.bandwidth_bytes_per_s.value
