"""What a vLLM engine says of itself: the facts `plan_request` needs, and counters of one engine in this process."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from costmodel.request import CacheRule


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """Limits and rules of a running engine.

    Parameters
    ----------
    version, model : str
    block_tokens : int
        Granularity of a prefix-cache hit.
    kv_blocks : int
        Cache blocks in memory.
    chunk_tokens : int
        Token budget of one engine step.
    max_model_tokens : int
        Longest prompt and output together.
    prefix_caching, state_aligned : bool
        Whether prefixes are reused, and whether the model has a recurrent state that must be saved for it.
    """

    version: str
    model: str
    block_tokens: int
    kv_blocks: int
    chunk_tokens: int
    max_model_tokens: int
    prefix_caching: bool
    state_aligned: bool

    def cache_rule(self) -> CacheRule:
        """The rule by which `costmodel.request.plan_request` predicts this engine's passes."""
        return CacheRule(
            block_tokens=self.block_tokens, chunk_tokens=self.chunk_tokens, state_aligned=self.state_aligned
        )


def facts_of(version: str, config: Any) -> EngineFacts:
    """Facts of a vLLM engine from its effective `VllmConfig`."""
    cache, model, scheduler = config.cache_config, config.model_config, config.scheduler_config
    return EngineFacts(
        version=version,
        model=str(model.model),
        block_tokens=int(cache.block_size),
        kv_blocks=int(cache.num_gpu_blocks or 0),
        chunk_tokens=int(scheduler.max_num_batched_tokens),
        max_model_tokens=int(model.max_model_len),
        prefix_caching=bool(cache.enable_prefix_caching),
        state_aligned=bool(model.is_hybrid),
    )


@dataclass(slots=True)
class Totals:
    """Counters of an engine since it started; FLOPs and bytes are the engine's own estimates, of one device."""

    engine_steps: int = 0
    prefill_passes: int = 0
    decode_passes: int = 0
    computed_prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_cache_queries_tokens: int = 0
    prefix_cache_hits_tokens: int = 0
    flops: int = 0
    read_bytes: int = 0
    write_bytes: int = 0


class StepCounter:
    """A vLLM stat logger that adds up what every engine step did.

    vLLM keeps its own counters in one registry per process, where a second engine replaces those of the first; so each
    engine gets a counter of its own.
    """

    def __init__(self) -> None:
        self.totals = Totals()

    def since(self, mark: dict[str, float]) -> dict[str, float]:
        """What the counters grew by since `mark`, an earlier `snapshot`."""
        return {key: value - mark.get(key, 0.0) for key, value in self.snapshot().items()}

    def snapshot(self) -> dict[str, float]:
        """The counters as they stand."""
        return {key: float(value) for key, value in asdict(self.totals).items()}

    def record(self, scheduler_stats: Any, iteration_stats: Any, **_: Any) -> None:
        """One engine step, as vLLM reports it."""
        if scheduler_stats is None:
            return
        totals, step, cost = self.totals, scheduler_stats.iteration_details, scheduler_stats.perf_stats
        totals.prefix_cache_queries_tokens += scheduler_stats.prefix_cache_stats.queries
        totals.prefix_cache_hits_tokens += scheduler_stats.prefix_cache_stats.hits
        if iteration_stats is not None:
            totals.generation_tokens += iteration_stats.num_generation_tokens
        if step is None or not step.num_ctx_tokens + step.num_generation_tokens:
            return  # an empty step, as while a grammar is compiled: vLLM charges the weights' bytes for it all the same
        totals.engine_steps += 1
        totals.prefill_passes += step.num_ctx_requests
        totals.decode_passes += step.num_generation_requests
        totals.computed_prompt_tokens += step.num_ctx_tokens
        if cost is not None:
            totals.flops += cost.num_flops_per_gpu
            totals.read_bytes += cost.num_read_bytes_per_gpu
            totals.write_bytes += cost.num_write_bytes_per_gpu

    def log_engine_initialized(self) -> None:
        """Nothing to say."""

    def log(self) -> None:
        """Nothing to say."""

    def record_sleep_state(self, *_: Any, **__: Any) -> None:
        """Nothing to count."""

    def record_admission_rejection(self, reason: str) -> None:
        """Nothing to count."""
