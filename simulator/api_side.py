"""The API of a scenario's side: bundled facts, list prices from a table, overrides, latency of one's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from costmodel.api import Api, api, api_names
from hwprofiles.efficiency import Factor
from hwprofiles.errors import InputError
from simulator.scenario import ModelSide
from simulator.scenario_world import ApiLatency
from simulator.uncertain import Uncertain

_PRICES = ("input", "cached", "cache_write", "output")
_LATEST = datetime(9998, 1, 1, 12, tzinfo=UTC)
"""Prices are looked up as of then: the last of those that the table dates, at noon where they change with the hour."""

_MIN_CACHEABLE = 1024
"""Shortest prompt that an API outside the bundled table caches (assumed: what the bundled providers state)."""


def api_of(side: ModelSide) -> Api:
    """The API that a side names.

    Raises
    ------
    InputError
        Unknown name, or one that is not bundled and lacks latency or prices of its own.
    ModuleNotFoundError
        `prices_from = "genai-prices"` and the package is not installed.
    """
    assert side.api is not None
    found = api(side.api) if side.api in api_names() else _unlisted(side)
    if side.prices_from == "genai-prices":
        usd, source = genai_prices(side.api)
        listed: dict[str, Any] = {f"{k}_usd": v / 1e6 for k, v in usd.items()}
        found = replace(found, **listed, price_source=source)
    if side.prices is not None:
        own: dict[str, Any] = {f"{k}_usd": getattr(side.prices, k) for k in _PRICES}
        found = replace(found, **{k: v / 1e6 for k, v in own.items() if v is not None})
    if side.latency is not None:
        found = replace(found, **_latency(side.latency))
    return found


def _latency(own: ApiLatency) -> dict[str, Any]:
    return {
        "request_s": _factor(own.request_s),
        "output_token_s": _factor(own.output_token_s),
        "input_token_s": None if own.input_token_s is None else _factor(own.input_token_s),
    }


def _factor(band: Uncertain) -> Factor:
    return Factor(value=band.value, low=band.low, high=band.high, tier=band.tier, source=band.source)


def _unlisted(side: ModelSide) -> Api:
    """An API that the bundled table lacks: everything must come from the scenario."""
    assert side.api is not None
    complete = side.prices is not None and None not in (side.prices.input, side.prices.output)
    if side.latency is None or not (complete or side.prices_from == "genai-prices"):
        try:
            return api(side.api)
        except InputError as error:
            remedy = 'or give it latency, and prices or prices_from = "genai-prices"'
            error.args = (f"{error}; {remedy}",)
            raise
    input_usd = output_usd = cached_usd = write_usd = 0.0
    if side.prices is not None and complete:
        p = side.prices
        input_usd, output_usd = (p.input or 0.0) / 1e6, (p.output or 0.0) / 1e6
        cached_usd = write_usd = input_usd
    latency = _latency(side.latency)
    return Api(
        name=side.api,
        input_usd=input_usd,
        cached_usd=cached_usd,
        cache_write_usd=write_usd,
        output_usd=output_usd,
        min_cacheable_tokens=_MIN_CACHEABLE,
        cache_block_tokens=1,
        price_source="scenario",
        **latency,
    )


def genai_prices(name: str) -> tuple[dict[str, float], str]:
    """List prices of `provider/model` in US dollars per million tokens, and their source, from the package's own table.

    Nothing is fetched. Of prices by context length the first tier counts; of standard and batch prices the standard.

    Raises
    ------
    InputError
        The table has no such model, or no token prices for it.
    ModuleNotFoundError
        The package (extra `prices`) is not installed.
    """
    try:
        import genai_prices as table
    except ModuleNotFoundError:
        text = 'prices_from = "genai-prices" needs the extra "prices": pip install "specroof[prices]"'
        raise ModuleNotFoundError(text, name="genai_prices") from None
    from importlib.metadata import version

    provider, mark, model = name.partition("/")
    if not mark:
        raise InputError(f"api {name!r}: expected provider/model")
    try:
        nothing = table.Usage(input_tokens=0, output_tokens=0)
        found = table.calc_price(nothing, model, provider_id=provider, genai_request_timestamp=_LATEST).model_price
    except LookupError as error:
        raise InputError(f"api {name!r} is not in genai-prices {version('genai-prices')}: {error}") from None
    usd_in, usd_out = _per_mtok(found.input_mtok), _per_mtok(found.output_mtok)
    if usd_in is None or usd_out is None:
        raise InputError(f"api {name!r}: genai-prices {version('genai-prices')} has no price per token for it")
    read, write = _per_mtok(found.cache_read_mtok), _per_mtok(found.cache_write_mtok)
    usd = {
        "input": usd_in,
        "output": usd_out,
        "cached": usd_in if read is None else read,
        "cache_write": usd_in if write is None else write,
    }
    return usd, f"genai-prices {version('genai-prices')}, its offline table, latest price of {provider}/{model}"


def _per_mtok(price: Decimal | Any | None) -> float | None:
    if price is None:
        return None
    return float(getattr(price, "base", price))
