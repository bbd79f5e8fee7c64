"""Any server that speaks the OpenAI chat protocol: vLLM, other engines, priced APIs."""

from __future__ import annotations

import asyncio
import os
import urllib.request
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from hwprofiles.errors import InputError
from validate.actions import Clock
from validate.calls import chat_message, parse_step, step_schema, tool_document
from validate.chat import ToolUse
from validate.engine import Answer, Ask, EngineError
from validate.openai_stream import REPLY_TOOL, VERDICT_KEY, Finish, StreamedAnswer
from validate.server_metrics import counters

_NOT_ALLOWED = (401, 403, 404)


@dataclass(frozen=True, slots=True)
class _Service:
    model: str
    is_vllm: bool


class OpenAIServer:
    """One role's engine behind a URL.

    Parameters
    ----------
    base_url : str
        As OpenAI clients take it, `http://127.0.0.1:8000/v1`.
    clock : Clock
        The run's clock.
    model : str, optional
        The first one the server lists when absent.
    api_key : str, optional
        The environment's OPENAI_API_KEY when absent, else the word "none".
    tool_choice : str
        "auto" lets the model call or speak; "required" holds it to a call (in vLLM by structured output, so that any
        model's calls are well-formed) and offers speaking as one more tool.
    longest_text : int, optional
        Of vLLM servers: a step is held to one JSON object by structured output, with so many characters at most in a
        text that a tool's schema leaves open, so that any model's step comes to an end (see `step_schema`).
    temperature : float, optional
        None leaves it to the server.
    timeout_s : float
        For a connection, and between two pieces of an answer.
    tries, pause_s : int, float
        Connections refused or broken before an answer began are tried again after pauses that double.

    Limits
    ------
    vLLM needs `--enable-auto-tool-choice --tool-call-parser NAME` for "auto", `--enable-prompt-tokens-details` to tell
    cached tokens, and `--structured-outputs-config` with `disable_any_whitespace` where a weak model fills with spaces.
    """

    def __init__(
        self,
        base_url: str,
        clock: Clock,
        *,
        model: str | None = None,
        api_key: str | None = None,
        tool_choice: Literal["auto", "required"] = "auto",
        longest_text: int | None = None,
        temperature: float | None = 0.0,
        timeout_s: float = 600.0,
        tries: int = 4,
        pause_s: float = 1.0,
    ) -> None:
        try:
            place = urlsplit(base_url)
        except ValueError as error:
            raise InputError(f"{base_url!r} is no URL of a server: {error}") from None
        if place.scheme not in ("http", "https") or not place.hostname:
            raise InputError(f"an engine's URL must begin with http:// or https:// and name a host, got {base_url!r}")
        if tries < 1:
            raise InputError(f"tries must be >= 1, got {tries}")
        import openai

        self.url = base_url.rstrip("/")
        self._clock, self._model, self._tool_choice, self._temperature = clock, model, tool_choice, temperature
        self._longest_text, self._n_asked = longest_text, 0
        self._timeout_s, self._tries, self._pause_s = timeout_s, tries, pause_s
        key = api_key or os.environ.get("OPENAI_API_KEY") or "none"
        self._client = openai.AsyncOpenAI(base_url=self.url, api_key=key, timeout=timeout_s, max_retries=0)
        self._service: _Service | None = None
        self._mark: dict[str, float] = {}

    async def ask(self, ask: Ask) -> Answer:
        """One request, streamed.

        Raises
        ------
        EngineError
            The server cannot be reached, failed, took too long or broke off.
        InputError
            The server refuses the key or does not know the model, or it does not count tokens.
        """
        body = self._body(ask, await self._find())
        sent_s = self._clock.now_s()
        stream = await self._retrying(lambda: self._stream(body))
        done_s = self._clock.now_s()
        usage = stream.usage
        if usage is None:
            raise InputError(f"{self.url} does not report token usage of streamed answers; counts are needed")
        details = usage.prompt_tokens_details
        text, uses, finish = self._read(stream, ask)
        return Answer(
            text=text,
            tool_uses=uses,
            finish=finish,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=None if details is None else details.cached_tokens,
            output_tokens=usage.completion_tokens,
            sent_s=sent_s,
            first_token_s=stream.first_s,
            done_s=done_s,
        )

    def _read(self, stream: StreamedAnswer, ask: Ask) -> tuple[str, tuple[ToolUse, ...], Finish]:
        if self._longest_text is None or ask.labels or not ask.tools:
            return stream.read(ask)
        self._n_asked += 1
        step = parse_step(stream.text, (tool.name for tool in ask.tools), f"call_{self._n_asked}")
        if step is None or stream.finish == "length":
            return stream.text, (), "length"
        return step.reply, step.tool_uses, "tool_calls" if step.tool_uses else "stop"

    async def metrics(self) -> dict[str, float]:
        """What the server's counters grew by since the last call; the first sets the mark. Empty without a page."""
        page = await asyncio.to_thread(get_page, self.url.removesuffix("/v1") + "/metrics", min(self._timeout_s, 10.0))
        try:
            now = counters(page)
        except ValueError:
            return {}
        grown = {key: value - self._mark[key] for key, value in now.items() if key in self._mark}
        self._mark = now
        return grown

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _find(self) -> _Service:
        """The model's name, and whether vLLM serves it (which takes a verdict's labels as they are)."""
        if self._service is None:
            try:
                listed = list((await self._retrying(self._client.models.list)).data)
            except InputError:
                if self._model is None:
                    raise
                listed = []  # not every server lists its models
            if self._model is None and not listed:
                raise InputError(f"{self.url} lists no model; name one")
            is_vllm = any(entry.owned_by == "vllm" for entry in listed)
            self._service = _Service(self._model or listed[0].id, is_vllm)
        return self._service

    def _body(self, ask: Ask, service: _Service) -> dict[str, Any]:
        tools = ask.tools
        if self._tool_choice == "required" and tools:
            if any(tool.name == REPLY_TOOL.name for tool in tools):
                raise InputError(f"no tool may be named {REPLY_TOOL.name!r} when a call is required")
            tools = (*tools, REPLY_TOOL)
        body: dict[str, Any] = {
            "model": service.model,
            "messages": [chat_message(message, as_text=True) for message in ask.messages],
            "max_completion_tokens": ask.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._temperature is not None:
            body["temperature"] = self._temperature
        if tools:
            more = {"strict": True} if service.is_vllm else {}
            body["tools"] = [tool_document(tool, **more) for tool in tools]
            body["tool_choice"] = "none" if ask.labels else self._tool_choice
        if self._longest_text is not None and not service.is_vllm:
            raise InputError(f"{self.url} is no vLLM server, and only those can be held to the form of a step")
        if self._longest_text is not None and tools and not ask.labels:
            body["tool_choice"] = "none"
            body["extra_body"] = {"structured_outputs": {"json": step_schema(tools, self._longest_text)}}
        elif ask.labels and service.is_vllm:
            body["extra_body"] = {"structured_outputs": {"choice": list(ask.labels)}}
        elif ask.labels:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": VERDICT_KEY,
                    "strict": True,
                    "schema": {
                        "type": "object",
                        "properties": {VERDICT_KEY: {"type": "string", "enum": list(ask.labels)}},
                        "required": [VERDICT_KEY],
                        "additionalProperties": False,
                    },
                },
            }
        return body

    async def _stream(self, body: dict[str, Any]) -> StreamedAnswer:
        out = StreamedAnswer()
        chunks: Any = await self._client.chat.completions.create(**body)
        try:
            async for chunk in chunks:
                out.take(chunk, self._clock)
        except Exception as error:  # the HTTP library's own errors come through here, and half-written JSON
            raise EngineError(f"{self.url} broke off while answering: {one_line(error)}") from error
        if out.finish not in ("stop", "tool_calls", "length"):
            raise EngineError(f"{self.url} ended an answer with {out.finish!r}")
        return out

    async def _retrying(self, send: Any) -> Any:
        """Run one exchange; connections that fail before an answer began are tried again."""
        import openai

        for attempt in range(self._tries):
            try:
                return await send()
            except openai.APITimeoutError as error:
                raise EngineError(f"{self.url} gave no answer within {self._timeout_s:g} s") from error
            except openai.APIConnectionError as error:
                if attempt + 1 == self._tries:
                    raise EngineError(f"{self.url} cannot be reached: {one_line(error.__cause__ or error)}") from error
                await asyncio.sleep(self._pause_s * 2**attempt)
            except openai.APIStatusError as error:
                message = f"{self.url} answered {error.status_code}: {one_line(error)}"
                if error.status_code in _NOT_ALLOWED:
                    raise InputError(message) from error
                raise EngineError(message) from error
            except (openai.OpenAIError, ValueError) as error:
                raise EngineError(f"{self.url} answered nonsense: {one_line(error)}") from error
        raise AssertionError("unreachable: the last try raises")


def get_page(url: str, timeout_s: float) -> str:
    """A page, or an empty text when there is none."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            return str(answer.read().decode("utf-8"))
    except (OSError, ValueError):
        return ""


def one_line(error: BaseException) -> str:
    """An error's message on one line of at most 300 characters."""
    return " ".join(str(error).split())[:300] or type(error).__name__
