"""The OpenAI-compatible front of a fake server: completions, chat, models, metrics and version, on a real clock."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from hwprofiles.errors import InputError
from validate.serve_fake import FILLER, FakeService, Live, answer_tokens, token_ids

MAX_BODY_BYTES = 16_000_000
VERSION = "0.0.0+specroof.fake"


class Pacer:
    """Lets a service's virtual clock follow the real one, `speed` virtual seconds a second.

    Parameters
    ----------
    now_s : callable
        Real seconds, from any start.
    """

    def __init__(self, service: FakeService, speed: float = 1.0, now_s: Callable[[], float] = time.monotonic) -> None:
        self.service, self.speed, self._now_s = service, speed, now_s
        self._start_s = now_s()
        self._wake = asyncio.Event()

    def submit(self, prompt: list[int], output_tokens: int, heard: Callable[[int], object]) -> Live:
        """Hand a request in at the present time."""
        self.service.advance((self._now_s() - self._start_s) * self.speed)
        live = self.service.submit(prompt, output_tokens, heard)
        self._wake.set()
        return live

    def cancel(self, live: Live) -> None:
        """The client has gone away."""
        self.service.cancel(live)
        self._wake.set()

    async def run(self) -> None:
        """Play events as they fall due, until cancelled."""
        env = self.service.env
        while True:
            due_s = env.peek()
            wait_s = self._start_s + due_s / self.speed - self._now_s()
            if wait_s <= 0:
                env.step()
                await asyncio.sleep(0)
                continue
            self._wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), None if due_s == float("inf") else wait_s)


def application(service: FakeService, model: str, speed: float = 1.0) -> Starlette:
    """The server as an ASGI application; it answers under the name `model`."""
    pacer = Pacer(service, speed)
    front = _Front(pacer, model)

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        clock = asyncio.create_task(pacer.run())
        try:
            yield
        finally:
            clock.cancel()

    routes = [
        Route("/v1/models", front.models),
        Route("/v1/completions", front.completions, methods=["POST"]),
        Route("/v1/chat/completions", front.chat, methods=["POST"]),
        Route("/metrics", front.metrics),
        Route("/version", front.version),
        Route("/health", front.health),
    ]
    return Starlette(routes=routes, lifespan=running)


class _Front:
    def __init__(self, pacer: Pacer, model: str) -> None:
        self.pacer, self.service, self.model = pacer, pacer.service, model
        self.n = 0

    async def models(self, _: Request) -> Response:
        entry = {"id": self.model, "object": "model", "created": 0, "owned_by": "specroof"}
        return JSONResponse({"object": "list", "data": [entry | {"max_model_len": self.service.max_model_tokens}]})

    async def version(self, _: Request) -> Response:
        return JSONResponse({"version": VERSION})

    async def health(self, _: Request) -> Response:
        return Response()

    async def metrics(self, _: Request) -> Response:
        return PlainTextResponse(metrics_page(self.service, self.model))

    async def completions(self, request: Request) -> Response:
        return await self._answer(request, chat=False)

    async def chat(self, request: Request) -> Response:
        return await self._answer(request, chat=True)

    async def _answer(self, request: Request, *, chat: bool) -> Response:
        try:
            body = _read(await request.body())
            if body.get("model", self.model) != self.model:
                return _error(404, f"the model {body['model']!r:.80} does not exist; this server has {self.model!r}")
            prompt = _chat_prompt(body) if chat else _prompt(body)
            room = max(1, self.service.max_model_tokens - len(prompt))
            n, cut = answer_tokens(prompt, body, room)
            news: asyncio.Queue[int] = asyncio.Queue()
            live = self.pacer.submit(prompt, n, news.put_nowait)
        except InputError as error:
            return _error(400, str(error))
        self.n += 1
        said = _Said(f"cmpl-{self.n}", self.model, chat, "length" if cut else "stop")
        pieces = self._pieces(live, news)
        if not body.get("stream"):
            async for _ in pieces:
                pass
            return JSONResponse(said.whole(live))
        with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        return StreamingResponse(said.stream(live, pieces, with_usage), media_type="text/event-stream")

    async def _pieces(self, live: Live, news: asyncio.Queue[int]) -> AsyncIterator[int]:
        """Numbers of new tokens as they come; a reader that leaves gives the request up."""
        try:
            while live.result is None or not news.empty():
                n = await news.get()
                if n:
                    yield n
        finally:
            if live.result is None:
                self.pacer.cancel(live)


class _Said:
    """The documents of one answer."""

    def __init__(self, name: str, model: str, chat: bool, finish: str) -> None:
        self.name, self.model, self.is_chat, self.finish = name, model, chat, finish

    def whole(self, live: Live) -> dict[str, Any]:
        text = FILLER * live.output_tokens
        choice = {"message": {"role": "assistant", "content": text}} if self.is_chat else {"text": text}
        kind = "chat.completion" if self.is_chat else "text_completion"
        full = {"index": 0, "logprobs": None, "finish_reason": self.finish, **choice}
        return {**self._head(kind), "choices": [full], "usage": usage(live)}

    async def stream(self, live: Live, pieces: AsyncIterator[int], with_usage: bool) -> AsyncIterator[str]:
        kind = "chat.completion.chunk" if self.is_chat else "text_completion"
        left = live.output_tokens
        async for n in pieces:
            left -= n
            finish = None if left > 0 else self.finish
            choice = {"delta": {"content": FILLER * n}} if self.is_chat else {"text": FILLER * n}
            full = {"index": 0, "logprobs": None, "finish_reason": finish, **choice}
            yield _event({**self._head(kind), "choices": [full]})
        if with_usage:
            yield _event({**self._head(kind), "choices": [], "usage": usage(live)})
        yield "data: [DONE]\n\n"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.name, "object": kind, "created": 0, "model": self.model}


def usage(live: Live) -> dict[str, Any]:
    """Token counts of an answered request."""
    cached = live.result.cached_tokens if live.result else 0
    return {
        "prompt_tokens": live.prompt_tokens,
        "completion_tokens": live.output_tokens,
        "total_tokens": live.prompt_tokens + live.output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def metrics_page(service: FakeService, model: str) -> str:
    """Counters in Prometheus text under vLLM's names."""
    c, ledger, dep = service.counts, service.ledger, service.dep
    label = f'{{engine="0",model_name="{model}"}}'
    info = ",".join(
        f'{key}="{value}"'
        for key, value in {
            "block_size": service.block_tokens,
            "cache_dtype": dep.kv_dtype,
            "enable_prefix_caching": True,
            "engine": 0,
            "gpu_memory_utilization": dep.engine.memory_share,
            "num_gpu_blocks": ledger.total_blocks * ledger.page_tokens // service.block_tokens,
        }.items()
    )
    values: dict[str, float] = {
        "num_requests_running": service.engine.n_running,
        "num_requests_waiting": service.engine.n_waiting,
        "kv_cache_usage_perc": ledger.allocated_blocks / ledger.total_blocks,
        "prefix_cache_queries_total": c.queries_tokens,
        "prefix_cache_hits_total": c.hits_tokens,
        "prompt_tokens_total": c.prompt_tokens,
        "generation_tokens_total": c.generation_tokens,
        "request_success_total": c.finished,
        "num_preemptions_total": c.preemptions,
        "request_prefill_kv_computed_tokens_sum": c.queries_tokens - c.hits_tokens,
    }
    for name, total in (
        ("time_to_first_token_seconds", c.ttft_s),
        ("e2e_request_latency_seconds", c.e2e_s),
        ("request_queue_time_seconds", c.queue_s),
        ("request_prefill_time_seconds", c.prefill_s),
        ("request_decode_time_seconds", c.decode_s),
    ):
        values |= {f"{name}_sum": total, f"{name}_count": c.finished + c.cancelled}
    lines = [f"vllm:{name}{label} {float(value)!r}" for name, value in values.items()]
    return "\n".join([f"vllm:cache_config_info{{{info}}} 1.0", *lines, ""])


def _event(document: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(document)}\n\n"


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "BadRequestError", "code": status}}, status)


def _read(raw: bytes) -> dict[str, Any]:
    if len(raw) > MAX_BODY_BYTES:
        raise InputError(f"a body has at most {MAX_BODY_BYTES} bytes, got {len(raw)}")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise InputError("the body is no JSON") from None
    if not isinstance(body, dict):
        raise InputError("the body must be a JSON object")
    for key in ("max_tokens", "max_completion_tokens", "min_tokens"):
        value = body.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise InputError(f"{key} must be a whole number >= 0, got {value!r:.40}")
    return body


def _prompt(body: Mapping[str, Any]) -> list[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return token_ids(prompt)
    if isinstance(prompt, list) and all(isinstance(t, int) and not isinstance(t, bool) for t in prompt):
        return prompt
    raise InputError("prompt must be one text or one list of token ids")


def _chat_prompt(body: Mapping[str, Any]) -> list[int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise InputError("messages must be a list of objects")
    tools = body.get("tools")
    head = json.dumps(tools, sort_keys=True) if tools else ""
    lines = [f"<{m.get('role')}>{m.get('content') or ''}{json.dumps(m.get('tool_calls') or '')}\n" for m in messages]
    return token_ids(head + "".join(lines))
