"""Engine generations: scheduler limits and host times, kept apart from device factors."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from hwprofiles.calibration import ENGINE_TIMES
from hwprofiles.efficiency import Factor
from hwprofiles.errors import unknown_name

ENGINE_FACTORS: tuple[str, ...] = ENGINE_TIMES


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """One engine generation.

    Parameters
    ----------
    page_tokens : int
        Tokens of one KV-cache page, the granularity of prefix hits for plain attention.
    chunk_tokens, max_seqs : int
        Token budget and running sequences of one engine step.
    memory_share, reserve_bytes : float
        Share of device memory the engine may use, and what it keeps for activations.
    factors : mapping name -> Factor
        `host_step_s`, `host_seq_s` per engine step; `request_s`, `request_token_s` per request.
    timed_on : str or None
        The device whose own host times a calibration has; None: they are those of the engine anywhere.
    """

    name: str
    title: str
    page_tokens: int
    chunk_tokens: int
    max_seqs: int
    memory_share: float
    reserve_bytes: float
    factors: Mapping[str, Factor]
    sources: Mapping[str, tuple[str, str]]
    timed_on: str | None = None

    @property
    def label(self) -> str:
        """What qualifies its factors' names: roles with the same label share them."""
        return self.name if self.timed_on is None else f"{self.name}@{self.timed_on}"


def engine_names() -> list[str]:
    """Names of the bundled engine generations."""
    folder = files("costmodel") / "data" / "engines"
    return sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml"))


@lru_cache(maxsize=16)
def engine(name: str) -> EngineProfile:
    """The bundled engine generation of that name; raises `InputError` with the nearest name."""
    if name not in engine_names():
        raise unknown_name("engine", name, engine_names())
    raw = tomllib.loads((files("costmodel") / "data" / "engines" / f"{name}.toml").read_text(encoding="utf-8"))
    limits = raw["limits"]
    return EngineProfile(
        name=raw["name"],
        title=raw["title"],
        page_tokens=int(limits["page_tokens"]["value"]),
        chunk_tokens=int(limits["chunk_tokens"]["value"]),
        max_seqs=int(limits["max_seqs"]["value"]),
        memory_share=float(limits["memory_share"]["value"]),
        reserve_bytes=float(limits["reserve_bytes"]["value"]),
        factors={k: Factor(**raw["factors"][k]) for k in ENGINE_FACTORS},
        sources={k: (v["tier"], v["source"]) for k, v in limits.items()},
    )
