"""The KV cache of one engine replica as a ledger of blocks: allocated, cached (a finished prefix, evictable) or free.

Reading order: `KvLedger.claim` when a sequence is admitted, `grow` as it computes tokens, `release` when it finishes or
is preempted. `allocated + cached + free == total` after every call; the shared prefix counts as allocated.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from hwprofiles.errors import InputError

PAGE_TOKENS = 16
"""Tokens of one KV block, the default page of vLLM v1; a prefix-cache hit is floored to `CacheRule.block_tokens`."""


@dataclass(slots=True)
class Holding:
    """Blocks of one running sequence: its own, on top of `n_shared` of the shared prefix."""

    key: Hashable
    n_blocks: int
    n_shared: int = 0


@dataclass(slots=True)
class CachedPrefix:
    """The prefix a released sequence left behind; `saved_tokens` are its lengths with a saved recurrent state."""

    key: Hashable
    n_blocks: int
    n_shared: int
    tokens: int
    saved_tokens: tuple[int, ...]


class KvLedger:
    """Block ledger with one cached prefix per sequence key, evicted least recently released first, tail blocks first.

    Parameters
    ----------
    kv_tokens : int
        Capacity; whole pages of it count.
    page_tokens : int
        Tokens of one block.
    shared_tokens : int
        A prefix that every sequence has in common (system prompt, tool list): computed before the start, held once.

    Limits
    ------
    Beyond the shared prefix two running sequences of one key share nothing, and neither do different keys. What a key's
    next sequence does not reuse stays as an unreachable entry until it is evicted, as a dead branch does in a
    hash-addressed cache.
    """

    def __init__(self, kv_tokens: int, page_tokens: int = PAGE_TOKENS, shared_tokens: int = 0) -> None:
        self.page_tokens = page_tokens
        self.shared_tokens = shared_tokens
        self.total_blocks = kv_tokens // page_tokens
        self.shared_blocks = shared_tokens // page_tokens
        self.free_blocks = self.total_blocks - self.shared_blocks
        if self.free_blocks < 1:
            raise InputError(
                f"a KV cache needs at least one page of {page_tokens} tokens beside the shared prefix of "
                f"{shared_tokens} tokens, got {kv_tokens} tokens"
            )
        self.cached_blocks = 0
        self._lru: OrderedDict[int, CachedPrefix] = OrderedDict()
        self._serial_of: dict[Hashable, int] = {}
        self._next_serial = 0

    @property
    def allocated_blocks(self) -> int:
        """Blocks held by running sequences and by the shared prefix."""
        return self.total_blocks - self.free_blocks - self.cached_blocks

    @property
    def room_blocks(self) -> int:
        """Blocks a running sequence can still get: free ones and, by eviction, cached ones."""
        return self.free_blocks + self.cached_blocks

    def blocks(self, tokens: int) -> int:
        """Blocks that hold `tokens`."""
        return -(-tokens // self.page_tokens)

    def find(self, key: Hashable) -> CachedPrefix | None:
        """The cached prefix of `key`, if any of it is left."""
        serial = self._serial_of.get(key)
        return None if serial is None else self._lru[serial]

    def room_before(self, key: Hashable) -> int:
        """Blocks that can be handed out before the cached prefix of `key` loses one."""
        room = self.free_blocks
        target = self._serial_of.get(key)
        for serial, entry in self._lru.items():
            if serial == target:
                break
            room += entry.n_blocks
        return room

    def own_blocks(self, tokens: int, hit_tokens: int) -> int:
        """Blocks that a sequence of `tokens` needs beside the shared ones, when its first `hit_tokens` were found."""
        found = hit_tokens // self.page_tokens
        shared = self.shared_blocks
        return -(-tokens // self.page_tokens) - (found if found < shared else shared)

    def claim(self, key: Hashable, hit_tokens: int) -> Holding:
        """Hand the first `hit_tokens` of the cached prefix of `key`, or of the shared one, to a sequence."""
        n_shared = hit_tokens // self.page_tokens
        n_shared = n_shared if n_shared < self.shared_blocks else self.shared_blocks
        serial = self._serial_of.pop(key, None)
        if serial is None:
            if hit_tokens > self.shared_tokens:
                raise ValueError(f"{self.shared_tokens} tokens are cached for {key!r}, cannot claim {hit_tokens}")
            return Holding(key, 0, n_shared)
        entry = self._lru[serial]
        found = max(entry.tokens, self.shared_tokens)
        if hit_tokens > found:
            raise ValueError(f"{found} tokens are cached for {key!r}, cannot claim {hit_tokens}")
        taken = min(max(0, self.blocks(hit_tokens) - max(entry.n_shared, n_shared)), entry.n_blocks)
        entry.n_blocks -= taken
        self.cached_blocks -= taken
        if not entry.n_blocks:
            del self._lru[serial]
        return Holding(key, taken, n_shared)

    def grow(self, holding: Holding, tokens: int) -> bool:
        """Give `holding` room for `tokens` in all, evicting as needed; False, and no change, when there is no room."""
        needed = -(-tokens // self.page_tokens) - holding.n_shared - holding.n_blocks
        if needed <= 0:
            return True
        if needed > self.free_blocks:
            if needed > self.free_blocks + self.cached_blocks:
                return False
            self._evict(needed - self.free_blocks)
        self.free_blocks -= needed
        holding.n_blocks += needed
        return True

    def take(self, n_blocks: int) -> None:
        """Hand out `n_blocks`, evicting as needed; the caller has looked at `room_blocks`."""
        if n_blocks > self.free_blocks:
            if n_blocks > self.free_blocks + self.cached_blocks:
                raise ValueError(f"{n_blocks} blocks are wanted and {self.room_blocks} can be had")
            self._evict(n_blocks - self.free_blocks)
        self.free_blocks -= n_blocks

    def release(self, holding: Holding, tokens: int, saved_tokens: tuple[int, ...] = ()) -> None:
        """Turn the blocks of `holding`, of which `tokens` are computed, into the cached prefix of its key."""
        n = max(0, self.blocks(tokens) - holding.n_shared)
        if n > holding.n_blocks:
            raise ValueError(f"{holding.n_blocks} blocks cannot hold {tokens} tokens")
        self.free_blocks += holding.n_blocks - n
        self.cached_blocks += n
        holding.n_blocks = 0
        if n:
            self._serial_of[holding.key] = self._next_serial
            self._lru[self._next_serial] = CachedPrefix(holding.key, n, holding.n_shared, tokens, saved_tokens)
            self._next_serial += 1

    def _evict(self, n_blocks: int) -> None:
        self.cached_blocks -= n_blocks
        self.free_blocks += n_blocks
        lru = self._lru
        while n_blocks:
            serial = next(iter(lru))
            entry = lru[serial]
            if n_blocks < entry.n_blocks:
                entry.n_blocks -= n_blocks
                tokens = (entry.n_shared + entry.n_blocks) * self.page_tokens
                entry.tokens = tokens if tokens < entry.tokens else entry.tokens
                return
            n_blocks -= entry.n_blocks
            del lru[serial]
            if self._serial_of.get(entry.key) == serial:
                del self._serial_of[entry.key]
