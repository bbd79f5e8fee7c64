"""What a run on one GPU is to do: its models as deployments, how memory is split, and how its minutes are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from costmodel.arch import ModelArch
from costmodel.deployment import Deployment, deploy, kv_bytes_per_token, kv_capacity_tokens, weights_per_device_bytes
from costmodel.models import model
from hwprofiles.errors import CapacityError
from hwprofiles.hardware import Hardware
from validate.budget import Share
from validate.gpu_device import Machine

ROLES = ("strong", "weak")
"""The large model first: should time run out, its calibration is there."""

VLLM_SHARES = {
    "strong start": Share(most=0.6, least=0.08),
    "strong points": Share(most=0.35, least=0.03),
    "weak start": Share(most=0.6, least=0.08),
    "weak points": Share(most=0.4, least=0.03),
    "both": Share(most=1.0, least=0.0),
    "replay": Share(most=1.0, least=0.05),
}
TORCH_SHARES = {
    "strong steps": Share(most=0.6, least=0.05),
    "weak steps": Share(most=0.8, least=0.05),
    "both": Share(most=1.0, least=0.0),
}
"""Assumed, before any run on a GPU: a start takes one minute or two, 40 points at most one and a half."""
MEASURED = 0.6
"""Share of a stage's time that goes into the points of the fit; the rest is for fitting and for points outside it."""
CHECKED, CPU_CHECKED = 12, 3
"""Points outside the fit, on a GPU and on a CPU."""

MAX_SEQS, CPU_CHUNK_TOKENS, CPU_KV_BYTES = 256, 2048, 256 << 20
"""Limits that servers are started with: vLLM's default of sequences; on a CPU also a smaller budget and cache."""
_TOGETHER = 0.92
"""Share of the memory that two engines use side by side; the rest is for their processes."""
_LEAST_WEAK = 0.12
_WEAK_KV_TOKENS = 65_536
_SPARE = 0.9
"""Share of the tokens that planning finds room for which one request may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run.

    Parameters
    ----------
    out : Path
        An existing folder.
    device, hardware : Hardware, str
        The device, and how scenarios name it.
    models : mapping role -> str
        Bundled names or paths of a `config.json`.
    eager : bool
        Servers compile nothing and capture no graphs.
    settings : tuple of str
        `KEY=VALUE` of the replay's scenario.
    """

    out: Path
    machine: Machine
    device: Hardware
    hardware: str
    models: dict[str, str]
    eager: bool
    settings: tuple[str, ...]
    seed: int
    progress: Callable[[str], None]

    def arch(self, role: str) -> ModelArch:
        """The architecture of a role's model."""
        return model(self.models[role])

    @property
    def checked(self) -> int:
        """Points timed outside the fit."""
        return CHECKED if self.machine.cuda else CPU_CHECKED

    def deployment(self, role: str, memory_share: float | None = None) -> Deployment:
        """A role's model on the device under the limits that its server gets; raises `CapacityError`."""
        chunk = None if self.machine.cuda else CPU_CHUNK_TOKENS
        return deploy(self.arch(role), self.device, max_seqs=MAX_SEQS, chunk_tokens=chunk, memory_share=memory_share)


def side_by_side(job: Job) -> dict[str, float] | str:
    """Shares of the memory with which both engines fit at once, by role; else why they do not.

    The weak model gets its weights, the engine's reserve and a cache of 65,536 tokens, the strong one the rest.
    """
    try:
        weak = job.deployment("weak")
        assert job.device.memory_bytes is not None
        needed = weights_per_device_bytes(weak) + weak.engine.reserve_bytes + _WEAK_KV_TOKENS * kv_bytes_per_token(weak)
        share = max(_LEAST_WEAK, needed / job.device.memory_bytes.value)
        if share >= _TOGETHER:
            return f"{weak.label} alone needs {share:.0%} of the memory"
        found = {"weak": round(share, 3), "strong": round(_TOGETHER - share, 3)}
        for role, own in found.items():
            job.deployment(role, own)
    except CapacityError as error:
        return str(error)
    return found


def longest_request(dep: Deployment) -> int:
    """Tokens of the longest request that a deployment is started for."""
    return min(dep.model.max_context_tokens or 1 << 20, int(_SPARE * kv_capacity_tokens(dep)))
