"""Workloads held in memory under a name: a scenario stays plain values although its trajectories come from Python.

The name holds a digest of the content, so the same trajectories always get the same name. It lives as long as this
process; `simulator.traces.neutral.write` makes a file of a workload that should outlive it.
"""

from __future__ import annotations

import hashlib
import json
import re

from costmodel.trajectory import Workload
from hwprofiles.errors import InputError

PREFIX = "memory:"
_KEPT: dict[str, Workload] = {}


def keep(workload: Workload) -> str:
    """Hold a workload and return its name, such as `memory:my_agent-1f0c2a9b7d3e`."""
    from simulator.traces.neutral import to_document

    text = json.dumps(to_document(workload), sort_keys=True)
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", workload.name)[:60] or "workload"
    name = f"{PREFIX}{stem}-{hashlib.sha256(text.encode('ascii')).hexdigest()[:12]}"
    _KEPT[name] = workload
    return name


def kept_names() -> tuple[str, ...]:
    """Names held by this process."""
    return tuple(_KEPT)


def kept(name: str) -> Workload:
    """The workload held under a name; raises `InputError` when another process held it."""
    if name not in _KEPT:
        raise InputError(
            f"workload {name!r} was in the memory of the process that made this scenario; "
            "write it to a file and name that file under workload.trace"
        )
    return _KEPT[name]
