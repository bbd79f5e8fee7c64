"""Sections of a scenario about everything around the models: tools, users, the link, API limits, load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from simulator.scenario_keywords import (
    STRICT,
    Agents,
    Counted,
    NotNegative,
    Positive,
    Rate,
    Share,
    Text,
    key,
    make,
    need,
)
from simulator.uncertain import Band

LawName = Literal["trace", "constant", "lognormal", "pareto", "empirical"]
Sigma = Annotated[float, Field(gt=0, le=5)]
Shape = Annotated[float, Field(ge=0.1, le=20)]
Spread = Annotated[float, Field(gt=1, le=1e9)]
Retries = Annotated[int, Field(ge=0, le=100)]
Slots = Annotated[int, Field(ge=1, le=100_000)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Span = Annotated[float, Field(gt=0, le=1e9)]
Bandwidth = Annotated[float, Field(ge=1, le=1e18)]
Quota = Annotated[float, Field(ge=0.001, le=1e18)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolKeys:
    """How runs of tools go."""

    __pydantic_config__ = STRICT

    latency_s: NotNegative | None = key("s", "mean tool time per step with tools; rescales the trace's", None)
    law: LawName | None = key("", "law of a tool run's time; unset: trace, the time each step states", None)
    sigma: Sigma | None = key("1", "spread of the lognormal law, of ln(time)", None)
    shape: Shape | None = key("1", "tail exponent of the (bounded) Pareto law; 1 to 2 is heavy", None)
    spread: Spread | None = key("1", "longest over shortest time of the Pareto law", None)
    latency_file: Text | None = key(
        "", "empirical law: file of seconds, one a line; unset: the trace's tool times", None
    )
    failure: Share | None = key("1", "probability that an attempt fails; unset: 0", None)
    failure_s: Seconds | None = key("s", "time until it fails; unset: as long as an answer", None)
    hang: Share | None = key("1", "probability that an attempt never ends by itself; unset: 0", None)
    timeout_s: Span | None = key("s", "an attempt that takes longer has failed; unset: none", None)
    retries: Retries | None = key(
        "attempts", "attempts after a failed one; then the agent gets the error; unset: 0", None
    )
    backoff_s: Seconds | None = key("s", "pause before the first retry, doubled for each further one; unset: 0", None)
    concurrency: Slots | None = key("runs", "runs at once over all agents, others wait (simulated); unset: any", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools(ToolKeys):
    """Tool times, for all tools and apart by effect or name."""

    by_effect: dict[Literal["read", "pure", "write", "reply", "unknown"], ToolKeys] = make(
        "", "the keys of [tools] for tools of one effect, such as [tools.by_effect.write]", dict
    )
    by_tool: dict[str, ToolKeys] = make("", "the same for a tool name or glob; it goes before the effect", dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """The user's think time before the step that follows a reply; it is in no agent time."""

    __pydantic_config__ = STRICT

    law: LawName = need("", "law of the gap; trace: each step's own")
    gap_s: Seconds | None = key("s", "mean gap after a reply; unset: the trace's own gaps", None)
    sigma: Sigma | None = key("1", "spread of the lognormal law", None)
    shape: Shape | None = key("1", "tail exponent of the Pareto law", None)
    spread: Spread | None = key("1", "longest over shortest gap of the Pareto law", None)
    gap_file: Text | None = key("", "empirical law: file of seconds, one a line; unset: the trace's gaps", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSection:
    """The link between the agent and the strong model."""

    __pydantic_config__ = STRICT

    rtt_s: Band = need("s", "round-trip time of a request to the strong model")
    bytes_per_s: Bandwidth = key("B/s", "bandwidth; a token is 4 bytes of text", 12.5e6)
    before: Literal["strong", "weak", "both"] | None = key("", "the model it stands before; unset: strong", None)
    jitter_s: Seconds | None = key("s", "mean of what a round trip takes beside rtt_s; unset: 0", None)
    jitter_law: Literal["lognormal", "pareto"] | None = key("", "its law", None)
    jitter_sigma: Sigma | None = key("1", "spread of the lognormal law", None)
    jitter_shape: Shape | None = key("1", "tail exponent of the Pareto law", None)
    jitter_spread: Spread | None = key("1", "longest over shortest delay of the Pareto law", None)
    outage_every_s: Span | None = key("s", "mean time between outages, exponential (simulated)", None)
    outage_s: Span | None = key("s", "mean length of an outage, exponential", None)
    timeout_s: Span | None = key(
        "s", "a request waits so long in an outage, then it is sent again; unset: to its end", None
    )
    retries: Retries | None = key("attempts", "times it is sent again before the trajectory fails; unset: 0", None)
    backoff_s: Seconds | None = key("s", "pause before the first of them, doubled for each further one; unset: 0", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLatency:
    """Latency of an API, for the bundled one: request_s + input_token_s * new input + output_token_s * output."""

    __pydantic_config__ = STRICT

    request_s: Band = need("s", "fixed part of a call")
    output_token_s: Band = need("s/token", "per output token")
    input_token_s: Band | None = key("s/token", "per input token that is not cached; unset: 0", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Token buckets of a priced API, each filled at its rate and holding one minute's worth (simulated)."""

    __pydantic_config__ = STRICT

    requests_per_min: Quota | None = key("1/min", "requests; unset: any", None)
    tokens_per_min: Quota | None = key("tokens/min", "prompt + output tokens; unset: any", None)
    retries: Retries | None = key(
        "attempts",
        "refused requests are sent again so often, then the trajectory fails; unset: they wait their turn",
        None,
    )
    backoff_s: Seconds | None = key("s", "least pause before the first of them, doubled each time; unset: 0", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How trajectories come in."""

    __pydantic_config__ = STRICT

    concurrency: Agents | None = key("agents", "closed loop of this many agents; unset with no rate: 1", None)
    arrival_rate_per_s: Rate | None = key("1/s", "Poisson arrivals of trajectories", None)
    n_trajectories: Counted | None = key("trajectories", "simulated per seed; unset: 4 per agent, at least 60", None)
    arrivals: Text | None = key("", "recorded arrivals: a Mooncake JSON Lines or Azure CSV file", None)
    arrivals_speed: Positive | None = key("1", "recorded gaps are divided by this; unset: 1", None)
    sessions: bool | None = key("", "recorded arrivals of one session wait for its last one to end; unset: false", None)
