"""Devices and efficiency factors from TOML files: the bundled ones, and the user's own.

A bundled device is one file `data/devices/NAME.toml`. The user adds devices by a path that ends in `.toml`, or by a
folder of such files named in the environment variable `SPECROOF_HARDWARE`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import cast, get_args

from hwprofiles.calibration import calibrated
from hwprofiles.efficiency import FACTOR_NAMES, Efficiency, Factor, factor_range
from hwprofiles.errors import ProfileError, unknown_name
from hwprofiles.hardware import DeviceClass, Fact, Hardware, Link
from hwprofiles.tables import Table, read_toml

HARDWARE_FOLDER_VARIABLE = "SPECROOF_HARDWARE"
DEVICE_CLASSES: tuple[DeviceClass, ...] = get_args(DeviceClass)
PEAK_DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4")

_DATA = Path(__file__).parent / "data"
_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_FACT_KEYS = ("value", "tier", "source")
_QUANTITIES = {  # key: (smallest value that is no slip of the unit, unit)
    "memory_bytes": (1e6, "bytes, not GB"),
    "bandwidth_bytes_per_s": (1e6, "bytes/s, not GB/s"),
    "cache_bytes": (1e3, "bytes, not MB"),
    "tdp_w": (0.0, "W"),
    "usd_per_h": (0.0, "USD/h"),
}
_PEAK = (1e6, "FLOP/s, not TFLOP/s")
_DEVICE_KEYS = ("name", "title", "vendor", "device_class", "aliases", "note", *_QUANTITIES, "peak_flops_per_s", "link")


def hardware(name_or_path: str | Path) -> Hardware:
    """The device of that name, alias or file.

    Case, spaces and underscores do not matter in a name (`RTX 4090` is `rtx-4090`). The folder in the environment
    variable `SPECROOF_HARDWARE` adds devices and never replaces one: a name or alias there that a bundled device or
    another file of the folder already has is an error, so that one name always means one device.

    Parameters
    ----------
    name_or_path : str or Path
        A bundled name or alias, the stem of a file in the user's folder, or a path that ends in `.toml`.

    Raises
    ------
    InputError
        No device has the name; the message gives the nearest one.
    ProfileError
        The file, or a file of the user's folder, is wrong; the message gives file and dotted place.
    """
    text = str(name_or_path)
    if text.casefold().endswith(".toml"):
        return check_hardware_file(text)
    slug = _slug(text)
    mine = _user_devices()
    if slug in mine:
        return mine[slug]
    if slug in _bundled_names():
        return _bundled(slug)
    by_alias = _bundled_by_any_name()
    if slug in by_alias:
        return by_alias[slug]
    raise unknown_name("hardware", text, {*by_alias, *mine})


def hardware_names() -> list[str]:
    """Names of every bundled device and of those in the user's folder, sorted; aliases left out."""
    return sorted({*_bundled_names(), *(device.name for device in _user_devices().values())})


def check_hardware_file(path: str | Path) -> Hardware:
    """The device a TOML file describes, read strictly.

    Parameters
    ----------
    path : str or Path
        Keys as in the bundled files: `name`, `title`, `vendor`, `device_class`, optional `aliases` and `note`, and
        quantities as `{ value, tier, source }` in SI base units. A quantity nobody publishes is left out.

    Raises
    ------
    ProfileError
        The file cannot be read, has a key that is not known, or a value out of range.
    """
    data, file = read_toml(Path(path), "hardware file")
    top = Table(data, file, "", _DEVICE_KEYS)
    facts = {key: _fact(top, key, *rule) if key in top else None for key, rule in _QUANTITIES.items()}
    return Hardware(
        name=_device_name(top),
        title=top.text("title"),
        vendor=top.text("vendor"),
        device_class=cast(DeviceClass, top.choice("device_class", DEVICE_CLASSES)),
        peak_flops_per_s=_peaks(top),
        memory_bytes=facts["memory_bytes"],
        bandwidth_bytes_per_s=facts["bandwidth_bytes_per_s"],
        cache_bytes=facts["cache_bytes"],
        link=_link(top),
        tdp_w=facts["tdp_w"],
        usd_per_h=facts["usd_per_h"],
        aliases=_aliases(top),
        note=top.text("note") if "note" in top else "",
    )


def efficiency(device_class_or_name: str | Hardware, calibration: Path | None = None) -> Efficiency:
    """The efficiency factors of a device, fitted where it was measured, or of a device class.

    A device without measurements takes what a fit says of an unseen device of its class, with a wider band; a class
    without any its assumed first values.

    Parameters
    ----------
    device_class_or_name : str or Hardware
        A device class (`dc_gpu`), or anything `hardware` takes.
    calibration : Path or None
        A calibration file in place of the bundled one.

    Raises
    ------
    InputError
        Neither a device class nor a device.
    ProfileError
        The calibration file is wrong.
    """
    if isinstance(device_class_or_name, str):
        wanted = device_class_or_name.strip().casefold().replace("-", "_")
        if wanted in DEVICE_CLASSES:
            return calibrated(_class_efficiency(wanted), None, calibration)
        device_class_or_name = hardware(device_class_or_name)
    device = device_class_or_name
    return calibrated(_class_efficiency(device.device_class), device.name, calibration)


def _slug(name: str) -> str:
    """A name as files spell it: lower case, dashes for spaces and underscores."""
    return re.sub(r"[\s_]+", "-", name.strip().casefold())


def _fact(table: Table, key: str, low: float, unit: str) -> Fact:
    inner = table.table(key, _FACT_KEYS)
    return Fact(value=inner.number("value", low=low, unit=unit), tier=inner.tier(), source=inner.text("source"))


def _peaks(top: Table) -> dict[str, Fact]:
    if "peak_flops_per_s" not in top:
        return {}
    peaks = top.table("peak_flops_per_s", PEAK_DTYPES)
    return {dtype: _fact(peaks, dtype, *_PEAK) for dtype in PEAK_DTYPES if dtype in peaks}


def _link(top: Table) -> Link | None:
    if "link" not in top:
        return None
    link = top.table("link", ("name", "bandwidth_bytes_per_s"))
    rule = _QUANTITIES["bandwidth_bytes_per_s"]
    return Link(name=link.text("name"), bandwidth_bytes_per_s=_fact(link, "bandwidth_bytes_per_s", *rule))


def _device_name(top: Table) -> str:
    name = top.text("name")
    if not _NAME.fullmatch(name):
        raise top.wrong("name", "lower-case letters, digits, '.', '+' and '-'")
    return name


def _aliases(top: Table) -> tuple[str, ...]:
    names = top.data.get("aliases", [])
    if not isinstance(names, list) or not all(isinstance(n, str) and _NAME.fullmatch(n) for n in names):
        raise top.wrong("aliases", "a list of names of lower-case letters, digits, '.', '+' and '-'")
    if len({*names, top.data["name"]}) <= len(names):
        raise top.wrong("aliases", "a list without repeats that leaves out the name itself")
    return tuple(names)


@cache
def _bundled_names() -> frozenset[str]:
    return frozenset(path.stem for path in (_DATA / "devices").glob("*.toml"))


@cache
def _bundled(name: str) -> Hardware:
    return check_hardware_file(_DATA / "devices" / f"{name}.toml")


@cache
def _bundled_by_any_name() -> Mapping[str, Hardware]:
    devices: dict[str, Hardware] = {}
    for stem in sorted(_bundled_names()):
        _add(devices, _bundled(stem), f"bundled hardware file {stem}.toml")
    return devices


def _user_devices() -> Mapping[str, Hardware]:
    """The devices of the user's folder by name and alias; empty when the variable is not set."""
    folder = os.environ.get(HARDWARE_FOLDER_VARIABLE, "")
    if not folder:
        return {}
    if not Path(folder).is_dir():
        raise ProfileError(f"{HARDWARE_FOLDER_VARIABLE} must name a folder of hardware files, got {folder!r}")
    bundled = _bundled_by_any_name()
    known = dict(bundled)
    for path in sorted(Path(folder).glob("*.toml")):
        device = check_hardware_file(path)
        if device.name != path.stem:
            raise ProfileError(
                f"hardware file {str(path)!r}: name must be the file's stem {path.stem!r}, got {device.name!r}"
            )
        _add(known, device, f"hardware file {str(path)!r}")
    return {name: device for name, device in known.items() if name not in bundled}


def _add(devices: dict[str, Hardware], device: Hardware, file: str) -> None:
    for name in (device.name, *device.aliases):
        if name in devices:
            raise ProfileError(f"{file}: the name {name!r} is taken by {devices[name].title!r}; choose another")
        devices[name] = device


@cache
def _class_efficiency(device_class: str) -> Efficiency:
    data, file = read_toml(_DATA / "efficiency" / f"{device_class}.toml", "efficiency file")
    top = Table(data, file, "", ("device_class", "factors"))
    name = top.choice("device_class", (device_class,))
    factors = top.table("factors", FACTOR_NAMES)
    return Efficiency(name=name, factors={factor: _factor(factors, factor) for factor in FACTOR_NAMES})


def _factor(factors: Table, name: str) -> Factor:
    """One factor with its band; the value lies in the band, the band in the range of its name."""
    inner = factors.table(name, ("value", "low", "high", "tier", "source"))
    floor, ceiling = factor_range(name)
    low = inner.number("low", low=floor, high=ceiling)
    high = inner.number("high", low=low, high=ceiling)
    value = inner.number("value", low=low, high=high)
    return Factor(value=value, low=low, high=high, tier=inner.tier(), source=inner.text("source"))
