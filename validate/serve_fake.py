"""A served model without a model: requests priced by the step model and scheduled by the simulator's engine.

Token counts, prefix hits and batching are those of a real engine; what is said is filler. `FakeService` lives on a
virtual clock; `validate.serve_fake_http` puts an OpenAI-compatible front and a real clock before it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import simpy

from costmodel.deployment import Deployment
from costmodel.step import StepModel
from hwprofiles.errors import InputError
from simulator.engine import Ask, Engine
from simulator.hash_ledger import HashLedger
from simulator.jobs import EngineJob, JobResult, LogEntry

MEAN_OUTPUT_TOKENS = 128
"""Mean length of an answer that may end by itself."""
FILLER = " tok"
"""One token of output: four characters, as prompts are counted, so that an answer sent back counts the same."""
_CHARS_PER_TOKEN = len(FILLER)


@dataclass(slots=True)
class Live:
    """One request under way: `token_s` are the times of its tokens so far; `heard` is told of new ones."""

    prompt_tokens: int
    output_tokens: int
    sent_s: float
    token_s: list[float] = field(default_factory=list)
    result: JobResult | None = None
    heard: Callable[[int], object] | None = None
    ask: Ask | None = None

    def emit(self, n: int, now_s: float) -> None:
        """`n` more tokens, as far as the answer has them."""
        n = min(n, self.output_tokens - len(self.token_s))
        if n > 0:
            self.token_s += [now_s] * n
            if self.heard is not None:
                self.heard(n)


@dataclass(slots=True)
class Counts:
    """What the server has done since its start, under the names of vLLM's counters."""

    queries_tokens: int = 0
    hits_tokens: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: int = 0
    cancelled: int = 0
    preemptions: int = 0
    ttft_s: float = 0.0
    e2e_s: float = 0.0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


class FakeService:
    """One replica of a deployment that answers requests of known length.

    Parameters
    ----------
    dep : Deployment
    factors : mapping name -> float or None
        Device and engine factors that the server obeys; None: the central ones.
    env : simpy.Environment or None
        A clock that is shared with other services; None: one of its own.

    Raises
    ------
    InputError
        A deployment that drafts tokens: one token per sequence and step is all that is served.

    Limits
    ------
    Prefixes are found by whole cache blocks of the prompt; generated tokens are not found again.
    """

    def __init__(
        self, dep: Deployment, factors: Mapping[str, float] | None = None, env: simpy.Environment | None = None
    ) -> None:
        if dep.speculation is not None:
            raise InputError(f"{dep.label}: a fake server decodes one token at a time; leave the decode option out")
        self.dep = dep
        self.model = StepModel(dep, factors)
        rule = self.model.rule
        page = dep.engine.page_tokens
        self.env = simpy.Environment() if env is None else env
        self.ledger = HashLedger(self.model.kv_tokens, rule.block_tokens, page)
        self.engine = Engine(self.env, self.model, skip_ahead=False, log=self._stepped, ledger=self.ledger)
        self.block_tokens = rule.block_tokens
        self.max_model_tokens = min(dep.model.max_context_tokens or 1 << 20, self.model.kv_tokens // page * page)
        self.counts = Counts()
        self.live: list[Live] = []

    def submit(self, prompt: Sequence[int], output_tokens: int, heard: Callable[[int], object] | None = None) -> Live:
        """Hand in a prompt of token ids that will be answered with exactly `output_tokens`.

        Raises
        ------
        InputError
            Nothing to do, or more tokens than the model or the cache takes.
        """
        total = len(prompt) + output_tokens
        if not prompt or output_tokens < 1 or total > self.max_model_tokens:
            raise InputError(
                f"a request needs prompt and output tokens >= 1 and at most {self.max_model_tokens} in all, got "
                f"{len(prompt)} and {output_tokens}"
            )
        live = Live(len(prompt), output_tokens, self.env.now, heard=heard)
        key = block_ids(prompt, self.block_tokens)
        known = self.ledger.find(key)
        reusable = len(prompt) if not self.model.rule.state_aligned else known.tokens if known else 0
        live.ask = self.engine.submit(EngineJob(key, len(prompt), reusable, output_tokens))
        live.ask.callbacks.append(lambda event: self._done(live, event))
        self.live.append(live)
        return live

    def cancel(self, live: Live) -> None:
        """The client has gone away."""
        if live.ask is not None:
            self.engine.cancel(live.ask)

    def advance(self, now_s: float) -> None:
        """Let the virtual clock run to `now_s`, events before it included."""
        if now_s > self.env.now:
            self.env.run(until=now_s)

    def finish(self, lives: Sequence[Live]) -> None:
        """Let the virtual clock run until all of these are answered."""
        asks = [live.ask for live in lives if live.ask is not None and not live.ask.triggered]
        if asks:
            self.env.run(until=self.env.all_of(asks))

    def _stepped(self, entry: LogEntry) -> None:
        """An iteration has ended: every sequence past its prompt has one token more."""
        now = self.env.now
        for live in self.live:
            if live.ask is not None and live.ask.seq.first_token_s <= now:
                live.emit(1, now)

    def _done(self, live: Live, event: simpy.Event) -> None:
        result = cast(JobResult, event.value)
        self.live.remove(live)
        live.output_tokens = min(live.output_tokens, result.emitted_tokens)
        live.emit(live.output_tokens, self.env.now)
        live.result = result
        c = self.counts
        c.queries_tokens += live.prompt_tokens
        c.hits_tokens += result.cached_tokens
        c.prompt_tokens += live.prompt_tokens
        c.generation_tokens += result.emitted_tokens
        c.finished += not result.cancelled
        c.cancelled += result.cancelled
        c.preemptions += result.n_preemptions
        if live.token_s:
            c.ttft_s += live.token_s[0] - live.sent_s
        c.e2e_s += self.env.now - live.sent_s
        c.queue_s += result.queued_s
        c.prefill_s += sum(result.pass_s)
        c.decode_s += result.decode_s
        if live.heard is not None:
            live.heard(0)


def block_ids(prompt: Sequence[int], block_tokens: int) -> tuple[int, ...]:
    """Ids of the full cache blocks of a prompt; each stands for everything up to its end."""
    out: list[int] = []
    last = 0
    for end in range(block_tokens, len(prompt) + 1, block_tokens):
        last = hash((last, tuple(prompt[end - block_tokens : end])))
        out.append(last)
    return tuple(out)


def token_ids(text: str) -> list[int]:
    """A text as token ids: four characters each."""
    pieces = (text[i : i + _CHARS_PER_TOKEN] for i in range(0, len(text), _CHARS_PER_TOKEN))
    return [int.from_bytes(p.encode("utf-8", "surrogatepass"), "little") for p in pieces]


def answer_tokens(prompt: Sequence[int], body: Mapping[str, Any], room_tokens: int) -> tuple[int, bool]:
    """Tokens of the answer to a request, and whether it was cut at its limit.

    `ignore_eos` gives exactly the limit. Otherwise the length is geometric with mean `MEAN_OUTPUT_TOKENS`, drawn from
    the prompt, so that the same prompt is answered alike, and held between `min_tokens` and the limit.
    """
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or min(16 * MEAN_OUTPUT_TOKENS, room_tokens)
    if body.get("ignore_eos"):
        return int(limit), True
    rng = random.Random(hash(tuple(prompt)))
    natural = 1 + int(rng.expovariate(1.0 / MEAN_OUTPUT_TOKENS))
    wanted = max(natural, int(body.get("min_tokens") or 0))
    return min(int(limit), wanted), wanted > limit
