"""Scenarios from objects: deployments, trajectories in memory, measured acceptance."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from costmodel.trajectory import Workload
from hwprofiles.errors import InputError, unknown_name
from simulator.agreement import HANDOVERS, Agreement, agreement
from simulator.law import law_names
from simulator.memory import keep
from simulator.scenario import Scenario
from simulator.scenario_file import from_document, set_key, to_document
from simulator.sides import Side, side_document
from simulator.stated_acceptance import prior
from simulator.traces import ImportedTrace
from simulator.uncertain import Uncertain
from simulator.workloads import workload as find_workload
from simulator.workloads import workload_names

PRIORS: tuple[str, ...] = ("default",)
"""Names of acceptance priors."""

Work = Workload | ImportedTrace | str | Path
"""What may stand for a workload: trajectories, an imported trace, a bundled name or a path."""

Accepted = Uncertain | Agreement | float | Sequence[float]
"""What may stand for acceptance: a number, one with its band, a measured agreement, or numbers by position."""


def build_scenario(
    *,
    weak: Side,
    strong: Side,
    workload: Work | Mapping[str, Any],
    acceptance: Accepted | None = None,
    **parameters: Any,
) -> Scenario:
    """A scenario from Python objects.

    Parameters
    ----------
    weak, strong : Deployment, "MODEL@HARDWARE", "api:PROVIDER/MODEL", or the section's keys
    workload : Workload, ImportedTrace, bundled name, path, or the section's keys
        Trajectories in memory are held by this process under a name with their digest (`simulator.memory`).
    acceptance : number, Uncertain, Agreement, sequence by position, or None
        None: the prior.
    **parameters
        Any parameter (`window=4`, `concurrency=32`) or dotted key (`**{"weak.thinking": False}`).

    Raises
    ------
    InputError
        Something unknown, out of range, or given twice.
    """
    document: dict[str, Any] = {
        "weak": side_document("weak", weak),
        "strong": side_document("strong", strong),
        "workload": dict(workload) if isinstance(workload, Mapping) else _workload_document(workload),
    }
    if acceptance is not None:
        document["protocol"] = _acceptance_document(acceptance)
    for key, value in parameters.items():
        set_key(document, key, to_document(value))
    return from_document(document, "scenario")


def named_prior(name: str = "default") -> Uncertain:
    """An acceptance prior by name: `default`, for when nothing of the workload has been measured."""
    if name not in PRIORS:
        raise unknown_name("prior", name, PRIORS)
    return prior()


def acceptance(weak: Work, strong: Work, *, ignore: Collection[str] = HANDOVERS) -> Agreement:
    """Literal agreement of two traces of the same tasks, given as trajectories, names or paths (see `agreement`)."""
    return agreement(trajectories(weak), trajectories(strong), ignore=ignore)


def trajectories(work: Work) -> Workload:
    """The workload behind any form of it."""
    if isinstance(work, ImportedTrace):
        return work.workload
    return work if isinstance(work, Workload) else find_workload(work)


def _workload_document(work: Work) -> dict[str, Any]:
    if isinstance(work, str | Path):
        return {"law" if str(work) in law_names() else "trace": str(work)}
    found = trajectories(work)
    if not any(t.steps for t in found.trajectories):
        raise InputError(f"workload {found.name!r} holds no step")
    if found.kind == "trace" and found.name in workload_names() and find_workload(found.name) is found:
        return {"trace": found.name}
    return {"trace": keep(found)}


def _acceptance_document(given: Accepted) -> dict[str, Any]:
    """Keys of [protocol]; the prior itself is left out, so that its shape over positions and effects holds too."""
    if isinstance(given, Agreement):
        return {"acceptance": given.band()}
    if isinstance(given, Uncertain):
        return {} if given == prior() else {"acceptance": to_document(given)}
    if isinstance(given, Sequence):
        return {"acceptance_by_position": list(given)}
    return {"acceptance": given}
