"""Real vLLM in this process, without a server: exact counts of every request."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from hwprofiles.errors import InputError
from validate.actions import Clock
from validate.calls import parse_step, step_schema
from validate.chat import ToolSpec
from validate.engine import Answer, Ask, EngineError
from validate.engine_facts import EngineFacts, StepCounter, facts_of
from validate.rendering import ChatRenderer, common_prefix

# vLLM keeps state per process and thread (forward context, thread binding), so all its engines live on one thread here:
# requests of one process run one after another, and every counter's growth belongs to one request.
_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="vllm")

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in this process; else the executor starts others
    "TORCHDYNAMO_DISABLE": "1",  # a helper would be compiled for seconds on first use
    "OMP_NUM_THREADS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}

_ENGINE_ARGUMENTS: dict[str, Any] = {
    "enforce_eager": True,
    "distributed_executor_backend": "uni",
    "async_scheduling": False,  # else a pass is scheduled before the last one has shown the end of the output
    "block_size": 32,
    "enable_prefix_caching": True,
    "disable_log_stats": False,
    "enable_mfu_metrics": True,
    "enable_logging_iteration_details": True,
    "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
    "max_num_seqs": 8,
    "use_tqdm_on_load": False,
}


class VllmOffline:
    """One role's engine: a `vllm.LLM` in this process.

    Parameters
    ----------
    model : path of a model folder, or a name vLLM can load
    clock : Clock
        The run's clock.
    temperature : float
        Of steps and verdicts; 0 is greedy.
    seed : int
        Of sampling. The process has one random stream, seeded when an engine is opened, so the same requests in the
        same order get the same answers. (A seed per request fails on the CPU in vLLM 0.32 once a prefill is chunked.)
    longest_text : int
        Characters allowed in a string that a tool's schema leaves open, and in a reply (see `step_schema`).
    engine_arguments
        Arguments of `vllm.LLM` over the defaults above.

    Raises
    ------
    ModuleNotFoundError
        vLLM is not installed.
    InputError
        The model cannot be loaded as asked, or its chat template rewrites what was rendered before.
    """

    def __init__(
        self,
        model: str | Path,
        clock: Clock,
        *,
        temperature: float = 0.0,
        seed: int = 0,
        longest_text: int = 400,
        **engine_arguments: Any,
    ) -> None:
        self._clock, self._temperature, self._longest_text = clock, temperature, longest_text
        self._counter = StepCounter()
        self._mark = self._counter.snapshot()
        self._n_asked = 0
        self._computed: list[list[int]] = []
        self._llm: Any = _THREAD.submit(self._open, str(model), {"seed": seed} | engine_arguments).result()
        self._renderer = ChatRenderer(self._llm.get_tokenizer(), Path(model).name)

    @property
    def facts(self) -> EngineFacts:
        """Block size, cache blocks, token budget and version of the engine."""
        import vllm

        return facts_of(vllm.__version__, self._llm.llm_engine.vllm_config)

    async def ask(self, ask: Ask) -> Answer:
        """One request.

        `server` holds queue, prefill and decode seconds of the engine, its passes, FLOPs and bytes, and
        `shared_prefix_tokens`, the longest prefix of the prompt that an earlier request computed; while nothing was
        evicted `plan_request` with it as `reusable_tokens` gives the engine's counts.

        Raises
        ------
        EngineError
            The engine failed, or the prompt leaves no room for an answer.
        InputError
            The chat template, a tool's schema or a label cannot be used with this model.
        """
        tokens = self._renderer.prompt(ask)
        room = self.facts.max_model_tokens - len(tokens)
        if room < 1:
            raise EngineError(f"the prompt is {len(tokens)} tokens; {self.facts.model} holds {len(tokens) + room}")
        labels = self._renderer.label_tokens(ask.labels)
        parameters = self._parameters(ask.tools, labels, min(ask.max_tokens, room))
        return await asyncio.get_running_loop().run_in_executor(_THREAD, self._answer, ask, tokens, labels, parameters)

    def metrics(self) -> dict[str, float]:
        """What the engine's counters grew by since the last call (the first: since the engine was opened)."""
        grown = self._counter.since(self._mark)
        self._mark = self._counter.snapshot()
        return grown

    def restart(self) -> None:
        """Forget every cached prefix, as an engine that was started again would."""
        if not _THREAD.submit(self._llm.reset_prefix_cache).result():
            raise EngineError("vLLM did not reset its prefix cache")
        self._computed.clear()

    def close(self) -> None:
        """Free the engine's memory."""
        _THREAD.submit(self._llm.llm_engine.engine_core.shutdown).result()

    def _open(self, model: str, arguments: Mapping[str, Any]) -> Any:
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        if Path(model).is_dir():
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
        if os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] != "0":
            raise InputError("VLLM_ENABLE_V1_MULTIPROCESSING must be 0 or unset: the engine has to run in this process")
        try:
            from vllm import LLM

            llm = LLM(model=model, **(_ENGINE_ARGUMENTS | dict(arguments)))
        except ModuleNotFoundError:
            raise
        except Exception as error:  # vLLM, pydantic, safetensors and the operating system raise here as they like
            raise InputError(f"vLLM cannot load {model!r}: {_one_line(error)}") from error
        llm.llm_engine.logger_manager.stat_loggers.append(self._counter)
        return llm

    def _parameters(self, tools: Sequence[ToolSpec], labels: Mapping[int, str], max_tokens: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        if labels:  # one allowed token that ends the answer: no grammar, and no pass after the label
            ids = list(labels)
            return SamplingParams(
                temperature=self._temperature, max_tokens=max_tokens, allowed_token_ids=ids, stop_token_ids=ids
            )
        form = StructuredOutputsParams(json=step_schema(tools, self._longest_text)) if tools else None
        return SamplingParams(temperature=self._temperature, max_tokens=max_tokens, structured_outputs=form)

    def _answer(self, ask: Ask, tokens: list[int], labels: Mapping[int, str], parameters: Any) -> Answer:
        """Runs on the engines' thread."""
        self._n_asked += 1
        shared = max((common_prefix(tokens, known) for known in self._computed), default=0)
        before = self._counter.snapshot()
        sent_s, sent_ts = self._clock.now_s(), time.monotonic()
        try:
            (output,) = self._llm.generate([{"prompt_token_ids": tokens}], parameters, use_tqdm=False)
        except Exception as error:  # whatever the engine raises: nothing in the world has changed
            raise EngineError(f"vLLM failed: {_one_line(error)}") from error
        done_s = self._clock.now_s()
        (written,) = output.outputs
        if written.finish_reason not in ("stop", "length"):
            raise EngineError(f"vLLM ended the request with {written.finish_reason!r}")
        times = output.metrics
        self._computed.append([*tokens, *written.token_ids[:-1]])
        server = {
            "queued_s": times.scheduled_ts - times.queued_ts,
            "prefill_s": times.first_token_ts - times.scheduled_ts,
            "decode_s": times.last_token_ts - times.first_token_ts,
            "shared_prefix_tokens": float(shared),
            **self._counter.since(before),
        }
        answer = Answer(
            text=written.text,
            finish="length",
            prompt_tokens=len(tokens),
            cached_tokens=int(output.num_cached_tokens or 0),
            output_tokens=len(written.token_ids),
            sent_s=sent_s,
            first_token_s=sent_s + times.first_token_ts - sent_ts,
            done_s=done_s,
            server=server,
        )
        return answer if written.finish_reason == "length" else self._read(ask, answer, labels, written)

    def _read(self, ask: Ask, answer: Answer, labels: Mapping[int, str], written: Any) -> Answer:
        """The verdict or the step of an answer that came to its end; neither: it stays one that was cut.

        Without tools a step is plain text.
        """
        if labels:
            label = labels.get(written.token_ids[-1])
            return answer if label is None else replace(answer, text=label, finish="stop")
        if not ask.tools:
            return replace(answer, finish="stop")
        step = parse_step(written.text, (tool.name for tool in ask.tools), f"call_{self._n_asked}")
        if step is None:
            return answer
        finish: Literal["stop", "tool_calls"] = "tool_calls" if step.tool_uses else "stop"
        return replace(answer, text=step.reply, tool_uses=step.tool_uses, finish=finish)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
