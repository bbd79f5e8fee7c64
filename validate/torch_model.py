"""A Qwen3-shaped decoder in torch alone, with random weights and a KV cache that is written in place.

RMSNorm, fused query-key-value and gate-up products, norms of queries and keys, rotary positions, grouped heads through
`scaled_dot_product_attention`, SwiGLU, a head on the last token of each sequence and its most likely token: one step of
an engine without the engine. Needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from validate.small_models import Shape

EPSILON, THETA = 1e-6, 1e6
"""Of the norms and the rotary positions, as in Qwen3's own configuration."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights of one layer, rows x columns as `torch.nn.functional.linear` takes them."""

    qkv: Any
    out: Any
    gate_up: Any
    down: Any
    norms: tuple[Any, Any, Any, Any]
    """Before attention, of queries, of keys, before the feed-forward layer."""


class Decoder:
    """The model: `prepare` a batch's cache, then `step` it.

    Parameters
    ----------
    shape : Shape
    vocabulary : int
        Rows of embedding and head.
    longest : int
        Positions.
    device : str
        `cuda` or `cpu`.
    dtype : torch.dtype or None
        None: bfloat16.
    seed : int
        Of the weights.
    """

    def __init__(
        self, shape: Shape, vocabulary: int, longest: int, device: str, *, dtype: Any = None, seed: int = 0
    ) -> None:
        import torch

        self.torch, self.shape, self.device = torch, shape, device
        self.dtype = dtype or torch.bfloat16
        self.vocabulary = vocabulary
        self._random = torch.Generator(device=device).manual_seed(seed)
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.embedding = self._normal(vocabulary, shape.hidden)
        self.head = self.embedding if shape.tied else self._normal(vocabulary, shape.hidden)
        self.layers = [
            _Layer(
                self._normal(queries + 2 * keys, shape.hidden),
                self._normal(shape.hidden, queries),
                self._normal(2 * shape.intermediate, shape.hidden),
                self._normal(shape.hidden, shape.intermediate),
                (
                    self._ones(shape.hidden),
                    self._ones(shape.head_dim),
                    self._ones(shape.head_dim),
                    self._ones(shape.hidden),
                ),
            )
            for _ in range(shape.layers)
        ]
        self.norm = self._ones(shape.hidden)
        turns = THETA ** (-torch.arange(0, shape.head_dim, 2, device=device, dtype=torch.float32) / shape.head_dim)
        angles = torch.outer(torch.arange(longest, device=device, dtype=torch.float32), turns)
        self.cos = torch.cat([angles.cos()] * 2, dim=-1).to(self.dtype)
        self.sin = torch.cat([angles.sin()] * 2, dim=-1).to(self.dtype)
        self.cache: Any = None

    def _normal(self, rows: int, columns: int) -> Any:
        weight = self.torch.empty(rows, columns, device=self.device, dtype=self.dtype)
        return weight.normal_(0.0, 0.02, generator=self._random)

    def _ones(self, width: int) -> Any:
        return self.torch.ones(width, device=self.device, dtype=self.dtype)

    def reserve(self, tokens: int) -> None:
        """Memory for the keys and values of so many tokens, over all sequences, filled at random."""
        self.cache = None
        each = tokens * self.shape.kv_heads * self.shape.head_dim
        self.cache = self.torch.empty(self.shape.layers, 2, each, device=self.device, dtype=self.dtype)
        for layer in self.cache:
            layer.normal_(0.0, 1.0, generator=self._random)

    def prepare(self, batch: int, new_tokens: int, context_tokens: int) -> Batch:
        """`batch` sequences of `context_tokens` in the cache, each with `new_tokens` random ones to come.

        Raises
        ------
        ValueError
            `reserve` has not been asked for as many.
        """
        s, length = self.shape, context_tokens + new_tokens
        needed = batch * length * s.kv_heads * s.head_dim
        if self.cache is None or needed > self.cache.shape[-1]:
            raise ValueError(f"{batch} x {length} tokens do not fit the cache that was reserved")
        views = self.cache[:, :, :needed].view(s.layers, 2, batch, s.kv_heads, length, s.head_dim)
        ids = self.torch.randint(self.vocabulary, (batch, new_tokens), device=self.device, generator=self._random)
        return Batch(ids, views, context_tokens, self._mask(new_tokens, length))

    def _mask(self, new: int, length: int) -> Any:
        """What hides later tokens where some are cached: on a GPU a bias that flash attention knows, else a matrix."""
        if new in (1, length):
            return None
        if self.device != "cpu":
            from torch.nn.attention.bias import causal_lower_right

            return causal_lower_right(new, length)
        ones = self.torch.ones(new, length, dtype=self.torch.bool)
        return ones.tril(diagonal=length - new)

    def step(self, batch: Batch) -> Any:
        """The next token of each sequence, (batch,); the new tokens' keys and values are written into the cache."""
        torch, f = self.torch, self.torch.nn.functional
        n_seqs, new = batch.ids.shape
        at = slice(batch.context, batch.context + new)
        x = f.embedding(batch.ids, self.embedding)
        for layer, cache in zip(self.layers, batch.views, strict=True):
            x = x + self._attention(layer, cache, f.rms_norm(x, x.shape[-1:], layer.norms[0], EPSILON), batch, at)
            gate, up = f.linear(f.rms_norm(x, x.shape[-1:], layer.norms[3], EPSILON), layer.gate_up).chunk(2, dim=-1)
            x = x + f.linear(f.silu(gate) * up, layer.down)
        last = f.rms_norm(x[:, -1], x.shape[-1:], self.norm, EPSILON)
        return torch.argmax(f.linear(last, self.head).view(n_seqs, self.vocabulary), dim=-1)

    def _attention(self, layer: _Layer, cache: Any, x: Any, batch: Batch, at: slice) -> Any:
        f, s = self.torch.nn.functional, self.shape
        n_seqs, new, _ = x.shape
        qkv = f.linear(x, layer.qkv).view(n_seqs, new, s.heads + 2 * s.kv_heads, s.head_dim).transpose(1, 2)
        q, k, v = qkv.split([s.heads, s.kv_heads, s.kv_heads], dim=1)
        q = self._turned(f.rms_norm(q, q.shape[-1:], layer.norms[1], EPSILON), at)
        keys, values = cache
        keys[:, :, at] = self._turned(f.rms_norm(k, k.shape[-1:], layer.norms[2], EPSILON), at)
        values[:, :, at] = v
        if new == 1:  # the heads of a group as rows of one product with their keys, which are then read once
            grouped = q.reshape(n_seqs, s.kv_heads, s.heads // s.kv_heads, s.head_dim)
            seen = f.scaled_dot_product_attention(grouped, keys, values).reshape(n_seqs, s.heads, 1, s.head_dim)
        else:
            seen = f.scaled_dot_product_attention(
                q, keys, values, attn_mask=batch.mask, is_causal=batch.mask is None, enable_gqa=True
            )
        return f.linear(seen.transpose(1, 2).reshape(n_seqs, new, s.heads * s.head_dim), layer.out)

    def _turned(self, x: Any, at: slice) -> Any:
        """Rotary positions of the new tokens."""
        a, b = x.chunk(2, dim=-1)
        return x * self.cos[at] + self.torch.cat([-b, a], dim=-1) * self.sin[at]


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences ready for a step: ids (n, new), cache views (layers, 2, n, kv heads, length, width), and a mask."""

    ids: Any
    views: Any
    context: int
    mask: Any
