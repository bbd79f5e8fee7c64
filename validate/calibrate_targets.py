"""Targets of a calibration: a fake service on its virtual clock, and any server behind a URL."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from hwprofiles.errors import InputError
from validate.calibrate_probe import ServerFacts, Timed
from validate.engine import EngineError
from validate.openai_server import get_page, one_line
from validate.serve_fake import FakeService
from validate.server_metrics import labels

_WORDS = (
    "time",
    "way",
    "year",
    "work",
    "life",
    "day",
    "part",
    "place",
    "case",
    "week",
    "point",
    "hand",
    "home",
    "room",
)
_GO_ON = "Write the numbers from 1 to 999, one per line, and nothing else."


class VirtualTarget:
    """A fake service in this process, whose times are measured with noise.

    Parameters
    ----------
    noise : float
        Standard deviation of the log of a time to the first token, and of the time from there on.
    """

    def __init__(self, service: FakeService, noise: float = 0.0, seed: int = 0) -> None:
        self.service, self.noise = service, noise
        self.rng = random.Random(seed)
        self.facts = ServerFacts(
            model=service.dep.model.name,
            version="fake",
            block_tokens=service.block_tokens,
            kv_blocks=service.ledger.total_blocks,
            max_model_tokens=service.max_model_tokens,
        )

    def now_s(self) -> float:
        """The virtual clock."""
        return float(self.service.env.now)

    async def together(self, prompts: Sequence[Sequence[int]], output_tokens: int) -> list[Timed]:
        """Send all at once and let the clock run until all are answered."""
        lives = [self.service.submit(prompt, output_tokens) for prompt in prompts]
        self.service.finish(lives)
        first, rest = (self.rng.lognormvariate(0.0, self.noise) if self.noise else 1.0 for _ in range(2))
        out = []
        for live in lives:
            assert live.result is not None
            start_s = live.sent_s + first * (live.token_s[0] - live.sent_s)
            pieces = tuple(start_s + rest * (t - live.token_s[0]) for t in live.token_s)
            found = live.result.cached_tokens
            out.append(
                Timed(
                    sent_s=live.sent_s,
                    piece_s=pieces,
                    prompt_tokens=live.prompt_tokens,
                    cached_tokens=found,
                    output_tokens=live.output_tokens,
                )
            )
        return out


class HttpTarget:
    """A server behind a URL: vLLM's completions over token ids, or, where those are refused, chat over words.

    Parameters
    ----------
    base_url : str
        With its `/v1`.
    model : str or None
        None: the first one that the server lists.
    tell_ids : bool
        Ask for the ids of generated tokens, which vLLM tells.
    """

    def __init__(
        self, base_url: str, model: str | None = None, timeout_s: float = 600.0, *, tell_ids: bool = False
    ) -> None:
        try:
            place = urlsplit(base_url)
        except ValueError as error:
            raise InputError(f"{base_url!r} is no URL of a server: {error}") from None
        if place.scheme not in ("http", "https") or not place.hostname:
            raise InputError(f"a server's URL must begin with http:// or https:// and name a host, got {base_url!r}")
        import openai

        self.url = base_url.rstrip("/")
        self.root = self.url.removesuffix("/v1")
        key = os.environ.get("OPENAI_API_KEY") or "none"
        self._client = openai.AsyncOpenAI(base_url=self.url, api_key=key, timeout=timeout_s, max_retries=1)
        self._takes_ids, self._tell_ids = True, tell_ids
        self.facts = self._ask_facts(model)

    def now_s(self) -> float:
        """The wall clock."""
        return time.perf_counter()

    def _ask_facts(self, model: str | None) -> ServerFacts:
        data = _json(get_page(f"{self.url}/models", 10.0)).get("data")
        listed = [e for e in data if isinstance(e, dict)] if isinstance(data, list) else []
        entry = next((e for e in listed if e.get("id") == model), listed[0] if listed else {})
        name = model or entry.get("id")
        if not isinstance(name, str):
            raise EngineError(f"{self.url} lists no model; is it running, and is it served under its /v1?")
        cache = labels(get_page(f"{self.root}/metrics", 10.0), "vllm:cache_config_info")
        longest = entry.get("max_model_len")
        return ServerFacts(
            model=name,
            version=server_version(self.url),
            block_tokens=_whole(cache.get("block_size")),
            kv_blocks=_whole(cache.get("num_gpu_blocks")),
            max_model_tokens=longest if isinstance(longest, int) else None,
        )

    async def together(self, prompts: Sequence[Sequence[int]], output_tokens: int) -> list[Timed]:
        """Send all at once; raises `EngineError` where the server fails."""
        import openai

        try:
            if self._takes_ids:
                try:
                    return await self._all(prompts, output_tokens)
                except (openai.BadRequestError, openai.NotFoundError, openai.UnprocessableEntityError):
                    self._takes_ids = False
            return await self._all(prompts, output_tokens)
        except (openai.OpenAIError, OSError, ValueError) as error:
            raise EngineError(f"{self.url}: {one_line(error)}") from error

    async def _all(self, prompts: Sequence[Sequence[int]], output_tokens: int) -> list[Timed]:
        return list(await asyncio.gather(*(self._one(prompt, output_tokens) for prompt in prompts)))

    async def _one(self, prompt: Sequence[int], output_tokens: int) -> Timed:
        common: dict[str, Any] = {
            "model": self.facts.model,
            "stream": True,
            "temperature": 0.0,
            "stream_options": {"include_usage": True},
        }
        sent_s = self.now_s()
        if self._takes_ids:
            more = {"ignore_eos": True, "min_tokens": output_tokens}
            more |= {"return_token_ids": True} if self._tell_ids else {}
            call = self._client.completions.with_streaming_response.create(
                **common, prompt=list(prompt), max_tokens=output_tokens, extra_body=more
            )
        else:
            words = " ".join(_WORDS[t % len(_WORDS)] for t in prompt)
            messages: Any = [{"role": "user", "content": f"{words}\n{_GO_ON}"}]
            call = self._client.chat.completions.with_streaming_response.create(
                **common, messages=messages, max_tokens=output_tokens
            )
        async with call as answer:
            try:
                return await self._read(answer, sent_s, len(prompt))
            except (AttributeError, LookupError, TypeError) as error:
                raise ValueError(f"an answer that is not laid out as one ({one_line(error)})") from error

    async def _read(self, answer: Any, sent_s: float, n_prompt: int) -> Timed:
        """Note when pieces come; they are only parsed afterwards, so that reading costs next to nothing."""
        rest, lines = b"", []
        async for chunk in answer.iter_bytes():
            now_s = self.now_s()
            *whole, rest = (rest + chunk).split(b"\n")
            lines += [(now_s, line) for line in whole if line.startswith(b"data:")]
        pieces: list[float] = []
        ids: list[int] = []
        usage: Mapping[str, Any] = {}
        for at_s, line in lines:
            document = _json(line[5:].decode("utf-8", "replace"))
            if document.get("error"):
                raise ValueError(f"the server answered {document['error']}")
            usage = document.get("usage") or usage
            choices = document.get("choices") or ()
            if any(_has_text(choice) for choice in choices):
                pieces.append(at_s)
            ids += [token for choice in choices for token in choice.get("token_ids") or ()]
        details = usage.get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens")
        return Timed(
            sent_s=sent_s,
            piece_s=tuple(pieces),
            prompt_tokens=int(usage.get("prompt_tokens", n_prompt)),
            cached_tokens=cached if isinstance(cached, int) else None,
            output_tokens=int(usage.get("completion_tokens", len(pieces))),
            output_ids=tuple(ids),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def server_version(url: str) -> str | None:
    """The version that a server states at `/version`, as vLLM does; None where it does not."""
    version = _json(get_page(url.rstrip("/").removesuffix("/v1") + "/version", 10.0)).get("version")
    return version if isinstance(version, str) else None


def _has_text(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return choice.get("text") is not None or any(delta.get(k) for k in ("content", "reasoning", "reasoning_content"))


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and int(text) > 0 else None
