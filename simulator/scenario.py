"""A scenario: everything one question needs, from TOML or built in Python, with strict keys.

Every key carries its unit and meaning; `scenario_keys` lists them. Building the objects behind a scenario (deployments,
tasks, acceptance law) is `simulator.case`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from costmodel.strategies import AFTER_READS
from simulator.scenario_goals import Objective, Quality, Run
from simulator.scenario_keywords import (
    STRICT,
    Count,
    Counted,
    Drafted,
    NotNegative,
    OpenShare,
    Positive,
    Replicas,
    Share,
    Text,
    Tokens,
    Utilisation,
    Window,
    key,
    make,
    need,
)
from simulator.scenario_world import ApiLatency, LinkSection, Load, RateLimits, Tools, Users
from simulator.uncertain import Band, Uncertain

StrategyName = Literal[
    "strong_only",
    "token_speculation",
    "weak_only",
    "task_router",
    "step_router",
    "step_speculation",
    "step_verification",
    "spec_agent",
    "spec_agent_pipelined",
    "spec_agent_adaptive",
]
USUAL_STRATEGIES = ("strong_only", "weak_only", "step_verification", "spec_agent")
"""What a scenario compares unless it says otherwise."""

Follows = Literal["start", "read", "pure", "write", "reply", "unknown"]
LeastWindow = Annotated[int, Field(ge=0, le=64)]


def after_reads() -> dict[str, float]:
    """The default of `protocol.router_shares`."""
    return {name: share for name, share in AFTER_READS.items() if share}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Overrides of an API's list prices, US dollars per million tokens."""

    __pydantic_config__ = STRICT

    input: NotNegative | None = key("USD/Mtok", "uncached input; unset: the API's list price", None)
    cached: NotNegative | None = key("USD/Mtok", "cached input; unset: the API's list price", None)
    cache_write: NotNegative | None = key("USD/Mtok", "newly cached input; unset: the list price", None)
    output: NotNegative | None = key("USD/Mtok", "output; unset: the API's list price", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDrafts:
    """Token-level speculation while decoding: what drafts, how many tokens, how many are kept."""

    __pydantic_config__ = STRICT

    method: Literal["mtp", "draft"] = need("", "the model's own prediction layer, or a draft model beside it")
    length: Drafted = need("tokens", "drafted tokens per pass")
    acceptance: Share = need("1", "chance that a drafted token is kept if all before it were")
    draft_model: Text | None = key("", "model name or path of a config.json (method draft)", None)
    draft_weight_dtype: Text | None = key("", "storage of its weights; unset: what its checkpoint says", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSide:
    """One of the two models: on hardware of one's own, or behind an API."""

    __pydantic_config__ = STRICT

    model: Text | None = key("", "model name or path of a config.json", None)
    hardware: Text | None = key("", "device name or path of a device TOML", None)
    n_devices: Count = key("devices", "devices per replica, tensor parallel", 1)
    expert_parallel: Count = key("ranks", "groups of devices that share the experts out whole; 1: split each", 1)
    weight_dtype: Text | None = key("", "storage of weights; unset: what the checkpoint says", None)
    kv_dtype: Text = key("", "storage of the KV cache", "bf16")
    engine: Text = key("", "engine generation", "vllm-v1")
    replicas: Replicas = key("replicas", "identical deployments", 1)
    router: Literal["least_loaded", "round_robin", "prefix_affinity"] | None = key(
        "", "which replica; unset: least_loaded; prefix_affinity: where most of the prompt is cached", None
    )
    route_per: Literal["trajectory", "request"] | None = key(
        "", "a replica for a whole trajectory or for each request; unset: trajectory", None
    )
    max_seqs: Count | None = key("sequences", "running sequences; unset: the engine's default", None)
    chunk_tokens: Count | None = key("tokens", "token budget of a step; unset: the engine's default", None)
    page_tokens: Count | None = key("tokens", "KV-cache page of prefix hits; unset: the engine's default", None)
    memory_share: Utilisation | None = key("1", "share of each device's memory; unset: the engine's default", None)
    share_devices_with: Literal["weak"] | None = key(
        "", "strong only: runs on the weak model's devices, iterations in turns; needs both memory shares", None
    )
    decode: TokenDrafts | None = key("", "token-level speculation: method, length, acceptance, draft_model", None)
    thinking: bool = key("", "whether the model thinks before a step", True)
    prompt_tokens: Count | None = key("tokens", "first prompt of this role; unset: the trace's", None)
    usd_per_h: NotNegative | None = key("USD/h", "price of one device; unset: the device file's", None)
    api: Text | None = key("", "provider/model of a priced API, instead of model and hardware", None)
    prices: Prices | None = key("", "overrides of the API's list prices", None)
    prices_from: Literal["bundled", "genai-prices"] | None = key("", "table of list prices; unset: bundled", None)
    latency: ApiLatency | None = key("", "the API's latency, such as `specroof latency` fits; unset: bundled", None)
    limits: RateLimits | None = key("", "the API's rate limits: requests_per_min, tokens_per_min, ...", None)
    cache_ttl_s: Positive | None = key("s", "the API forgets a prefix unused so long (simulated); unset: never", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSection:
    """What the agent does: a recorded trace or a law."""

    __pydantic_config__ = STRICT

    trace: Text | None = key("", "bundled workload or a trace file", None)
    law: Text | None = key("", "bundled law to draw trajectories from", None)
    format: Text | None = key("", "trace format; unset: found from the content", None)
    n: Counted | None = key("trajectories", "trajectories to use or to draw; unset: all, or 100 of a law", None)
    seed: Tokens = key("", "seed of a law's draw", 0)
    steps: Positive | None = key("steps", "mean steps per task (laws only)", None)
    write_share: Share | None = key("1", "share of steps that write (laws only)", None)
    reply_share: Share | None = key("1", "share of steps that reply to the user (laws only)", None)
    output_tokens: Positive | None = key("tokens", "mean output per step; rescales every step", None)
    observation_tokens: Positive | None = key("tokens", "mean observation per step; rescales", None)
    context_tokens: Positive | None = key("tokens", "mean prompt per step; rescales", None)
    thinking_tokens: Band | None = key("tokens", "thinking per step of a model that thinks; unset: the trace's", None)
    verbosity: Band | None = key(
        "1", "weak decoded / strong decoded tokens; unset: same visible tokens, own thinking", None
    )
    shared_prefix_tokens: Tokens = key("tokens", "leading tokens every task finds cached", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The draft-and-review protocol."""

    __pydantic_config__ = STRICT

    window: Window = key("steps", "longest drafted segment of the spec_agent family", 4)
    acceptance: Band | None = key("1", "mean probability that a reviewed step is kept; unset: the prior", None)
    acceptance_by_position: Annotated[tuple[OpenShare, ...], Field(min_length=1, max_length=64)] | None = key(
        "1", "acceptance by offset in the segment, last one for all beyond", None
    )
    verdict_tokens: Band = key(
        "tokens",
        "decoded tokens of a verdict; nothing published, 5 to 60 assumed",
        Uncertain(value=10, low=5, high=60, source="verdict length is not published"),
    )
    instruction_tokens: Tokens = key("tokens", "review instruction behind the segment", 60)
    repair_mode: Literal["fresh", "continue"] = key(
        "", "repair on the committed context, or straight after the verdict", "fresh"
    )
    match: Band | None = key(
        "1",
        "probability that step_speculation's draft makes literally the strong model's call; unset: 0.85 [0.70, 0.93]",
        None,
    )
    router_share: Share = key("1", "weak model's share of tasks under task_router, whatever the task", 0.5)
    router_most_steps: Count | None = key(
        "steps", "task_router gives it tasks of at most so many recorded steps instead; unset: by router_share", None
    )
    router_shares: dict[Follows, Share] = make(
        "1", "step_router: weak share by what the step follows (start, or the last effect); unnamed: 0", after_reads
    )
    adaptive_rule: Literal["rate", "counts"] = key(
        "", "spec_agent_adaptive: by committed steps per second, or by accepted and rejected steps alone", "rate"
    )
    adaptive_least_window: LeastWindow = key("steps", "smallest window of spec_agent_adaptive; 0: stop drafting", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What tools do: names or globs to read, pure, write, reply or unknown; unknown is held."""

    __pydantic_config__ = STRICT

    map: dict[str, str] = make("", "tool name or glob -> effect", dict)
    mcp_tools: Text | None = key("", "an MCP tools/list export", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything one question needs."""

    __pydantic_config__ = STRICT

    title: Text = key("", "heading of tables and reports", "untitled scenario")
    strategies: tuple[StrategyName, ...] = key(
        "", "strategies to compare; strong_only is always the baseline", USUAL_STRATEGIES
    )
    weak: ModelSide = need("", "the drafting model")
    strong: ModelSide = need("", "the reviewing model")
    workload: WorkloadSection = need("", "what the agent does")
    protocol: Protocol = key("", "draft and review", Protocol())
    tools: Tools = key("", "tool times", Tools())
    users: Users | None = key("", "user think time, apart from agent time", None)
    effects: Effects = key("", "what tools do", Effects())
    link: LinkSection | None = key("", "link before the strong model", None)
    load: Load = key("", "how many agents at once", Load())
    quality: Quality = key("", "per-step hazards", Quality())
    objective: Objective = key("", "what to minimise", Objective())
    run: Run = key("", "seeds and limits", Run())

    def with_(self, **changes: Any) -> Scenario:
        """A copy with keys changed: parameter names (`concurrency=32`) or dotted keys (`**{"link.rtt_s": 0.1}`)."""
        from simulator.scenario_file import from_document, set_key, to_document

        document = to_document(self)
        for name, value in changes.items():
            set_key(document, name, value)
        return from_document(document, "scenario")

    def to_toml(self) -> str:
        """The scenario as TOML, unset keys left out."""
        import tomli_w

        from simulator.scenario_file import to_document

        return tomli_w.dumps(to_document(self))


PARAMETERS: dict[str, str] = {
    "acceptance": "protocol.acceptance",
    "window": "protocol.window",
    "verdict_tokens": "protocol.verdict_tokens",
    "steps": "workload.steps",
    "output_tokens": "workload.output_tokens",
    "thinking_tokens": "workload.thinking_tokens",
    "observation_tokens": "workload.observation_tokens",
    "context_tokens": "workload.context_tokens",
    "verbosity": "workload.verbosity",
    "write_share": "workload.write_share",
    "reply_share": "workload.reply_share",
    "concurrency": "load.concurrency",
    "arrival_rate_per_s": "load.arrival_rate_per_s",
    "rtt_s": "link.rtt_s",
    "link_bytes_per_s": "link.bytes_per_s",
    "tool_latency_s": "tools.latency_s",
}
"""Short parameter names and the scenario keys they stand for."""
