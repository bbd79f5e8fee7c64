"""The two engines of a real run: fake ones, real vLLM in this process, or servers behind URLs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.protocol import Role
from hwprofiles.errors import InputError
from simulator.case import Case
from validate.engine import ChatEngine
from validate.session import Job, fake_engines

FAKE, VLLM = "fake:", "vllm:"
"""In place of a URL: the in-process fake engine; `vllm:FOLDER`, real vLLM in this process on a model's folder."""

LONGEST_TEXT = 24
"""Characters of an open text in a step of a small model: even random weights end a step then."""
SMALL_TEMPERATURE = 1.0
"""Greedy, random weights say one thing for ever."""
_MODEL_LEN, _KV_BYTES = 16_384, 512 << 20
"""In-process vLLM is for small models and has a small cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How real engines are asked; None leaves each kind of engine its own way.

    Parameters
    ----------
    temperature : float or None
        None: 0 of servers, 1 in this process.
    longest_text : int or None
        Of vLLM: each step is held to one JSON object with at most so many characters in an open text. None: servers
        are not held, an engine in this process to 24.
    """

    temperature: float | None = None
    longest_text: int | None = None


async def engines_of(
    case: Case,
    urls: tuple[str, str],
    jobs: Sequence[Job],
    clock: Any,
    stack: AsyncExitStack,
    asking: Asking,
) -> Mapping[Role, ChatEngine]:
    """Both engines; servers' connections are closed when `stack` is."""
    if urls[0] == FAKE:
        return fake_engines(case, jobs, clock)
    from validate.openai_server import OpenAIServer

    out: dict[Role, ChatEngine] = {}
    for role, url in zip((Role.WEAK, Role.STRONG), urls, strict=True):
        if url.startswith(VLLM):
            out[role] = _in_process(url.removeprefix(VLLM), case, clock, stack, asking)
            continue
        api = case.side(role).api
        server = OpenAIServer(
            url,
            clock,
            model=api.partition("/")[2] if api else None,
            longest_text=asking.longest_text,
            temperature=asking.temperature or 0.0,
        )
        stack.push_async_callback(server.close)
        out[role] = server
    return out


def _in_process(folder: str, case: Case, clock: Any, stack: AsyncExitStack, asking: Asking) -> ChatEngine:
    """Real vLLM in this process; a folder without a model is bad input."""
    from validate.vllm_offline import VllmOffline

    if not (Path(folder) / "config.json").is_file():
        raise InputError(f"{VLLM}{folder}: no config.json there; name the folder of a model")
    engine = VllmOffline(
        folder,
        clock,
        temperature=SMALL_TEMPERATURE if asking.temperature is None else asking.temperature,
        seed=case.scenario.run.seed,
        longest_text=asking.longest_text or LONGEST_TEXT,
        max_model_len=_MODEL_LEN,
        kv_cache_memory_bytes=_KV_BYTES,
    )
    stack.callback(engine.close)
    return engine
