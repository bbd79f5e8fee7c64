"""Workloads held in memory under a name: a scenario stays plain values although its trajectories come from Python.

The name holds a digest of the content, so the same trajectories always get the same name. It lives as long as this
process; `simulator.traces.neutral.write` makes a file of a workload that should outlive it.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING

from costmodel.trajectory import Workload
from hwprofiles.errors import InputError

if TYPE_CHECKING:
    from simulator.law import WorkloadLaw

PREFIX = "memory:"
_KEPT: dict[str, Workload] = {}
_LAWS: dict[str, WorkloadLaw] = {}


def keep(workload: Workload) -> str:
    """Hold a workload and return its name, such as `memory:my_agent-1f0c2a9b7d3e`."""
    from simulator.traces.neutral import to_document

    name = _name(workload.name, json.dumps(to_document(workload), sort_keys=True))
    _KEPT[name] = workload
    return name


def keep_law(law: WorkloadLaw) -> str:
    """Hold a law and return its name, such as `memory:law-of-retail-1f0c2a9b7d3e`."""
    name = _name(law.name, json.dumps(asdict(law), sort_keys=True))
    _LAWS[name] = law
    return name


def _name(stem: str, text: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", stem)[:60] or "workload"
    return f"{PREFIX}{stem}-{hashlib.sha256(text.encode('ascii')).hexdigest()[:12]}"


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


def kept_law(name: str) -> WorkloadLaw:
    """The law held under a name; raises `InputError` when another process held it."""
    if name not in _LAWS:
        raise InputError(f"workload law {name!r} was in the memory of the process that made this scenario")
    return _LAWS[name]


def held(name: str) -> Workload | WorkloadLaw | None:
    """What this process holds under a name, to be sent to another one; None for names that need no memory."""
    return _KEPT.get(name) or _LAWS.get(name)


def hold(thing: Workload | WorkloadLaw) -> None:
    """Hold what another process held, under the same name."""
    keep(thing) if isinstance(thing, Workload) else keep_law(thing)
