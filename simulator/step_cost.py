"""One engine step in full: seconds with their band, FLOPs, bytes by kind, what bounds it, and every operation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from costmodel.deployment import Deployment, cache_rule, kv_bytes_per_token_per_rank, kv_capacity_tokens
from costmodel.step import StepModel
from hwprofiles.errors import CapacityError, InputError
from simulator.factors import drawn_factors, sources, tiers
from simulator.step_ops import BYTES, PARTS, ROOFS, OpCost, host, merged, step_ops, touched_params

if TYPE_CHECKING:
    import pandas as pd

_TRAFFIC = ("weights", "kv", "state")
_MOST_TOKENS = 10**9
_SAMPLES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What one engine step costs, all devices together; `low_s` and `high_s` bound 90 %."""

    deployment: Deployment
    prefill: tuple[tuple[int, int], ...]
    decode: tuple[tuple[int, int], ...]
    time_s: float
    low_s: float
    high_s: float
    energy_j: float
    touched_params: float
    ops: tuple[OpCost, ...]
    notes: tuple[str, ...]

    @property
    def flops(self) -> float:
        """FLOPs of all devices."""
        return math.fsum(op.flops for op in self.ops)

    @property
    def bytes(self) -> dict[str, float]:
        """Bytes of all devices by kind, and their `total`."""
        found = {kind: math.fsum(op.bytes[kind] for op in self.ops) for kind in BYTES}
        return {**found, "total": math.fsum(found.values())}

    @property
    def parts_s(self) -> dict[str, float]:
        """The step's seconds by what binds them; they add up to `time_s`."""
        return {part: math.fsum(op.parts_s[part] for op in self.ops) for part in PARTS}

    @property
    def roofs_s(self) -> dict[str, float]:
        """Seconds at each roof alone."""
        return {roof: math.fsum(op.roofs_s[roof] for op in self.ops) for roof in ROOFS}

    @property
    def bound(self) -> str:
        """The largest part of the step's time."""
        parts = self.parts_s
        return max(parts, key=lambda part: parts[part])

    def document(self) -> dict[str, Any]:
        """The step as plain values."""
        dep = self.deployment
        found = self.bytes
        return {
            "deployment": dep.label,
            "prefill": [{"new_tokens": n, "context_tokens": c} for n, c in self.prefill],
            "decode": [{"sequences": n, "context_tokens": c} for n, c in self.decode],
            "time_s": self.time_s,
            "low_s": self.low_s,
            "high_s": self.high_s,
            "flops": self.flops,
            "bytes": found,
            "traffic_bytes": math.fsum(found[kind] for kind in _TRAFFIC),
            "energy_above_idle_j": self.energy_j,
            "bound": self.bound,
            "parts_s": self.parts_s,
            "roofs_s": self.roofs_s,
            "touched_params": self.touched_params,
            "kv_cache_tokens": kv_capacity_tokens(dep),
            "cache_block_tokens": cache_rule(dep).block_tokens,
            "weight_dtype": dep.weight_dtype,
            "kv_dtype": dep.kv_dtype,
            "compute_dtype": dep.compute_dtype,
            "engine": dep.engine.name,
            "ops": [
                {
                    "name": op.name,
                    "count": op.count,
                    "time_s": op.time_s,
                    "share": op.time_s / self.time_s,
                    "flops": op.flops,
                    "bytes": {**op.bytes, "total": math.fsum(op.bytes.values())},
                    "bound": op.bound,
                }
                for op in self.ops
            ],
            "tiers": tiers(dep),
            "sources": sources(dep),
            "notes": list(self.notes),
        }

    def table(self) -> pd.DataFrame:
        """One row per operation, as a pandas frame."""
        import pandas as pd

        rows = [
            {"op": op.name, "count": op.count, "time_s": op.time_s, "bound": op.bound, "flops": op.flops}
            | {f"{kind}_bytes": op.bytes[kind] for kind in BYTES}
            for op in self.ops
        ]
        return pd.DataFrame(rows).set_index("op")


def step_cost(
    dep: Deployment,
    prefill: Sequence[tuple[int, int]] = (),
    decode: Sequence[tuple[int, int]] = (),
    *,
    seed: int = 0,
) -> StepCost:
    """Price one engine step.

    t_step = sum_o t_o + host_step_s + host_seq_s * n_seqs;   the band is the 5 % to 95 % range over the factors' bands

    Parameters
    ----------
    prefill : sequence of (new_tokens, context_tokens)
        One sequence each: new tokens behind cached ones. Each pass is taken as a prompt's last, so it yields a token.
    decode : sequence of (sequences, context_tokens)
        Sequences that decode one token each on top of that many cached ones.
    seed : int
        Of the quasi-Monte-Carlo points.

    Raises
    ------
    InputError
        Nothing to do, a count out of range, or more context than the model takes.
    CapacityError
        More tokens than the KV cache holds.

    Limits
    ------
    The engine's token budget and its maximum of sequences are not enforced, only named in `notes`.
    """
    passes, runs = _pairs("prefill", prefill), _pairs("decode", decode)
    _fits(dep, passes, runs)
    model = StepModel(dep)
    ops = step_ops(model, passes, runs)
    n_seqs = float(len(passes) + sum(n for n, _ in runs))
    columns, seconds = model.total(ops, n_seqs)
    spread = StepModel(dep, drawn_factors(dep, _SAMPLES, seed))
    _, drawn = spread.total(step_ops(spread, passes, runs), n_seqs)
    low, high = (float(q) for q in np.quantile(np.atleast_1d(drawn), (0.05, 0.95)))
    rows = float(sum(new for new, _ in passes) + sum(n for n, _ in runs))
    host_s = float(model.factors["host_step_s"] + model.factors["host_seq_s"] * n_seqs)
    return StepCost(
        deployment=dep,
        prefill=passes,
        decode=runs,
        time_s=float(seconds),
        low_s=min(low, float(seconds)),
        high_s=max(high, float(seconds)),
        energy_j=float(columns[6]),
        touched_params=touched_params(dep, rows),
        ops=(*merged(model, ops), host(host_s)),
        notes=_notes(dep, int(rows), int(n_seqs)),
    )


def _pairs(what: str, given: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    found = []
    for n, context in given:
        if n < 1 or context < 0 or n > _MOST_TOKENS or context > _MOST_TOKENS:
            first = "new tokens" if what == "prefill" else "sequences"
            raise InputError(
                f"{what} {n}@{context}: {first} must be from 1 and context from 0 tokens, both to {_MOST_TOKENS}"
            )
        found.append((int(n), int(context)))
    return tuple(found)


def _fits(dep: Deployment, passes: Sequence[tuple[int, int]], runs: Sequence[tuple[int, int]]) -> None:
    if not passes and not runs:
        raise InputError("a step needs work: give --prefill NEW@CONTEXT or --decode SEQUENCES@CONTEXT")
    longest = dep.model.max_context_tokens
    grown = [("prefill", n, c, n + c) for n, c in passes] + [("decode", n, c, c + 1) for n, c in runs]
    for what, n, context, after in grown:
        if longest is not None and after > longest:
            raise InputError(
                f"{what} {n}@{context}: {after} tokens of context; {dep.model.name} takes at most {longest}"
            )
    held = sum(n + c for n, c in passes) + sum(n * (c + 1) for n, c in runs)
    room = kv_capacity_tokens(dep)
    if held > room:
        each = kv_bytes_per_token_per_rank(dep)
        raise CapacityError(
            f"{dep.label}: the step holds {held} tokens of context and the KV cache {room}; use more devices, fewer "
            "sequences or a smaller kv_dtype",
            needed_bytes=held * each,
            available_bytes=room * each,
        )


def _notes(dep: Deployment, rows: int, n_seqs: int) -> tuple[str, ...]:
    found = []
    if rows > dep.engine.chunk_tokens:
        found.append(
            f"{rows} tokens are more than the token budget of {dep.engine.chunk_tokens} that {dep.engine.name} gives a "
            "step: it would split this into several"
        )
    if n_seqs > dep.engine.max_seqs:
        found.append(f"{n_seqs} sequences are more than the {dep.engine.max_seqs} that {dep.engine.name} runs at once")
    return tuple(found)
