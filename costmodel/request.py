"""How one request becomes engine passes: chunking, prefix-cache flooring, state alignment, first token from prefill.

`plan_request` is the only place that knows these rules; `walk`, `expect` and the simulator all call it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRule:
    """The prefix-cache and chunking rules of one deployment on one engine generation.

    Parameters
    ----------
    block_tokens : int
        Granularity of a prefix-cache hit.
    chunk_tokens : int
        Token budget of one engine step (C).
    state_aligned : bool
        Models with a recurrent state: a hit needs a saved state, which exists only where a prefill pass ended on a
        multiple of `block_tokens`; a prefill stops at its last such boundary.
    keeps_output : bool
        Whether generated tokens join the cached prefix (an engine's KV cache: yes; a priced API caches prompts only).
    tokens_per_pass : float
        Output tokens that a decode pass yields per sequence, E; above 1 with token-level speculation.
    pass_tokens : int
        Tokens that a decode pass computes per sequence.
    """

    block_tokens: int
    chunk_tokens: int
    state_aligned: bool = False
    keeps_output: bool = True
    tokens_per_pass: float = 1.0
    pass_tokens: int = 1


class Pass(NamedTuple):
    """One request's prefill share of one engine step.

    `new_tokens` are computed on top of `context_tokens` already in the cache; `emits` is True when the pass ends the
    prompt and so yields the first output token.
    """

    new_tokens: int
    context_tokens: int
    emits: bool


class RequestPlan(NamedTuple):
    """The passes of one request.

    `cached_tokens` come from the prefix cache; `decode_passes` follow the prefill, pass i = 0, 1, .. of them on a
    context of `prompt + i tokens_per_pass` tokens; `saved_tokens` are the prefix lengths that later requests may reuse.
    """

    cached_tokens: int
    passes: tuple[Pass, ...]
    decode_passes: int
    saved_tokens: tuple[int, ...]


def cached_tokens(rule: CacheRule, prompt_tokens: int, reusable_tokens: int) -> int:
    """Prefix-cache hit: `floor(min(reusable, prompt - 1) / block) * block`; at least one token is recomputed."""
    usable = reusable_tokens if reusable_tokens < prompt_tokens else prompt_tokens - 1
    return usable // rule.block_tokens * rule.block_tokens if usable > 0 else 0


def next_chunk(rule: CacheRule, prompt_tokens: int, computed_tokens: int, budget_tokens: int) -> int:
    """New tokens of the next prefill pass, at most `budget_tokens`; 0 when an aligned pass does not fit the budget.

    Aligned prefills end their passes on block multiples, the last of them at `prompt // block * block`, and finish
    with the remainder in a pass of its own.
    """
    left = prompt_tokens - computed_tokens
    new = left if left < budget_tokens else budget_tokens
    if not rule.state_aligned:
        return new
    block = rule.block_tokens
    boundary = prompt_tokens // block * block
    if computed_tokens >= boundary:
        return new
    end = computed_tokens + new
    return (boundary if end >= boundary else end // block * block) - computed_tokens


def decode_passes(rule: CacheRule, output_tokens: int) -> int:
    """Decode passes of a request: `ceil((output - 1) / tokens_per_pass)`, the first token coming from the prefill."""
    if rule.tokens_per_pass == 1.0:
        return output_tokens - 1
    return math.ceil((output_tokens - 1) / rule.tokens_per_pass - 1e-9)


def plan_request(rule: CacheRule, prompt_tokens: int, reusable_tokens: int, output_tokens: int) -> RequestPlan:
    """Passes of a request that has the engine to itself.

    prefill passes of at most `chunk_tokens`, then `decode_passes`: the first token comes from the last prefill pass,
    and the last output token is not in the cache afterwards.

    Parameters
    ----------
    prompt_tokens, output_tokens : int
        At least 1 each.
    reusable_tokens : int
        Longest prefix whose cache entries (and, when aligned, saved state) exist.

    Limits
    ------
    No encoder, no multi-step scheduling; the state saved while decoding is not reusable.
    """
    if prompt_tokens < 1 or output_tokens < 1:
        raise ValueError(f"a request needs prompt and output tokens >= 1, got {prompt_tokens} and {output_tokens}")
    hit = cached_tokens(rule, prompt_tokens, reusable_tokens)
    passes = []
    done = hit
    while done < prompt_tokens:
        new = next_chunk(rule, prompt_tokens, done, rule.chunk_tokens)
        if new <= 0:
            raise ValueError(f"token budget {rule.chunk_tokens} is below the cache block of {rule.block_tokens} tokens")
        passes.append(Pass(new, done, done + new == prompt_tokens))
        done += new
    saved = saved_by(rule, hit, tuple(passes), prompt_tokens, output_tokens)
    return RequestPlan(hit, tuple(passes), decode_passes(rule, output_tokens), saved)


def saved_by(
    rule: CacheRule, hit: int, passes: tuple[Pass, ...], prompt_tokens: int, output_tokens: int
) -> tuple[int, ...]:
    """Prefix lengths reusable after a request: all that was computed; aligned state: passes that end on a block."""
    if not rule.state_aligned:
        return (prompt_tokens + (output_tokens - 1 if rule.keeps_output else 0),)
    ends = [p.context_tokens + p.new_tokens for p in passes]
    return tuple(sorted({hit, *(e for e in ends if e % rule.block_tokens == 0)} - {0}))
