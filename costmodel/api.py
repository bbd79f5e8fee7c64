"""A model behind a priced API: what a token costs, how a prompt is cached, how long an answer takes."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from costmodel.request import CacheRule
from hwprofiles.efficiency import Factor
from hwprofiles.errors import unknown_name

_CHUNK_TOKENS = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API model.

    Parameters
    ----------
    input_usd, cached_usd, cache_write_usd, output_usd : float
        List price per token.
    min_cacheable_tokens, cache_block_tokens : int
        Shortest prompt the provider caches, and the granularity of a hit.
    request_s, output_token_s : Factor
        Latency of an answer: `request_s + output_token_s * output_tokens`. Prompt length is not in the bundled ones: at
        agent sizes and cache shares recorded calls hardly show it.
    input_token_s : Factor or None
        Besides, per prompt token that is not cached; None: 0.
    """

    name: str
    input_usd: float
    cached_usd: float
    cache_write_usd: float
    output_usd: float
    min_cacheable_tokens: int
    cache_block_tokens: int
    request_s: Factor
    output_token_s: Factor
    price_source: str
    input_token_s: Factor | None = None

    @property
    def label(self) -> str:
        """Short text for tables."""
        return f"{self.name} (API)"

    @property
    def rule(self) -> CacheRule:
        """The prefix-cache rule of the provider, which caches prompts; chunking is its own business."""
        return CacheRule(block_tokens=self.cache_block_tokens, chunk_tokens=_CHUNK_TOKENS, keeps_output=False)


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    text = (files("costmodel") / "data" / "apis.toml").read_text(encoding="utf-8")
    found: dict[str, Any] = tomllib.loads(text)["apis"]
    return found


def api_names() -> list[str]:
    """Names of the bundled API models."""
    return sorted(_table())


def api(name: str) -> Api:
    """The bundled API model of that name; raises `InputError` with the nearest name."""
    if name not in _table():
        raise unknown_name("api", name, api_names())
    raw = _table()[name]
    usd = {k: v / 1e6 for k, v in raw["usd_per_mtok"].items()}
    return Api(
        name=name,
        input_usd=usd["input"],
        cached_usd=usd["cached"],
        cache_write_usd=usd.get("cache_write", usd["input"]),
        output_usd=usd["output"],
        min_cacheable_tokens=raw["min_cacheable_tokens"],
        cache_block_tokens=raw["cache_block_tokens"],
        request_s=Factor(**raw["request_s"]),
        output_token_s=Factor(**raw["output_token_s"]),
        price_source=raw["price_source"],
    )
