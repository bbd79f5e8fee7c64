"""What attention sees in one step: sums of contexts, clipped to a window."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Num = Any
"""A float or a numpy array of floats."""


class Span(NamedTuple):
    """What an attention sees in one step.

    `context_tokens` is summed over new tokens (each sees itself), `touched_tokens` are KV entries read or written,
    each once. In a decode step of one token a sequence the two are equal; with more they are proportional
    (`decode_span`), so time stays proportional to context.
    """

    context_tokens: Num
    touched_tokens: Num
    new_tokens: Num
    n_seqs: Num


def clipped_sum(start: Num, n: Num, window: int | None) -> Num:
    """Sum of min(x, window) for x = start + 1 .. start + n, in closed form."""
    if window is None:
        return n * start + n * (n + 1.0) / 2.0
    if isinstance(start, float) and isinstance(n, float):
        linear = min(max(window - start, 0.0), n)
    else:
        linear = np.clip(window - start, 0.0, n)
    return linear * start + linear * (linear + 1.0) / 2.0 + (n - linear) * window


def run_sum(context: Num, n: Num, window: int | None, tokens: int = 1, stride: float = 1.0) -> Num:
    """Sum of min(context + tokens + i stride, window) for i = 0 .. n - 1: what n decode passes of a sequence see.

    Parameters
    ----------
    context : tokens cached before the first pass
    tokens, stride : tokens that a pass computes, and that it adds to the context
    """
    if tokens == 1 and stride == 1.0:
        return clipped_sum(context, n, window)
    first = context + tokens
    if window is None:
        return n * first + stride * n * (n - 1.0) / 2.0
    below = np.clip(np.ceil((window - first) / stride), 0.0, n)
    return below * first + stride * below * (below - 1.0) / 2.0 + (n - below) * window


def prefill_span(new: Num, context: Num, window: int | None) -> Span:
    """One prefill pass of `new` tokens on top of `context` cached ones."""
    if isinstance(new, float) and isinstance(context, float):
        seen = context if window is None else min(context, window)
        return Span(clipped_sum(context, new, window), seen + new, new, min(new, 1.0))
    seen = context if window is None else np.minimum(context, window)
    return Span(clipped_sum(context, new, window), seen + new, new, np.minimum(new, 1.0))


def decode_span(seen: Num, n_seqs: Num, tokens: int) -> Span:
    """A decode step of `n_seqs` sequences, `tokens` new ones each, whose caches afterwards hold `seen` in sum.

    Every new token is charged the context of the last of its sequence: at most (tokens - 1) / 2 tokens too many each.
    """
    return Span(tokens * seen, seen, tokens * n_seqs, n_seqs)
