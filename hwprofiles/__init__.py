"""What a device is: datasheet facts with their sources and, kept apart, efficiency factors with theirs."""

from __future__ import annotations

from hwprofiles.efficiency import FACTOR_NAMES, Efficiency, Factor
from hwprofiles.errors import CapacityError, InputError, ProfileError, nearest, unknown_name
from hwprofiles.hardware import TIERS, DeviceClass, Fact, Hardware, Link, Tier
from hwprofiles.load import (
    DEVICE_CLASSES,
    PEAK_DTYPES,
    check_hardware_file,
    efficiency,
    hardware,
    hardware_names,
)

__all__ = [
    "DEVICE_CLASSES",
    "FACTOR_NAMES",
    "PEAK_DTYPES",
    "TIERS",
    "CapacityError",
    "DeviceClass",
    "Efficiency",
    "Fact",
    "Factor",
    "Hardware",
    "InputError",
    "Link",
    "ProfileError",
    "Tier",
    "check_hardware_file",
    "efficiency",
    "hardware",
    "hardware_names",
    "nearest",
    "unknown_name",
]
