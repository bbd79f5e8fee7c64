"""A device file for one core of this machine's CPU: its peaks are timed, not looked up."""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hwprofiles.errors import InputError

_SIDE = 1024
"""A product of two matrices of this side stays in a core's caches and keeps its units busy."""
_COPY_BYTES = 256 << 20
_FOR_S = 2.0
"""The shortest of what fits into so many seconds: other work on the machine only ever makes a time longer."""


def cpu_name() -> str:
    """What the CPU calls itself."""
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_core(path: Path, name: str) -> Path:
    """Write the TOML of one core; the file's stem and `name` are what scenarios call it.

    peak = 2 side^3 / shortest time of a bf16 product;  bandwidth = 2 bytes / shortest time of a copy (read and written)

    Its power is not stated, as one core's is not measured: nothing about energy can be asked of it, and no power limit
    slows it in a prediction.

    Raises
    ------
    ModuleNotFoundError
        torch is not installed.
    InputError
        The file cannot be written.
    """
    import tomli_w
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        a, b = (torch.randn(_SIDE, _SIDE).to(torch.bfloat16) for _ in range(2))
        flops = 2.0 * _SIDE**3 / _shortest_s(lambda: a @ b)
        source = torch.ones(_COPY_BYTES // 4, dtype=torch.int32)
        sink = torch.zeros_like(source)
        rate = 2.0 * _COPY_BYTES / _shortest_s(lambda: sink.copy_(source))
    finally:
        torch.set_num_threads(threads)
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    content = {
        "name": name,
        "title": f"One core of {cpu_name()}",
        "vendor": "this machine",
        "device_class": "cpu",
        "memory_bytes": _number(memory / 2, "half of this machine's memory: two engines share it"),
        "bandwidth_bytes_per_s": _number(rate, f"copy of {_COPY_BYTES >> 20} MiB by one thread, read and written"),
        "peak_flops_per_s": {"bf16": _number(flops, f"bf16 product of two {_SIDE} x {_SIDE} matrices by one thread")},
    }
    try:
        path.write_text(tomli_w.dumps(content), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be written: {error.strerror or error}") from None
    return path


def _shortest_s(work: Callable[[], object]) -> float:
    work()
    began_s = time.perf_counter()
    shortest_s = math.inf
    while (at_s := time.perf_counter()) - began_s < _FOR_S:
        work()
        shortest_s = min(shortest_s, time.perf_counter() - at_s)
    return shortest_s


def _number(value: float, source: str) -> dict[str, Any]:
    return {"value": float(f"{value:.4g}"), "tier": "measured", "source": source}
