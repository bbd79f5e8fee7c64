"""A scenario: everything one question needs, from TOML or built in Python, with strict keys.

Every key carries its unit and meaning; `scenario_keys` lists them. Building the objects behind a scenario (deployments,
tasks, acceptance law) is `simulator.case`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from costmodel.strategies import STRATEGY_NAMES
from simulator.uncertain import Band, Uncertain

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
Tokens = Annotated[int, Field(ge=0, le=100_000_000)]
Positive = Annotated[float, Field(gt=0, le=1e18)]
NotNegative = Annotated[float, Field(ge=0, le=1e18)]
Share = Annotated[float, Field(ge=0, le=1)]
OpenShare = Annotated[float, Field(gt=0, lt=1)]
Utilisation = Annotated[float, Field(gt=0, le=1)]
Agents = Annotated[int, Field(ge=1, le=4096)]
Replicas = Annotated[int, Field(ge=1, le=1024)]
Counted = Annotated[int, Field(ge=1, le=100_000)]
Rate = Annotated[float, Field(ge=1e-6, le=1e4)]
Window = Annotated[int, Field(ge=1, le=64)]
Seeds = Annotated[int, Field(ge=1, le=1000)]
Samples = Annotated[int, Field(ge=16, le=4096)]
StrategyName = Literal["strong_only", "weak_only", "step_verification", "spec_agent"]


def _key(unit: str, meaning: str, default: Any) -> Any:
    """A key with its unit, meaning and default."""
    return field(default=default, metadata={"unit": unit, "meaning": meaning})


def _need(unit: str, meaning: str) -> Any:
    """A key that has no default."""
    return field(metadata={"unit": unit, "meaning": meaning})


def _make(unit: str, meaning: str, factory: Any) -> Any:
    """A key whose default is a new value each time."""
    return field(default_factory=factory, metadata={"unit": unit, "meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Overrides of an API's list prices, US dollars per million tokens."""

    __pydantic_config__ = _STRICT

    input: NotNegative | None = _key("USD/Mtok", "uncached input; unset: the API's list price", None)
    cached: NotNegative | None = _key("USD/Mtok", "cached input; unset: the API's list price", None)
    cache_write: NotNegative | None = _key("USD/Mtok", "newly cached input; unset: the list price", None)
    output: NotNegative | None = _key("USD/Mtok", "output; unset: the API's list price", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSide:
    """One of the two models: on hardware of one's own, or behind an API."""

    __pydantic_config__ = _STRICT

    model: Text | None = _key("", "model name or path of a config.json", None)
    hardware: Text | None = _key("", "device name or path of a device TOML", None)
    n_devices: Count = _key("devices", "devices per replica, tensor parallel", 1)
    weight_dtype: Text | None = _key("", "storage of weights; unset: what the checkpoint says", None)
    kv_dtype: Text = _key("", "storage of the KV cache", "bf16")
    engine: Text = _key("", "engine generation", "vllm-v1")
    replicas: Replicas = _key("replicas", "identical deployments, least loaded first", 1)
    max_seqs: Count | None = _key("sequences", "running sequences; unset: the engine's default", None)
    chunk_tokens: Count | None = _key("tokens", "token budget of a step; unset: the engine's default", None)
    thinking: bool = _key("", "whether the model thinks before a step", True)
    prompt_tokens: Count | None = _key("tokens", "first prompt of this role; unset: the trace's", None)
    usd_per_h: NotNegative | None = _key("USD/h", "price of one device; unset: the device file's", None)
    api: Text | None = _key("", "provider/model of a priced API, instead of model and hardware", None)
    prices: Prices | None = _key("", "overrides of the API's list prices", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSection:
    """What the agent does: a recorded trace or a law."""

    __pydantic_config__ = _STRICT

    trace: Text | None = _key("", "bundled workload or a trace file", None)
    law: Text | None = _key("", "bundled law to draw trajectories from", None)
    format: Text | None = _key("", "trace format; unset: found from the content", None)
    n: Counted | None = _key("trajectories", "trajectories to use or to draw; unset: all, or 100 of a law", None)
    seed: Tokens = _key("", "seed of a law's draw", 0)
    steps: Positive | None = _key("steps", "mean steps per task (laws only)", None)
    write_share: Share | None = _key("1", "share of steps that write (laws only)", None)
    reply_share: Share | None = _key("1", "share of steps that reply to the user (laws only)", None)
    output_tokens: Positive | None = _key("tokens", "mean output per step; rescales every step", None)
    observation_tokens: Positive | None = _key("tokens", "mean observation per step; rescales", None)
    context_tokens: Positive | None = _key("tokens", "mean prompt per step; rescales", None)
    thinking_tokens: Band | None = _key("tokens", "thinking per step of a model that thinks; unset: the trace's", None)
    verbosity: Band | None = _key(
        "1", "weak decoded / strong decoded tokens; unset: same visible tokens, own thinking", None
    )
    shared_prefix_tokens: Tokens = _key("tokens", "leading tokens every task finds cached", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The draft-and-review protocol."""

    __pydantic_config__ = _STRICT

    window: Window = _key("steps", "longest drafted segment of spec_agent", 4)
    acceptance: Band | None = _key("1", "mean probability that a reviewed step is kept; unset: the prior", None)
    acceptance_by_position: Annotated[tuple[OpenShare, ...], Field(min_length=1, max_length=64)] | None = _key(
        "1", "acceptance by offset in the segment, last one for all beyond", None
    )
    verdict_tokens: Band = _key(
        "tokens",
        "decoded tokens of a verdict; nothing published, 5 to 60 assumed",
        Uncertain(value=10, low=5, high=60, source="verdict length is not published"),
    )
    instruction_tokens: Tokens = _key("tokens", "review instruction behind the segment", 60)
    repair_mode: Literal["fresh", "continue"] = _key(
        "", "repair on the committed context, or straight after the verdict", "fresh"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Tool times."""

    __pydantic_config__ = _STRICT

    latency_s: NotNegative | None = _key("s", "mean tool time per step with tools; rescales the trace's", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What tools do: names or globs to read, pure, write, reply or unknown; unknown is held."""

    __pydantic_config__ = _STRICT

    map: dict[str, str] = _make("", "tool name or glob -> effect", dict)
    mcp_tools: Text | None = _key("", "an MCP tools/list export", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSection:
    """The link between the agent and the strong model."""

    __pydantic_config__ = _STRICT

    rtt_s: Band = _need("s", "round-trip time of a request to the strong model")
    bytes_per_s: Positive = _key("B/s", "bandwidth; a token is 4 bytes of text", 12.5e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How many agents run at once."""

    __pydantic_config__ = _STRICT

    concurrency: Agents | None = _key("agents", "closed loop of this many agents; unset with no rate: 1", None)
    arrival_rate_per_s: Rate | None = _key("1/s", "Poisson arrivals of trajectories", None)
    n_trajectories: Counted | None = _key("trajectories", "simulated per seed; unset: 4 per agent, at least 60", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Per-step hazards behind success (closed form of a clean/tainted chain)."""

    __pydantic_config__ = _STRICT

    weak_hazard: Band = _key(
        "1",
        "probability that a weak step is wrong",
        Uncertain(value=0.10, low=0.04, high=0.19, source="AgentProcessBench tau2 labels, weak policies"),
    )
    strong_hazard: Band = _key(
        "1",
        "probability that a strong step is wrong",
        Uncertain(value=0.03, low=0.015, high=0.09, source="AgentProcessBench tau2 labels, best policy"),
    )
    detection: Band = _key(
        "1",
        "probability that a review rejects a wrong step",
        Uncertain(value=0.55, low=0.4, high=0.65, source="AgentProcessBench judges on tau2"),
    )
    false_reject: Band = _key(
        "1",
        "probability that a review rejects a valid step",
        Uncertain(value=0.04, low=0.02, high=0.11, source="AgentProcessBench judges on tau2"),
    )
    recovery: Band = _key(
        "1",
        "probability per step that an earlier error is mended",
        Uncertain(value=0.25, low=0.1, high=0.5, source="no published figure; spans tau2 success at these hazards"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a plan minimises and how money is counted."""

    __pydantic_config__ = _STRICT

    minimise: Literal["time", "traffic", "flops", "energy", "money"] = _key(
        "", "objective of the recommendation", "time"
    )
    success_drop_max: Share = _key("1", "largest drop in success against strong-only that is acceptable", 0.02)
    money: Literal["dedicated", "shared"] = _key(
        "", "reserved devices for the wall time, or the busy share", "dedicated"
    )
    target_utilisation: Utilisation = _key("1", "busy share a shared fleet is sized for", 0.6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Seeds and limits of sampling and simulation."""

    __pydantic_config__ = _STRICT

    seed: Tokens = _key("", "seed of every random stream", 0)
    seeds: Seeds = _key("runs", "independent simulated runs", 5)
    calibration: Text | None = _key("", "calibration file with efficiency factors; unset: the bundled fit", None)
    horizon_s: Positive | None = _key("s", "simulated time limit; unset: until all trajectories end", None)
    samples: Samples = _key("samples", "quasi-Monte-Carlo points behind intervals", 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything one question needs."""

    __pydantic_config__ = _STRICT

    title: Text = _key("", "heading of tables and reports", "untitled scenario")
    strategies: tuple[StrategyName, ...] = _key(
        "", "strategies to compare; strong_only is always the baseline", STRATEGY_NAMES
    )
    weak: ModelSide = _need("", "the drafting model")
    strong: ModelSide = _need("", "the reviewing model")
    workload: WorkloadSection = _need("", "what the agent does")
    protocol: Protocol = _key("", "draft and review", Protocol())
    tools: Tools = _key("", "tool times", Tools())
    effects: Effects = _key("", "what tools do", Effects())
    link: LinkSection | None = _key("", "link before the strong model", None)
    load: Load = _key("", "how many agents at once", Load())
    quality: Quality = _key("", "per-step hazards", Quality())
    objective: Objective = _key("", "what to minimise", Objective())
    run: Run = _key("", "seeds and limits", Run())

    def with_(self, **changes: Any) -> Scenario:
        """A copy with keys changed: parameter names (`concurrency=32`) or dotted keys (`**{"link.rtt_s": 0.1}`)."""
        from simulator.scenario_file import from_document, set_key, to_document

        document = to_document(self)
        for key, value in changes.items():
            set_key(document, key, value)
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
