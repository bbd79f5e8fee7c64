"""The two models of a scenario from what people write: `MODEL@HARDWARE`, `api:PROVIDER/MODEL`, or a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.api import api
from costmodel.deployment import Deployment, deploy
from costmodel.engines import engine
from costmodel.speculation import token_speculation
from hwprofiles.errors import CapacityError, InputError
from simulator.scenario import ModelSide
from simulator.scenario_file import to_document

MOST_DEVICES = 64
_API = "api:"

Side = Deployment | ModelSide | Mapping[str, Any] | str
"""What may stand for one of the two models."""


def side_document(role: str, side: Side) -> dict[str, Any]:
    """The keys of a scenario's section [weak] or [strong].

    Raises
    ------
    InputError
        Something unknown, a model that does not fit, or a deployment whose parts no scenario file can name.
    """
    if isinstance(side, Deployment):
        return _of_deployment(role, side)
    if isinstance(side, ModelSide):
        document: dict[str, Any] = to_document(side)
        return document
    return side_from_text(role, side) if isinstance(side, str) else dict(side)


def side_from_text(role: str, text: str) -> dict[str, Any]:
    """The section behind `MODEL@HARDWARE`, with the fewest devices that hold the model, or `api:PROVIDER/MODEL`."""
    if text.startswith(_API):
        name = text.removeprefix(_API)
        api(name)
        return {"api": name}
    model, mark, hardware = text.rpartition("@")
    if not mark or not model.strip() or not hardware.strip():
        raise InputError(f"{role} {text!r}: expected MODEL@HARDWARE or api:PROVIDER/MODEL")
    try:
        dep = smallest(model.strip(), hardware.strip())
    except InputError as error:
        error.args = (f"{role}: {error}",)
        raise
    return {
        "model": model.strip(),
        "hardware": hardware.strip(),
        "n_devices": dep.n_devices,
        "weight_dtype": dep.weight_dtype,
    }


def smallest(model: str, hardware: str) -> Deployment:
    """The deployment with the fewest devices (1, 2, 4, ... 64) that holds the model in its checkpoint's own type.

    Raises
    ------
    CapacityError
        None does; the message is that of the largest that could be tried.
    """
    full: CapacityError | None = None
    n = 1
    while n <= MOST_DEVICES:
        try:
            return deploy(model, hardware, n_devices=n)
        except CapacityError as error:
            full = error
        except InputError:
            if full is None:
                raise
            break  # no link between devices, or heads that n devices cannot split
        n *= 2
    assert full is not None
    raise full


def _of_deployment(role: str, dep: Deployment) -> dict[str, Any]:
    """A deployment as keys; deploying from these keys again must give an equal one."""
    found: dict[str, Any] = {
        "model": dep.model.name,
        "hardware": dep.hardware.name,
        "n_devices": dep.n_devices,
        "weight_dtype": dep.weight_dtype,
        "kv_dtype": dep.kv_dtype,
        "engine": dep.engine.name,
    }
    if dep.expert_parallel != 1:
        found["expert_parallel"] = dep.expert_parallel
    standard = engine(dep.engine.name)
    for limit in ("max_seqs", "chunk_tokens", "page_tokens", "memory_share"):
        if getattr(dep.engine, limit) != getattr(standard, limit):
            found[limit] = getattr(dep.engine, limit)
    names = {k: v for k, v in found.items() if k not in ("model", "hardware", "engine")}
    decode = _decode(dep)
    try:
        speculation = token_speculation(dep.model, **decode) if decode else None
        again = deploy(found["model"], found["hardware"], engine_name=found["engine"], speculation=speculation, **names)
    except InputError as error:
        raise InputError(f"{role}: {dep.label} cannot be named in a scenario ({error}); {_REMEDY}") from None
    if again != dep:
        parts = ("model", "hardware", "engine", "efficiency", "speculation")
        part = next(f for f in parts if getattr(again, f) != getattr(dep, f))
        raise InputError(f"{role}: {dep.label} has its own {part}, which a scenario cannot name; {_REMEDY}")
    return {**found, "decode": decode} if decode else found


def _decode(dep: Deployment) -> dict[str, Any]:
    """The keys of a section's decode table."""
    s = dep.speculation
    if s is None:
        return {}
    found: dict[str, Any] = {"method": s.method, "length": s.length, "acceptance": s.acceptance}
    if s.method == "draft":
        found["draft_model"] = s.model.name
    if s.weight_dtype is not None:
        found["draft_weight_dtype"] = s.weight_dtype
    return found


_REMEDY = 'give a mapping with paths instead, such as {"model": "config.json", "hardware": "device.toml"}'
